"""What is handed in and out of a forward pass and never kept on a module: the decoding state, and an observer.

Sizes: B rows (sentences or hypotheses), H heads, T queries, S keys so far, D key or value width.
What Bahdanau pre-computes and what GPT caches is the same thing: the keys after the score's own projection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, Self

import torch
from torch import Tensor

from .layout import Layout


class State(Protocol):
    """What a decoder needs to go on. A state is spent once passed in: a fixed cache is written in place."""

    def select(self, rows: Tensor) -> Self:
        """The state whose row i is this state's row ``rows[i]``; rows may repeat or be left out."""
        ...


@dataclass(frozen=True)
class KeysValues:
    """Prepared keys (B, H, S, Dk) and values (B, H, S, Dv)."""

    keys: Tensor
    values: Tensor
    layout: Layout | None = None
    """Where their sequences lie; None: as the queries' do."""

    def select(self, rows: Tensor) -> KeysValues:
        return KeysValues(self.keys.index_select(0, rows), self.values.index_select(0, rows))


@dataclass(frozen=True)
class Cache:
    """Keys and values of the tokens so far: growing when `capacity` is None, else a fixed block, written in place."""

    stored: KeysValues | None = None
    length: int = 0
    capacity: int | None = None

    def append(self, keys: Tensor, values: Tensor) -> Cache:
        """The cache with T more tokens, keys (B, H, T, Dk) and values (B, H, T, Dv)."""
        length = self.length + keys.shape[2]
        if self.capacity is None:
            if self.stored is None:
                return Cache(KeysValues(keys, values), length)
            past = self.stored
            return Cache(KeysValues(torch.cat((past.keys, keys), 2), torch.cat((past.values, values), 2)), length)
        stored = self.stored
        if stored is None:
            room = [x.new_zeros(*x.shape[:2], self.capacity, x.shape[3]) for x in (keys, values)]
            stored = KeysValues(room[0], room[1])
        stored.keys[:, :, self.length : length] = keys
        stored.values[:, :, self.length : length] = values
        return Cache(stored, length, self.capacity)

    def filled(self) -> KeysValues:
        """The keys and values of the tokens so far."""
        assert self.stored is not None
        if self.capacity is None:
            return self.stored
        return KeysValues(self.stored.keys[:, :, : self.length], self.stored.values[:, :, : self.length])

    def select(self, rows: Tensor) -> Cache:
        return Cache(None if self.stored is None else self.stored.select(rows), self.length, self.capacity)


Part = Literal["encoder", "decoder", "cross"]
"""Whose attention: of what is read to itself, of what is written to itself, or of what is written to what is read."""

AuxiliaryLoss = Callable[[Tensor, Tensor], Tensor]
"""Losses (B,) and tokens (B,) -> what a part of the model adds to the summed loss of a pass in training.

The losses are each line's own, summed over its tokens, and have no gradient.
"""


class Observer:
    """Collects the attention weights of the parts that it is made for, and the auxiliary losses of all parts."""

    def __init__(self, *parts: Part) -> None:
        self.weights: dict[Part, list[Tensor]] = {part: [] for part in parts}
        """Each layer's weights (B, H, T, S) of every wanted part; none where the model has no such attention."""
        self.losses: list[AuxiliaryLoss] = []


def wanted(observe: Observer | None, part: Part) -> bool:
    """Whether somebody wants to see the weights of this part, which then must be formed."""
    return observe is not None and part in observe.weights
