"""The metrics by name, and the questions asked of them: how good is it, and is one system better than another."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

from regard.errors import DataError
from regard.extensions import HINT, load_installed

from .lines import exact_match, phoneme_error_rate, rouge_1, rouge_2, rouge_l, word_error_rate
from .moses import MOSES
from .result import Comparison, Metric, References, Score
from .sacre import bleu, chrf, chrf_plus_plus, ter

Unit = Literal["token", "word", "character"]

METRICS: dict[str, Metric] = {
    "bleu": bleu,
    "chrf": chrf,
    "chrf++": chrf_plus_plus,
    "ter": ter,
    **MOSES,
    "rouge-1": rouge_1,
    "rouge-2": rouge_2,
    "rouge-l": rouge_l,
    "exact-match": exact_match,
    "per": phoneme_error_rate,
    "wer": word_error_rate,
    "perplexity": Metric("perplexity", None, "per token", higher_is_better=False, reads="probabilities", default=True),
    "brackets": Metric("bracket F1", None, reads="trees"),  # see `regard.parsing.brackets`
}
GROUPS: dict[str, tuple[str, ...]] = {"rouge": ("rouge-1", "rouge-2", "rouge-l")}


def score(
    hypotheses: Sequence[str],
    references: References,
    metrics: Iterable[str] = ("bleu", "chrf"),
    *,
    language: str = "",
    resamples: int = 1000,
) -> dict[str, Score]:
    """The score of detokenised hypotheses against the references as they are, by the name of each metric.

    `language` is the target's code; `resamples` = 0 leaves out the intervals. Raises DataError for an unknown name,
    unequal line counts and empty input.
    """
    return {
        name: METRICS[name](hypotheses, references, language=language, resamples=resamples)
        for name in metric_names(metrics)
    }


def paired_bootstrap(
    baseline: Sequence[str],
    system: Sequence[str],
    references: References,
    metrics: Iterable[str] = ("bleu",),
    *,
    language: str = "",
    resamples: int = 1000,
) -> dict[str, Comparison]:
    """Whether `system` differs from `baseline` by more than the choice of lines explains, by metric name."""
    return {
        name: METRICS[name].compare(baseline, system, references, language=language, resamples=resamples)
        for name in metric_names(metrics)
    }


def metric_names(metrics: Iterable[str] = ()) -> list[str]:
    """The metrics that are named, groups taken apart and each once; none named: the default ones.

    Raises DataError for a name that there is not, installed extensions included.
    """
    asked = [metrics] if isinstance(metrics, str) else list(metrics)
    asked = asked or [name for name, metric in METRICS.items() if metric.default]
    names = [name for ask in asked for name in GROUPS.get(ask, (ask,))]
    for name in names:
        if name not in METRICS and not (load_installed() and name in METRICS):
            known = ", ".join([*METRICS, *GROUPS])
            raise DataError(f"there is no metric named {name!r}; choose from {known}; {HINT}.")
    return list(dict.fromkeys(names))


def perplexity(log_probability: float, count: int, unit: Unit = "token", *, ends_counted: bool = True) -> Score:
    """exp(-log p / count) of a text whose summed natural log-probability and number of units are given.

    Figures of different units do not compare. `ends_counted` says whether the end of each line is in both. Raises
    DataError for no units, and for a sum that is not a log-probability (positive or not a number).
    """
    if count < 1:
        raise DataError(f"perplexity over {count} {unit}s is undefined; give at least one line of text.")
    if math.isnan(log_probability) or log_probability > 0:
        raise DataError(
            f"{log_probability} is not a summed log-probability, which is 0 at most; "
            "if it came from a model, its training has diverged: go back to an earlier checkpoint."
        )
    nats = -log_probability / count
    try:
        value = math.exp(nats)
    except OverflowError:  # beyond 709 nats
        value = math.inf
    signature = f"unit:{unit}|ends:{'yes' if ends_counted else 'no'}"
    detail = {"count": count, "nats": nats, "bits": nats / math.log(2)}
    return Score("perplexity", value, signature, f"per {unit}", higher_is_better=False, detail=detail)
