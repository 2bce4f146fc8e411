"""Step functions made of step functions: several models as one, few tokens out of many, and what has been read.

Sizes: B sentences, N rows, S source tokens, V vocabulary, U tokens that are in any sentence's list.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.nn.state import State

from .hypotheses import StepFunction

# -- several models ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Together:
    """A state of each member of an ensemble, row by row the same hypotheses."""

    members: tuple[State, ...]

    def select(self, rows: Tensor) -> Together:
        return Together(tuple(member.select(rows) for member in self.members))


def ensemble(steps: Sequence[StepFunction[State]], average: str = "probabilities") -> StepFunction[Together]:
    """The members' mean: of probabilities, or of "logs" (the geometric mean, scaled so that it sums to one)."""

    def step(tokens: Tensor, state: Together) -> tuple[Tensor, Together]:
        found = [member(tokens, s) for member, s in zip(steps, state.members, strict=True)]
        each = torch.stack([log_probabilities for log_probabilities, _ in found])  # (members, N, V)
        mean = each.mean(0).log_softmax(-1) if average == "logs" else each.logsumexp(0) - math.log(len(steps))
        return mean, Together(tuple(s for _, s in found))

    return step


# -- shortlists --------------------------------------------------------------------------------------------------------

# Of each sentence, the tokens that it may be written with: in order, each once, the end among them.
Lists = Sequence[NDArray[np.int32]]


@dataclass(frozen=True)
class MaskedState:
    """A state, and the sentence whose list each of its rows has."""

    inner: State
    sentences: Tensor  # (N,)

    def select(self, rows: Tensor) -> MaskedState:
        return MaskedState(self.inner.select(rows), self.sentences.index_select(0, rows))


def shortlist_union(lists: Lists, device: torch.device) -> Tensor:
    """The tokens that are in any of the lists (U,), in order."""
    return torch.from_numpy(np.unique(np.concatenate(lists)).astype(np.int64)).to(device)


def start_masked(state: State, lists: Lists, device: torch.device) -> MaskedState:
    """The state before the first token, whose rows are the sentences."""
    return MaskedState(state, torch.arange(len(lists), device=device))


def masked_step(
    step: StepFunction[State], lists: Lists, vocabulary: int, device: torch.device
) -> StepFunction[MaskedState]:
    """A step function over `shortlist_union(lists)`, (N, U), as one over all tokens (N, V).

    Log-probabilities are those among the tokens of the sentence's own list, -inf for all others; so a sentence does not
    depend on those that are translated with it.
    """
    allowed = shortlist_union(lists, device)
    has = torch.stack([torch.isin(allowed, torch.from_numpy(each.astype(np.int64)).to(device)) for each in lists])

    def own(tokens: Tensor, state: MaskedState) -> tuple[Tensor, MaskedState]:
        found, inner = step(tokens, state.inner)  # (N, U)
        kept = found.masked_fill(~has[state.sentences], float("-inf")).log_softmax(-1)
        every = kept.new_full((len(kept), vocabulary), float("-inf"))  # (N, V)
        return every.index_copy_(1, allowed, kept), MaskedState(inner, state.sentences)

    return own


# -- coverage ----------------------------------------------------------------------------------------------------------

LookingStep = Callable[[Tensor, State], tuple[Tensor, State, Tensor]]
"""A step function that also returns where it looked: weights (N, S) that sum to one."""

_LEAST = 1e-9  # what a token that nobody looked at counts as having, since the logarithm of 0 would forbid it


@dataclass(frozen=True)
class Covered:
    """A state and the weights that its rows have given to the source so far."""

    inner: State
    looked: Tensor  # (N, S)
    present: Tensor  # (N, S); false beyond a source's end

    def select(self, rows: Tensor) -> Covered:
        return Covered(self.inner.select(rows), self.looked.index_select(0, rows), self.present.index_select(0, rows))


def covered_step(step: LookingStep) -> StepFunction[Covered]:
    """The step function over states that remember where it looked."""

    def remembering(tokens: Tensor, state: Covered) -> tuple[Tensor, Covered]:
        log_probabilities, inner, weights = step(tokens, state.inner)
        return log_probabilities, Covered(inner, state.looked + weights, state.present)

    return remembering


def coverage_penalty(state: Covered, beta: float) -> Tensor:
    """beta · Σ_i log min(Σ_j p_ij, 1) over source tokens i and target tokens j (N,); at most 0.

    A hypothesis that leaves source tokens unread is ranked lower (Wu et al. 2016, equation 14).
    """
    logs = state.looked.double().clamp(_LEAST, 1.0).log()
    return beta * logs.masked_fill(~state.present, 0.0).sum(-1)
