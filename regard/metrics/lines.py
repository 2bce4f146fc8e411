"""A metric that is counted line by line, such as exact match or errors a symbol, with its interval and paired test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .bootstrap import SEED, Rows, Values, interval_of, resampled, two_sided_p
from .result import FEWEST, Comparison, References, Score, checked, resamples_for

__all__ = ["LineMetric", "Lines"]

Lines = Callable[[Sequence[str], list[list[str]], str], tuple[list[float], list[float], str]]


@dataclass(frozen=True)
class LineMetric:
    """`lines(hypotheses, reference_sets, language)` gives for each line what is counted and out of how much, and a
    signature; out of 1 each, the metric is a mean over lines."""

    name: str
    lines: Lines
    unit: str = "percent"
    higher_is_better: bool = True

    def __call__(
        self, hypotheses: Sequence[str], references: References, *, language: str = "", resamples: int = 1000
    ) -> Score:
        """A hundred times the sum of what is counted over the sum of the rest; no interval when resamples is 0."""
        sets = checked(hypotheses, references)
        counted, total, signature = self.lines(hypotheses, sets, language)
        figure = _rate(counted, total)
        kept = resamples_for(len(counted), resamples)
        draws = resampled(figure, len(counted), kept)
        return Score(
            name=self.name,
            value=figure(np.arange(len(counted))),
            signature=_signature(signature, len(sets), kept),
            unit=self.unit,
            interval=interval_of(draws) if kept else None,
            higher_is_better=self.higher_is_better,
            detail={"lines": len(counted)},
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
        """Paired bootstrap of `system` against `baseline` on the same lines, at least 100 resamples."""
        sets = checked(baseline, references)
        checked(system, references)
        before, total, signature = self.lines(baseline, sets, language)
        after, other, _ = self.lines(system, sets, language)
        first, second = _rate(before, total), _rate(after, other)
        every = np.arange(len(before))
        kept = max(FEWEST, resamples)
        draws = resampled(lambda rows: second(rows) - first(rows), len(before), kept)
        return Comparison(
            name=self.name,
            baseline=first(every),
            system=second(every),
            p_value=two_sided_p(draws, second(every) - first(every)),
            interval=interval_of(draws),
            signature=_signature(signature, len(sets), kept),
            higher_is_better=self.higher_is_better,
        )


def _rate(counted: Sequence[float], total: Sequence[float]) -> Callable[[Rows], float]:
    one: Values = np.asarray(counted, dtype=np.float64)
    all_: Values = np.asarray(total, dtype=np.float64)
    # Where every reference drawn is empty there is nothing to be wrong about, but for what was written all the same.
    return lambda rows: 100.0 * float(one[rows].sum() / max(1.0, all_[rows].sum()))


def _signature(signature: str, references: int, resamples: int) -> str:
    drawn = f"|bs:{resamples}|seed:{SEED}" if resamples else ""
    return f"nrefs:{references}{drawn}|{signature}"
