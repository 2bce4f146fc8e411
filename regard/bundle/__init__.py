"""Bundles: everything needed to use a model, in a directory that is checked whenever it is opened."""

from __future__ import annotations

from .files import SCALE
from .format import FORMAT, Calibration, Golden, Provenance, on_curve, versions
from .load import Bundle, check_golden, load
from .save import add_calibration, add_shortlist, check_place, save, with_recipe

__all__ = ["FORMAT", "SCALE", "Bundle", "Calibration", "Golden", "Provenance", "add_calibration", "add_shortlist"]
__all__ += ["check_golden", "check_place", "load", "on_curve", "save", "versions", "with_recipe"]
