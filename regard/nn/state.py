"""The decoding state: a value that is passed in and passed out, never kept on a module.

Sizes: B rows (sentences or hypotheses), H heads, S keys so far, D key or value width.
What Bahdanau pre-computes and what GPT caches is the same thing: the keys after the score's own projection.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self

import torch
from torch import Tensor

from .layout import Layout

__all__ = ["Cache", "KeysValues", "State"]


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
