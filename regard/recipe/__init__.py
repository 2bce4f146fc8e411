"""Recipes: everything a run depends on, in one TOML file; each room owns the config of its own table.

A wrong key is answered with the nearest right one and its place, a wrong value with its rule.
Recipe -> TOML -> recipe is the identity.
"""

from __future__ import annotations

from .schema import RENAMED, RENAMED_VALUES, Recipe, load, parse, to_toml, validate

__all__ = ["RENAMED", "RENAMED_VALUES", "Recipe", "load", "parse", "to_toml", "validate"]
