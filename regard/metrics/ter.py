"""TER (Snover et al. 2006): edits and shifts for each hundred reference words, through sacrebleu; lower is better.

Chinese and Japanese are split into characters first (sacrebleu's Asian support; the signature says asian:yes): without
it, a sentence without spaces would be one word.
"""

from __future__ import annotations

from typing import Any

from sacrebleu.metrics.ter import TER

from .languages import CHINESE, primary
from .sacre import SacreMetric

__all__ = ["UNSPACED", "ter"]

UNSPACED = CHINESE | {"ja", "jpn"}


def _make(language: str) -> TER:
    unspaced = primary(language) in UNSPACED
    return TER(normalized=unspaced, asian_support=unspaced)


def _detail(result: Any) -> dict[str, Any]:
    return {"edits": int(result.num_edits), "reference_words": float(result.ref_length)}


ter = SacreMetric("TER", "edits per 100 reference words", _make, _detail, higher_is_better=False)
