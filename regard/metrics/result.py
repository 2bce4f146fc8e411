"""What a metric is and what it returns: a score with its interval, and the paired test of two systems.

Lines are resampled with replacement, seeded: intervals (Efron 1979) and the paired test (Koehn 2004). The p-value is
two-sided: the resampled differences, moved so that their centre is 0, count when they are at least as large as the one
observed. sacrebleu 2.6 instead compares |difference| minus its mean, which calls two equal systems different about 12
times in 100 at p < 0.05, and gives identical outputs the smallest p there is; hence this one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from regard.errors import DataError

Lines = Sequence[str]
References = Lines | Sequence[Lines]  # one reference a line, or several sets of them (set, then line)
Values = NDArray[np.float64]
Rows = NDArray[np.int64]

SEED = 12345  # the default of sacrebleu, so that every interval of one report resamples alike
PICKS = 30_000_000  # resamples x lines that a bootstrap draws at most: a few seconds
FEWEST = 100  # below this many resamples the 2.5 % tails are a guess, so no interval is given


@dataclass(frozen=True)
class Score:
    """One figure with all that is needed to compare it: what made it, in what unit, how sure it is."""

    name: str
    value: float
    signature: str
    unit: str
    interval: tuple[float, float] | None = None  # 95 %, by bootstrap over lines
    higher_is_better: bool = True
    detail: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, object]:
        """The same as plain JSON values; an interval is a list of two numbers or null."""
        interval = list(self.interval) if self.interval else None
        return {**vars(self), "interval": interval, "detail": dict(self.detail)}

    def __str__(self) -> str:
        spread = f" [{self.interval[0]:.2f}, {self.interval[1]:.2f}]" if self.interval else ""
        return f"{self.name} {self.value:.2f}{spread} ({self.unit}; {self.signature})"


@dataclass(frozen=True)
class Comparison:
    """Two systems on the same lines; p_value is the chance of so large a difference between two equal systems."""

    name: str
    baseline: float
    system: float
    p_value: float
    interval: tuple[float, float]  # of the difference, 95 %
    signature: str
    higher_is_better: bool = True

    @property
    def difference(self) -> float:
        """System minus baseline, in the metric's own unit."""
        return self.system - self.baseline

    def to_dict(self) -> dict[str, object]:
        """The same as plain JSON values."""
        return {**vars(self), "difference": self.difference, "interval": list(self.interval)}


@dataclass(frozen=True)
class Counts:
    """What a metric has counted in each line, and how its figure follows from the sums over lines."""

    lines: Values  # (N lines, K counts of each)
    figure: Callable[[Values], float]  # the sums (K,) -> the metric's value
    signature: str  # what made the counts; its first field says how many references or lines there are
    detail: Mapping[str, Any] = field(default_factory=dict)  # other figures worth keeping

    def of(self, rows: Rows) -> float:
        """The figure of these lines alone."""
        return self.figure(self.lines[rows].sum(axis=0))


