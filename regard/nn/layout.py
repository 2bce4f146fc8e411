"""Layouts: where one sequence ends and the next begins.

Sizes: B sequences, T longest sequence, L tokens in all (the sum of the lengths), D features.
Only parts that mix positions are given a layout; everything else acts on ``(…, D)``.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

__all__ = ["Layout", "Packed", "Padded"]


class Layout(Protocol):
    """Where each of B sequences lies in a tensor of token features."""

    lengths: Tensor
    """(B,) tokens in each sequence."""
    width: int
    """T, the columns of the rectangle."""

    def rectangle(self, x: Tensor) -> Tensor:
        """Lay features out as (B, T, D); what stands beyond a sequence's end is unspecified and must be masked."""
        ...

    def flat(self, x: Tensor) -> Tensor:
        """Bring a (B, T, D) rectangle back to this layout's own shape."""
        ...

    def positions(self) -> Tensor:
        """The place of each token in its own sequence, counted from 0, in a shape that broadcasts with the tokens."""
        ...


class Padded:
    """Sequences as the rows of a (B, T) rectangle, short rows padded at their ends."""

    def __init__(self, lengths: Tensor, width: int) -> None:
        self.lengths = lengths
        self.width = width

    def rectangle(self, x: Tensor) -> Tensor:
        return x

    def flat(self, x: Tensor) -> Tensor:
        return x

    def positions(self) -> Tensor:
        return torch.arange(self.width, device=self.lengths.device)


class Packed:
    """Sequences one behind the other in a single row of L tokens, with no padding."""

    def __init__(self, lengths: Tensor) -> None:
        self.lengths = lengths
        self.width = int(lengths.max())
        ends = lengths.cumsum(0)
        columns = torch.arange(self.width, device=lengths.device)
        self._inside = columns < lengths[:, None]  # (B, T)
        # Beyond a sequence's end any valid index will do: those cells are masked by whoever mixes positions.
        self._gather = torch.where(self._inside, (ends - lengths)[:, None] + columns, 0)
        self._positions = columns.expand_as(self._inside)[self._inside]  # (L,)

    def rectangle(self, x: Tensor) -> Tensor:
        return x[self._gather]  # (L, D) -> (B, T, D)

    def flat(self, x: Tensor) -> Tensor:
        return x[self._inside]  # (B, T, D) -> (L, D)

    def positions(self) -> Tensor:
        return self._positions
