"""The metrics by name, and the two questions asked of them: how good is it, and is one system better than another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..errors import DataError
from ..extensions import HINT, load_installed
from .lines import exact_match, phoneme_error_rate, word_error_rate
from .result import Comparison, Metric, References, Score
from .rouge import rouge_1, rouge_2, rouge_l
from .sacre import bleu, chrf, chrf_plus_plus, ter

METRICS: dict[str, Metric] = {
    "bleu": bleu,
    "chrf": chrf,
    "chrf++": chrf_plus_plus,
    "ter": ter,
    "rouge-1": rouge_1,
    "rouge-2": rouge_2,
    "rouge-l": rouge_l,
    "exact-match": exact_match,
    "per": phoneme_error_rate,
    "wer": word_error_rate,
    "perplexity": Metric(
        "perplexity", None, unit="per token", higher_is_better=False, reads="probabilities", default=True
    ),
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
