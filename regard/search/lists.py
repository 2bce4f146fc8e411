"""Shortlists: a step function over a few tokens as one over the whole vocabulary, each sentence over its own.

Sizes: B sentences, N rows, V vocabulary, U tokens that are in any sentence's list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .hypotheses import Step

__all__ = ["Lists", "MaskedState", "listed", "shortlist_union", "start_masked"]

Lists = Sequence[NDArray[np.int32]]
"""Of each sentence, the tokens that it may be written with: in order, each once, the end among them."""


@dataclass(frozen=True)
class MaskedState:
    """A state, and whose list each of its rows has."""

    inner: Any
    sentences: Tensor  # (N,)

    def select(self, rows: Tensor) -> MaskedState:
        return MaskedState(self.inner.select(rows), self.sentences.index_select(0, rows))


def shortlist_union(lists: Lists, device: torch.device) -> Tensor:
    """What is in any of the lists (U,), in order."""
    return torch.from_numpy(np.unique(np.concatenate(lists)).astype(np.int64)).to(device)


def start_masked(state: Any, lists: Lists, device: torch.device) -> MaskedState:
    """The state before the first token, whose rows are the sentences."""
    return MaskedState(state, torch.arange(len(lists), device=device))


def listed(step: Step[Any], lists: Lists, vocabulary: int, device: torch.device) -> Step[MaskedState]:
    """A step function over `shortlist_union(lists)`, (N, U), as one over all tokens (N, V).

    Log-probabilities are those among the tokens of the sentence's own list, -inf for all others; so a sentence does not
    depend on those that are translated with it.
    """
    allowed = shortlist_union(lists, device)
    has = torch.stack([torch.isin(allowed, torch.from_numpy(each.astype(np.int64)).to(device)) for each in lists])

    def keeping(tokens: Tensor, state: MaskedState) -> tuple[Tensor, MaskedState]:
        found, inner = step(tokens, state.inner)  # (N, U)
        own = found.masked_fill(~has[state.sentences], float("-inf")).log_softmax(-1)
        every = own.new_full((len(own), vocabulary), float("-inf"))  # (N, V)
        return every.index_copy_(1, allowed, own), MaskedState(inner, state.sentences)

    return keeping
