"""Models from and for other libraries."""

from __future__ import annotations

from .export import FORMATS, export
from .importing import import_marian

__all__ = ["FORMATS", "export", "import_marian"]
