"""Masks are meanings; they become a matrix only for who needs a matrix. True means "may look".

Sizes: B batch, T queries, S keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor


class Mask(Protocol):
    """Which keys a query may look at."""

    @property
    def causal(self) -> bool | None:
        """What a kernel that keeps to each sequence's own keys must still apply: causality (True), nothing
        (False), or something that it cannot express (None)."""
        ...

    def sees(self, row: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """Whether, in these rows of the batch, queries at these positions may look at keys at these positions.

        The three broadcast with each other; positions are counted from 0 in each row.
        """
        ...


def matrix(mask: Mask, rows: int, queries: int, keys: int, device: torch.device) -> Tensor:
    """The mask as a matrix (B or 1, 1, T, S), which broadcasts with scores (B, H, T, S)."""
    row, query, key = (torch.arange(n, device=device) for n in (rows, queries, keys))
    found = mask.sees(row[:, None, None], query[:, None], key)
    return found[:, None] if found.dim() == 3 else found


@dataclass(frozen=True)
class Causal:
    """A query may look at its own position and before; the first query stands at position `offset` of the keys."""

    offset: int = 0

    @property
    def causal(self) -> bool | None:
        return True if self.offset == 0 else None

    def sees(self, row: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return key <= query + self.offset


@dataclass(frozen=True)
class Window:
    """A query may look `radius` positions to either side (restricted attention, Vaswani et al. 2017, section 4)."""

    radius: int
    offset: int = 0
    causal: ClassVar[bool | None] = None

    def sees(self, row: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (key - query - self.offset).abs() <= self.radius


@dataclass(frozen=True)
class Lengths:
    """Keys beyond a sequence's own length, (B,), are invisible."""

    lengths: Tensor
    causal: ClassVar[bool | None] = False

    def sees(self, row: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return key < self.lengths[row]


@dataclass(frozen=True)
class AndMask:
    """What both masks allow."""

    first: Mask
    second: Mask

    @property
    def causal(self) -> bool | None:
        both = self.first.causal, self.second.causal
        return None if None in both else any(both)

    def sees(self, row: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return self.first.sees(row, query, key) & self.second.sees(row, query, key)
