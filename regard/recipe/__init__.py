"""Recipes: everything a run depends on, in one TOML file; recipe -> TOML -> recipe is the identity."""

from __future__ import annotations

from .schema import RENAMED, RENAMED_VALUES, Recipe, changed, load, parse, to_toml, validate

__all__ = ["RENAMED", "RENAMED_VALUES", "Recipe", "changed", "load", "parse", "to_toml", "validate"]
