"""Several corpora as one: tagged, and the small ones repeated."""

from __future__ import annotations

from .mix import Mixed, mix

__all__ = ["Mixed", "mix"]