@dataclass(frozen=True)
class Metric:
    """Everything that the rest of the program needs to know of a metric; called with lines, it gives their score.

    `count(hypotheses, reference sets, language)` counts; the language, a code or "", may choose a tokenizer, which the
    signature then names. It is None where the figure is not made of hypotheses and references: `reads` says of what.
    """

    name: str  # as it is shown
    count: Callable[[Lines, list[list[str]], str], Counts] | None
    unit: str = "percent"
    higher_is_better: bool = True
    reads: Literal["text", "probabilities", "trees"] = "text"
    default: bool = False  # whether `regard evaluate` shows it where no metric is named

    def __call__(
        self, hypotheses: Lines, references: References, *, language: str = "", resamples: int = 1000
    ) -> Score:
        """The score of detokenised hypotheses; no interval where `resamples` is 0."""
        return self.score(self.counts(hypotheses, references, language), resamples)

    def score(self, counts: Counts, resamples: int = 1000) -> Score:
        """The score of what has been counted; the interval lies between percentiles of the resampled figures.

        There is none where every resample gives 0: no line was counted that could show how sure that is.
        """
        lines = len(counts.lines)
        kept = resamples_for(lines, resamples)
        draws = resampled(counts.of, lines, kept)
        return Score(
            self.name,
            counts.of(np.arange(lines)),
            _with_bootstrap(counts.signature, kept),
            self.unit,
            interval_of(draws) if draws.any() else None,
            self.higher_is_better,
            {**counts.detail, "lines": lines},
        )

    def compare(
        self, baseline: Lines, system: Lines, references: References, *, language: str = "", resamples: int = 1000
    ) -> Comparison:
        """Paired bootstrap (Koehn 2004) of `system` against `baseline` on the same lines, at least 100 resamples."""
        first, second = (self.counts(lines, references, language) for lines in (baseline, system))
        every = np.arange(len(baseline))
        before, after = first.of(every), second.of(every)
        kept = max(FEWEST, resamples)
        draws = resampled(lambda rows: second.of(rows) - first.of(rows), len(every), kept)
        p_value, signature = two_sided_p(draws, after - before), _with_bootstrap(first.signature, kept)
        return Comparison(self.name, before, after, p_value, interval_of(draws), signature, self.higher_is_better)

    def counts(self, hypotheses: Lines, references: References, language: str) -> Counts:
        """What is counted, references as a list of sets, each as long as the hypotheses.

        Raises DataError for no lines, for unequal counts, and for one string where a sequence of lines belongs.
        """
        if isinstance(hypotheses, str) or isinstance(references, str):
            raise DataError("a metric takes a list of lines, not one string; put the line in a list.")
        if not hypotheses:
            raise DataError("there are no hypotheses (0 lines), so there is nothing to score; give at least one line.")
        single = [line for line in references if isinstance(line, str)]
        sets = [single] if len(single) == len(references) else [list(lines) for lines in references]
        for number, lines in enumerate(sets, start=1):
            if len(lines) != len(hypotheses):
                which = "the references" if len(sets) == 1 else f"reference set {number}"
                raise DataError(
                    f"{len(hypotheses)} hypotheses but {len(lines)} lines in {which}: every hypothesis needs its own "
                    'reference; check that both come from the same source file and that "\\n" alone ends a line.'
                )
        if self.count is None:
            raise DataError(f"{self.name} is measured on {self.reads}, not on hypotheses and references; leave it out.")
        return self.count(hypotheses, sets, language)


def rate(counted: Sequence[float], total: Sequence[float] | None, references: int, signature: str) -> Counts:
    """Counts whose figure is a hundred times what is counted over what there is; without a total, over the lines."""
    each = np.array([counted, [1.0] * len(counted) if total is None else total], dtype=np.float64).T
    # Where every reference drawn is empty, only what was written all the same can be wrong.
    return Counts(each, lambda sums: 100.0 * float(sums[0] / max(1.0, sums[1])), f"nrefs:{references}|{signature}")


def resampled(figure: Callable[[Rows], float], lines: int, resamples: int, seed: int = SEED) -> Values:
    """`figure` of each of `resamples` draws, given as `lines` row numbers; the same seed draws the same rows."""
    generator = np.random.default_rng(seed)
    # One draw at a time: a thousand draws of a million lines at once would be 8 GB of row numbers.
    return np.array([figure(generator.integers(lines, size=lines)) for _ in range(resamples)], dtype=np.float64)


def resamples_for(lines: int, asked: int) -> int:
    """The number of resamples that are affordable: `asked`, fewer over very many lines, 0 where no interval can be."""
    allowed = min(asked, PICKS // max(lines, 1))
    return allowed if allowed >= FEWEST else 0


def interval_of(draws: Values) -> tuple[float, float]:
    """The 2.5th and the 97.5th percentile."""
    low, high = np.percentile(draws, [2.5, 97.5])
    return (float(low), float(high))


def two_sided_p(differences: Values, observed: float) -> float:
    """The chance of a difference as large as `observed` between equal systems; 1 for identical outputs, never 0."""
    return float((np.sum(np.abs(differences - observed) >= abs(observed)) + 1) / (len(differences) + 1))


def _with_bootstrap(signature: str, resamples: int) -> str:
    first, bar, rest = signature.partition("|")
    return f"{first}|bs:{resamples}|seed:{SEED}{bar}{rest}" if resamples else signature
