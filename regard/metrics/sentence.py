"""Likeness of two single sentences, through sacrebleu, out of 100: what minimum Bayes risk compares outputs by."""

from __future__ import annotations

from collections.abc import Callable

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from .bleu import tokenizer_for

__all__ = ["SENTENCE", "likeness"]

SENTENCE: tuple[str, ...] = ("chrf", "bleu")


def likeness(name: str, language: str = "") -> Callable[[str, str], float]:
    """utility(hypothesis, reference): chrF, or BLEU of the n-grams that so short a text has (effective order)."""
    metric = CHRF() if name == "chrf" else BLEU(tokenize=tokenizer_for(language), effective_order=True)
    return lambda hypothesis, reference: float(metric.sentence_score(hypothesis, [reference]).score)
