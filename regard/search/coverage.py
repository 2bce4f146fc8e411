"""Coverage penalty: a hypothesis that leaves source tokens unread is ranked lower (Wu et al. 2016, equation 14).

Sizes: N rows, S source tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from .hypotheses import Step

__all__ = ["Covered", "LookingStep", "coverage_penalty", "covered"]

LookingStep = Callable[[Tensor, Any], tuple[Tensor, Any, Tensor]]
"""A step function that also returns where it looked: weights (N, S) that sum to one."""

_LEAST = 1e-9
"""What a token that nobody looked at counts as having, since the logarithm of 0 would forbid it."""


@dataclass(frozen=True)
class Covered:
    """A state and the weights that its rows have given to the source so far."""

    inner: Any
    looked: Tensor  # (N, S)
    present: Tensor  # (N, S); false beyond a source's end

    def select(self, rows: Tensor) -> Covered:
        return Covered(self.inner.select(rows), self.looked.index_select(0, rows), self.present.index_select(0, rows))


def covered(step: LookingStep) -> Step[Covered]:
    """The step function over states that remember where it looked."""

    def remembering(tokens: Tensor, state: Covered) -> tuple[Tensor, Covered]:
        log_probabilities, inner, weights = step(tokens, state.inner)
        return log_probabilities, Covered(inner, state.looked + weights, state.present)

    return remembering


def coverage_penalty(state: Covered, beta: float) -> Tensor:
    """beta · Σ_i log min(Σ_j p_ij, 1) over source tokens i and target tokens j (N,); at most 0."""
    logs = state.looked.double().clamp(_LEAST, 1.0).log()
    return beta * logs.masked_fill(~state.present, 0.0).sum(-1)
