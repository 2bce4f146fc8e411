"""The names of a bundle's files; what they hold is in `format.py`."""

from __future__ import annotations

WEIGHTS, RECIPE, GOLDEN, CARD = "weights.safetensors", "recipe.toml", "golden.json", "bundle.json"
CALIBRATION, SHORTLIST = "calibration.json", "shortlist.safetensors"
MODEL_CARD = "MODEL_CARD.md"
JOINT, SEPARATE = "subwords.model", ("source.model", "target.model")

LARGEST = dict.fromkeys((RECIPE, GOLDEN, CARD, CALIBRATION), 8 << 20) | dict.fromkeys((JOINT, *SEPARATE), 64 << 20)
"""The most bytes that a file may have which is read as a whole."""

SCALE = ":scale"
"""Behind a parameter's name: what its rows are multiplied by, where they are stored as whole numbers."""
