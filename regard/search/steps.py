"""Step functions made of step functions: several models as one, few tokens out of many, and what has been read.

Sizes: B sentences, N rows, S source tokens, V vocabulary, U tokens that are in any sentence's list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from .arrays import Array, Indices, Numbers, log_mean, log_softmax, masked, numpy
from .hypotheses import StepFunction

if TYPE_CHECKING:
    from regard.nn.state import State

# -- several models ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Together:
    """A state of each member of an ensemble, row by row the same hypotheses."""

    members: tuple[State, ...]

    def select(self, rows: Array) -> Together:
        return Together(tuple(member.select(rows) for member in self.members))


def ensemble(steps: Sequence[StepFunction[State]], average: str = "probabilities") -> StepFunction[Together]:
    """The members' mean: of probabilities, or of "logs" (the geometric mean, scaled so that it sums to one)."""

    def step(tokens: Array, state: Together) -> tuple[Array, Together]:
        found = [member(tokens, s) for member, s in zip(steps, state.members, strict=True)]
        each = [log_probabilities for log_probabilities, _ in found]  # of each member, (N, V)
        mean = log_softmax(sum(each) / len(each)) if average == "logs" else log_mean(each)
        return mean, Together(tuple(s for _, s in found))

    return step


# -- shortlists --------------------------------------------------------------------------------------------------------

# Of each sentence, the tokens that it may be written with: in order, each once, the end among them.
Lists = Sequence[NDArray[np.int32]]


@dataclass(frozen=True)
class MaskedState:
    """A state, and the sentence whose list each of its rows has."""

    inner: State
    sentences: Indices  # (N,)

    def select(self, rows: Array) -> MaskedState:
        return MaskedState(self.inner.select(rows), self.sentences[numpy(rows)])


def shortlist_union(lists: Lists) -> Indices:
    """The tokens that are in any of the lists (U,), in order."""
    return np.unique(np.concatenate(lists)).astype(np.int64)


def masked_step(
    step: Callable[[Array, State], Array], state: State, lists: Lists, vocabulary: int
) -> tuple[Callable[[Array, MaskedState], Array], MaskedState]:
    """A step function over `shortlist_union(lists)`, (N, U), as one over all tokens (N, V); and its first state.

    Log-probabilities are those among the tokens of the sentence's own list, -inf for all others; so a sentence does not
    depend on those that are translated with it. What else the step returns is handed on.
    """
    allowed = shortlist_union(lists)
    has = np.stack([np.isin(allowed, each) for each in lists])

    def own(tokens: Array, state: MaskedState) -> Array:
        found, inner, *more = step(tokens, state.inner)  # (N, U)
        kept = log_softmax(masked(found, has[state.sentences]))
        every = np.full((len(kept), vocabulary), -np.inf, kept.dtype)  # (N, V)
        every[:, allowed] = kept
        return every, MaskedState(inner, state.sentences), *more

    return own, MaskedState(state, np.arange(len(lists)))


# -- coverage ----------------------------------------------------------------------------------------------------------

LookingStep = Callable[[Array, "State"], tuple[Array, "State", Array]]
"""A step function that also returns where it looked: weights (N, S) that sum to one."""

_LEAST = 1e-9  # what a token that nobody looked at counts as having, since the logarithm of 0 would forbid it


@dataclass(frozen=True)
class Covered:
    """A state and the weights that its rows have given to the source so far."""

    inner: State
    looked: Numbers  # (N, S)
    present: NDArray[np.bool_]  # (N, S); false beyond a source's end

    def select(self, rows: Array) -> Covered:
        index = numpy(rows)
        return Covered(self.inner.select(rows), self.looked[index], self.present[index])


def covered(step: LookingStep, state: State, lengths: Sequence[int]) -> tuple[StepFunction[Covered], Covered]:
    """The step function over states that remember where it looked, and the first one, of sources of these lengths."""

    def remembering(tokens: Array, state: Covered) -> tuple[Array, Covered]:
        log_probabilities, inner, weights = step(tokens, state.inner)
        return log_probabilities, Covered(inner, state.looked + numpy(weights), state.present)

    present = np.arange(max(lengths)) < np.array(lengths)[:, None]
    return remembering, Covered(state, np.zeros(present.shape), present)


def coverage_penalty(state: Covered, beta: float) -> Numbers:
    """beta · Σ_i log min(Σ_j p_ij, 1) over source tokens i and target tokens j (N,); at most 0.

    A hypothesis that leaves source tokens unread is ranked lower (Wu et al. 2016, equation 14).
    """
    return cast(Numbers, beta * np.where(state.present, np.log(state.looked.clip(_LEAST, 1.0)), 0.0).sum(-1))
