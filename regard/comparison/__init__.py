"""Outputs of several systems compared on the same lines: significance, where they differ, and kinds of errors."""

from __future__ import annotations

from .compare import Compared, Comparing, compare
from .significance import Tested

__all__ = ["Compared", "Comparing", "Tested", "compare"]
