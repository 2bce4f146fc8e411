"""chrF (Popović 2015): F2 of character 1- to 6-grams through sacrebleu; chrF++ (2017) adds words and word pairs."""

from __future__ import annotations

from typing import Any

from sacrebleu.metrics.chrf import CHRF

from .sacre import SacreMetric

__all__ = ["chrf", "chrf_plus_plus"]


def _characters(language: str) -> CHRF:
    return CHRF()


def _characters_and_words(language: str) -> CHRF:
    return CHRF(word_order=2)


def _detail(result: Any) -> dict[str, Any]:
    return {"beta": int(result.beta)}


chrf = SacreMetric("chrF", "points of 100", _characters, _detail)
chrf_plus_plus = SacreMetric("chrF++", "points of 100", _characters_and_words, _detail)
