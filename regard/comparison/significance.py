"""Paired tests of systems against a baseline, by sacrebleu's own code: its figures, for every metric of METRICS.

Bootstrap: Koehn 2004. Approximate randomisation: Riezler and Maxwell 2005. sacrebleu's bootstrap gives identical
outputs the smallest p there is; `regard.metrics.paired_bootstrap` does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

from regard.errors import DataError, install
from regard.metrics import Counts
from regard.metrics.result import Values

MOST = 100_000_000  # samples x lines: what sacrebleu's tests hold in memory grows with both


@dataclass(frozen=True)
class Tested:
    """A system's figure; mean and half of the 95 % interval by bootstrap; p against the baseline, which has none."""

    score: float
    p: float | None = None
    mean: float | None = None
    half: float | None = None


class _Counted:
    """Counts in the shape in which sacrebleu's tests ask a metric."""

    def __init__(self, counts: Counts) -> None:
        self.counts = counts

    def _extract_corpus_statistics(self, hypotheses: Sequence[str], references: object) -> Values:
        return self.counts.lines

    def _compute_score_from_stats(self, sums: Values) -> SimpleNamespace:
        return SimpleNamespace(score=self.counts.figure(sums))

    def _aggregate_and_compute(self, lines: Values) -> SimpleNamespace:
        return self._compute_score_from_stats(np.asarray(lines).sum(axis=0))


def paired(counted: Sequence[Counts], test: str, samples: int, seed: int) -> list[Tested]:
    """Each system's result, the baseline's first. Raises DataError for more samples than fit into memory."""
    try:
        from sacrebleu.significance import Result, _paired_ar_test, _paired_bs_test
    except ModuleNotFoundError:
        raise DataError(f"comparing needs sacrebleu, which is not installed: {install('metrics')}.") from None
    lines = len(counted[0].lines)
    if samples * lines > MOST:
        raise DataError(
            f"{samples:,} samples of {lines:,} lines are more than memory holds; --samples must be at most "
            f"{MOST // lines:,}."
        )
    run = _paired_bs_test if test == "bootstrap" else _paired_ar_test
    known = Result(_Counted(counted[0])._aggregate_and_compute(counted[0].lines).score)
    found = []
    for number, each in enumerate(counted):
        if number == 0 and test != "bootstrap":
            found.append(Tested(known.score))
            continue
        names = [""] * lines
        metrics = {"it": _Counted(each)}
        _, results = run({"it": (counted[0].lines, known)}, "", names, None, metrics, samples, -1, seed)  # type: ignore[arg-type]  # of the same shape
        made = results["it"]
        found.append(Tested(float(made.score), made.p_value if number else None, made.mean, made.ci))
    return found
