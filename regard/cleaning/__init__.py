"""Parallel text made clean: pairs of lines that are no translations of each other are found, named and left out."""

from __future__ import annotations

from .clean import Cleaned, clean
from .rules import RULES, Rules

__all__ = ["RULES", "Cleaned", "Rules", "clean"]
