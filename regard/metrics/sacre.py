"""A corpus metric of sacrebleu: its signature and interval (Post 2018), and a paired test on its line statistics."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sacrebleu.metrics.base import Metric as Implementation
from sacrebleu.metrics.base import Score as Result

from .bootstrap import SEED, Rows, Values, interval_of, resampled, two_sided_p
from .result import FEWEST, Comparison, References, Score, checked, resamples_for

__all__ = ["SacreMetric"]


@dataclass(frozen=True)
class SacreMetric:
    """`make(language)` gives sacrebleu's metric for a target language; `detail(result)` the figures worth keeping."""

    name: str
    unit: str
    make: Callable[[str], Implementation]
    detail: Callable[[Any], dict[str, Any]]
    higher_is_better: bool = True

    def __call__(
        self, hypotheses: Sequence[str], references: References, *, language: str = "", resamples: int = 1000
    ) -> Score:
        """The corpus score of detokenised hypotheses; no interval when resamples is 0."""
        sets = checked(hypotheses, references)
        metric = _plain(self.make(language))
        result = metric.corpus_score(list(hypotheses), sets, n_bootstrap=resamples_for(len(hypotheses), resamples))
        return Score(
            name=self.name,
            value=float(result.score),
            signature=str(metric.get_signature()),
            unit=self.unit,
            interval=_own_interval(result),
            higher_is_better=self.higher_is_better,
            detail=self.detail(result) | {"lines": len(hypotheses)},
        )

    def compare(
        self,
        baseline: Sequence[str],
        system: Sequence[str],
        references: References,
        *,
        language: str = "",
        resamples: int = 1000,
    ) -> Comparison:
        """Paired bootstrap (Koehn 2004) of `system` against `baseline` on the same lines, at least 100 resamples."""
        sets = checked(baseline, references)
        checked(system, references)
        metric = self.make(language)
        first, second = _statistics(metric, baseline, sets), _statistics(metric, system, sets)

        def change(rows: Rows) -> float:
            return _figure(metric, second[rows]) - _figure(metric, first[rows])

        before, after = _figure(metric, first), _figure(metric, second)
        kept = max(FEWEST, resamples)
        draws = resampled(change, len(first), kept)
        signature = metric.get_signature()
        signature.update("bs", kept)
        signature.update("seed", SEED)
        return Comparison(
            name=self.name,
            baseline=before,
            system=after,
            p_value=two_sided_p(draws, after - before),
            interval=interval_of(draws),
            signature=str(signature),
            higher_is_better=self.higher_is_better,
        )


def _plain(metric: Implementation) -> Implementation:
    """The metric with scores that are Python's floats.

    Of resamples, chrF gives float32, but Python's 0.0 where nothing matches, and sacrebleu's mean refuses a mix.
    """
    compute = metric._compute_score_from_stats

    def plainly(statistics: Any) -> Any:
        result = compute(statistics)
        result.score = float(result.score)
        return result

    metric._compute_score_from_stats = plainly  # type: ignore[method-assign, assignment]
    return metric


# sacrebleu has no public way to its statistics of single lines, the sums of which it scores; its own paired test calls
# these two methods, and tests/test_metrics_sacre.py holds the figures equal to corpus_score.
def _statistics(metric: Implementation, hypotheses: Sequence[str], sets: list[list[str]]) -> Values:
    return np.array(metric._extract_corpus_statistics(list(hypotheses), sets), dtype=np.float64)


def _figure(metric: Implementation, statistics: Values) -> float:
    return float(metric._compute_score_from_stats(list(statistics.sum(0))).score)


def _own_interval(result: Result) -> tuple[float, float] | None:
    """The 95 % interval that sacrebleu estimated: the resamples' mean, and half the width between their tails."""
    shown = json.loads(result.format(width=10, signature="of:sacrebleu", is_json=True))
    if "confidence_mean" not in shown:  # sacrebleu also leaves it out when every resample scored zero
        return None
    middle, half = float(shown["confidence_mean"]), float(shown["confidence_var"])
    return (middle - half, middle + half)
