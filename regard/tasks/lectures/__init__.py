"""The lectures as running code: each formula computed by the library's own functions, each figure drawn again."""

from __future__ import annotations

from .every import LECTURES, about, lecture
from .looks import looks
from .page import Lecture, draw

__all__ = ["LECTURES", "Lecture", "about", "draw", "lecture", "looks"]
