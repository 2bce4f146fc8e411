"""Hypotheses and untouched references -> a score that carries its signature."""

from __future__ import annotations

from .bleu import bleu, tokenizer_for
from .chrf import chrf, chrf_plus_plus
from .exact_match import exact_match
from .lines import LineMetric
from .perplexity import Unit, perplexity
from .pronunciation import phoneme_error_rate, word_error_rate
from .result import Comparison, Metric, References, Score
from .rouge import rouge_1, rouge_2, rouge_l
from .sacre import SacreMetric
from .table import GROUPS, METRICS, paired_bootstrap, score
from .ter import ter

__all__ = [
    "GROUPS",
    "METRICS",
    "Comparison",
    "LineMetric",
    "Metric",
    "References",
    "SacreMetric",
    "Score",
    "Unit",
    "bleu",
    "chrf",
    "chrf_plus_plus",
    "exact_match",
    "paired_bootstrap",
    "perplexity",
    "phoneme_error_rate",
    "rouge_1",
    "rouge_2",
    "rouge_l",
    "score",
    "ter",
    "tokenizer_for",
    "word_error_rate",
]
