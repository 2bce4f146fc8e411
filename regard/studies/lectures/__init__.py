"""The lectures as running code: each formula computed by the library's own functions, each figure drawn again."""

from __future__ import annotations

from .every import LECTURES, about, lecture
from .page import Lecture, draw
from .trained import TRAINED, Shown, Word, looks, trained

__all__ = [
    "LECTURES",
    "TRAINED",
    "Lecture",
    "Shown",
    "Word",
    "about",
    "draw",
    "lecture",
    "looks",
    "trained",
]
