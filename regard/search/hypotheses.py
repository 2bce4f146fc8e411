"""What every search is given and gives back.

Sizes: B sentences, K hypotheses a sentence, V vocabulary. Log-probabilities are natural logarithms; higher is better.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import ParamSpec, TypeVar

from torch import Tensor

from regard.errors import NOT_FINITE, ModelError
from regard.nn.state import State

__all__ = ["Bonus", "Hypothesis", "R", "S", "Step", "check_found", "run_through"]

S = TypeVar("S", bound=State)
R = TypeVar("R")
P = ParamSpec("P")

Step = Callable[[Tensor, S], tuple[Tensor, S]]
"""The last token of each row (N,) and a state -> log-probabilities of the next token (N, V) and the state after it."""

Bonus = Callable[[S], Tensor]
"""A state -> what is added to the score of a hypothesis that finishes in it (N,), at most 0."""


@dataclass(frozen=True)
class Hypothesis:
    """One finished sequence: its ids without begin and end, its log-probability, and the score it was ranked by."""

    ids: list[int]
    log_probability: float
    score: float
    ended: bool
    """False where the length limit cut it off."""


def run_through(steps: Callable[P, Generator[object, None, R]]) -> Callable[P, R]:
    """The search that `steps` shows step by step, as one call."""

    @wraps(steps)
    def search(*args: P.args, **kwargs: P.kwargs) -> R:
        going = steps(*args, **kwargs)
        while True:
            try:
                next(going)
            except StopIteration as finished:
                return finished.value  # type: ignore[no-any-return]

    return search


def check_found(hypotheses: Sequence[Hypothesis], line: int) -> None:
    """Raises ModelError where a line has no translation: its rules forbid all, or the weights are not numbers."""
    scores = [each.log_probability for each in hypotheses]
    if any(map(math.isnan, scores)):
        raise ModelError(NOT_FINITE)
    if not scores or -math.inf in scores:
        raise ModelError(
            f"line {line}: no translation keeps all of its rules within the length limit; loosen one, or raise "
            "max_length or extra_length."
        )
