"""What a metric returns, and the checks that every metric makes before it looks at a line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..errors import DataError

__all__ = ["FEWEST", "PICKS", "Comparison", "Metric", "References", "Score", "checked", "resamples_for"]

References = Sequence[str] | Sequence[Sequence[str]]  # one reference a line, or several sets of them (set, then line)

PICKS = 30_000_000  # resamples x lines that a bootstrap may hold at once: about 2 GB for chrF, the widest statistics
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
    detail: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain JSON values; an interval is a list of two numbers or null."""
        return {
            "name": self.name,
            "value": self.value,
            "signature": self.signature,
            "unit": self.unit,
            "interval": list(self.interval) if self.interval else None,
            "higher_is_better": self.higher_is_better,
            "detail": dict(self.detail),
        }

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

    def to_dict(self) -> dict[str, Any]:
        """The same as plain JSON values."""
        return {
            "name": self.name,
            "baseline": self.baseline,
            "system": self.system,
            "difference": self.difference,
            "p_value": self.p_value,
            "interval": list(self.interval),
            "signature": self.signature,
            "higher_is_better": self.higher_is_better,
        }


class Metric(Protocol):
    """A metric is called like a function; `compare` runs the paired bootstrap of two systems with it."""

    def __call__(
        self, hypotheses: Sequence[str], references: References, *, language: str = "", resamples: int = 1000
    ) -> Score: ...

    def compare(
        self,
        baseline: Sequence[str],
        system: Sequence[str],
        references: References,
        *,
        language: str = "",
        resamples: int = 1000,
    ) -> Comparison: ...


def checked(hypotheses: Sequence[str], references: References) -> list[list[str]]:
    """The references as a list of sets, each as long as the hypotheses.

    Raises DataError for no lines, for unequal counts, and for one string where a sequence of lines belongs.
    """
    if isinstance(hypotheses, str) or isinstance(references, str):
        raise DataError("a metric takes a list of lines, not one string; put the line in a list.")
    if not hypotheses:
        raise DataError("there are no hypotheses (0 lines), so there is nothing to score; give at least one line.")
    sets = _sets(references)
    for number, lines in enumerate(sets, start=1):
        if len(lines) != len(hypotheses):
            which = "the references" if len(sets) == 1 else f"reference set {number}"
            raise DataError(
                f"{len(hypotheses)} hypotheses but {len(lines)} lines in {which}: every hypothesis needs its own "
                'reference; check that both come from the same source file and that "\\n" alone ends a line.'
            )
    return sets


def _sets(references: References) -> list[list[str]]:
    single = [line for line in references if isinstance(line, str)]
    return [single] if len(single) == len(references) else [list(lines) for lines in references]


def resamples_for(lines: int, asked: int) -> int:
    """The number of resamples that fits in memory: `asked`, fewer over very many lines, 0 where no interval can be."""
    allowed = min(asked, PICKS // max(lines, 1))
    return allowed if allowed >= FEWEST else 0
