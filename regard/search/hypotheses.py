"""What every search is given and gives back.

Sizes: B sentences, N rows, V vocabulary. Log-probabilities are natural logarithms; higher is better.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from .arrays import Array, Indices, Numbers, like

if TYPE_CHECKING:
    from regard.nn.state import State

S = TypeVar("S", bound="State")
R = TypeVar("R")
Stop = TypeVar("Stop")

StepFunction = Callable[[Array, S], tuple[Array, S]]
"""The last token of each row (N,) and a state -> log-probabilities of the next token (N, V) and the state after it.

All are NumPy's arrays, or all PyTorch's tensors: as the problem's `first` is. `regard.search.arrays` reads both."""

Bonus = Callable[[S], Numbers]
"""A state -> what is added to the score of a hypothesis that finishes in it (N,), at most 0."""

Choose = Callable[[Array, Numbers, int, S], tuple[Numbers, Indices]]
"""Log-probabilities (B·K, V), totals (B, K), a number and the state after the step -> that many candidates of each
sentence, those that go on first in front: their totals (B, number) and indices into K·V."""


@dataclass(frozen=True)
class Problem(Generic[S]):
    """Sentences to be continued from their first token, and what ends, ranks and chooses hypotheses.

    A hypothesis finishes with `end`, or is cut at max_length[sentence] tokens, the end counted. It is ranked by
    log-probability / penalty(length) (see `Penalty` in table.py), plus `bonus` of the state that finished it.
    """

    step: StepFunction[S]
    state: S  # with a row for each sentence
    first: Array  # (B,), the token that each sentence starts from, in NumPy or PyTorch
    max_length: Array  # (B,)
    end: int
    penalty: Callable[[int], float] = lambda length: 1.0
    bonus: Bonus[S] | None = None
    choose: Choose[S] | None = None  # which candidates of a beam go on; None: the likeliest
    lines: Sequence[int] = ()  # of each sentence, by which draws and messages go; empty: they are lines 1 and on

    def select(self, rows: Indices) -> Problem[S]:
        """The problem whose row i is this problem's row `rows[i]`; rows may repeat. Lines are left out."""
        given, limits = like(self.first, rows), self.max_length[rows]
        return replace(self, state=self.state.select(given), first=self.first[given], max_length=limits, lines=())

    def line(self, sentence: int) -> int:
        """The line number of a sentence."""
        return self.lines[sentence] if self.lines else sentence + 1


@dataclass(frozen=True)
class Hypothesis:
    """One finished sequence: its ids without begin and end, its log-probability, and the score it was ranked by."""

    ids: list[int]
    log_probability: float
    score: float
    ended: bool  # False where the length limit cut it off


def run_through(steps: Generator[Stop, None, R], seen: Callable[[Stop], object] = lambda stop: None) -> R:
    """What a search returns that stops after every step to show where it stands, to `seen`."""
    while True:
        try:
            seen(next(steps))
        except StopIteration as finished:
            return cast(R, finished.value)


def expected_utilities(outputs: Sequence[str], utility: Callable[[str, str], float]) -> list[float]:
    """The mean of utility(output, other) over all outputs, itself among them; the best output is the one with most.

    Minimum Bayes risk (Kumar and Byrne 2004). Samples come as often as the model finds them likely, so the mean is the
    expectation (Eikema and Aziz 2020).
    """
    counts = Counter(outputs)
    values = {one: sum(utility(one, other) * n for other, n in counts.items()) / len(outputs) for one in counts}
    return [values[output] for output in outputs]
