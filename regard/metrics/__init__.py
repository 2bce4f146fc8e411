"""Hypotheses and untouched references -> a score that carries its signature."""

from __future__ import annotations

from .lines import exact_match, phoneme_error_rate, rouge_1, rouge_2, rouge_l, word_error_rate
from .result import Comparison, Counts, Metric, References, Score, rate
from .sacre import bleu, chrf, chrf_plus_plus, likeness, ter, tokenizer_for
from .table import GROUPS, METRICS, Unit, metric_names, paired_bootstrap, perplexity, score

__all__ = ["GROUPS", "METRICS", "Comparison", "Counts", "Metric", "References", "Score", "Unit", "bleu", "chrf"]
__all__ += ["chrf_plus_plus", "exact_match", "likeness", "metric_names", "paired_bootstrap", "perplexity"]
__all__ += ["phoneme_error_rate", "rate", "rouge_1", "rouge_2", "rouge_l", "score", "ter", "tokenizer_for"]
__all__ += ["word_error_rate"]
