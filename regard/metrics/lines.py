"""A metric that is a mean over lines, such as exact match, with its interval and its paired test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .bootstrap import SEED, interval_of, resampled, two_sided_p
from .result import FEWEST, Comparison, References, Score, checked, resamples_for

__all__ = ["LineMetric", "Lines"]

Lines = Callable[[Sequence[str], list[list[str]], str], tuple[list[float], str]]


@dataclass(frozen=True)
class LineMetric:
    """`lines(hypotheses, reference_sets, language)` gives a value from 0 to 1 for each line, and a signature."""

    name: str
    lines: Lines
    unit: str = "percent"

    def __call__(
        self, hypotheses: Sequence[str], references: References, *, language: str = "", resamples: int = 1000
    ) -> Score:
        """A hundred times the mean over lines; no interval when resamples is 0."""
        sets = checked(hypotheses, references)
        values, signature = self.lines(hypotheses, sets, language)
        percent = 100.0 * np.asarray(values, dtype=np.float64)
        kept = resamples_for(len(percent), resamples)
        draws = resampled(lambda rows: float(percent[rows].mean()), len(percent), kept)
        return Score(
            name=self.name,
            value=float(percent.mean()),
            signature=_signature(signature, len(sets), kept),
            unit=self.unit,
            interval=interval_of(draws) if kept else None,
            detail={"lines": len(percent)},
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
        before, signature = self.lines(baseline, sets, language)
        after, _ = self.lines(system, sets, language)
        first, second = 100.0 * np.asarray(before), 100.0 * np.asarray(after)
        change = second - first
        kept = max(FEWEST, resamples)
        draws = resampled(lambda rows: float(change[rows].mean()), len(change), kept)
        return Comparison(
            name=self.name,
            baseline=float(first.mean()),
            system=float(second.mean()),
            p_value=two_sided_p(draws, float(change.mean())),
            interval=interval_of(draws),
            signature=_signature(signature, len(sets), kept),
        )


def _signature(signature: str, references: int, resamples: int) -> str:
    drawn = f"|bs:{resamples}|seed:{SEED}" if resamples else ""
    return f"nrefs:{references}{drawn}|{signature}"
