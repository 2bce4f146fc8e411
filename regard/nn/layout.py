"""Layouts: where one sequence ends and the next begins.

Sizes: B sequences, T longest sequence, L tokens in a pack, D features.
Only parts that mix positions are given a layout; everything else acts on ``(…, D)``.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F


class Layout(Protocol):
    """Where each of B sequences lies in a tensor of token features: (B, T, D) if padded, (L, D) if packed."""

    lengths: Tensor
    """(B,) tokens in each sequence."""
    width: int
    """T."""
    packed: bool
    """The tokens are a single row, with one sequence behind the other."""

    def batch(self, x: Tensor) -> Tensor:
        """Features as a batch of rows: (B, T, D), or (1, L, D) if packed; a view."""
        ...

    def unbatch(self, x: Tensor) -> Tensor:
        """Bring a batch of rows back to this layout's own shape; a view."""
        ...

    def pad(self, x: Tensor) -> Tensor:
        """(…, D) -> (B, T, D); what stands beyond a sequence's end is unspecified and must be masked."""
        ...

    def flatten(self, x: Tensor) -> Tensor:
        """Bring padded sequences (B, T, D) back to this layout's own shape (…, D)."""
        ...

    def positions(self) -> Tensor:
        """The position of each token in its own sequence, from 0, in a shape that broadcasts with the tokens."""
        ...

    def inside(self) -> Tensor:
        """Which tokens belong to a sequence: (B, T), or (L,) if packed."""
        ...


class Padded:
    """Sequences as the rows of a batch (B, T), short rows padded at their ends."""

    packed = False

    def __init__(self, lengths: Tensor, width: int) -> None:
        self.lengths = lengths
        self.width = width

    def batch(self, x: Tensor) -> Tensor:
        return x

    unbatch = pad = flatten = batch

    def positions(self) -> Tensor:
        return torch.arange(self.width, device=self.lengths.device)

    def inside(self) -> Tensor:
        return self.positions() < self.lengths[:, None]


class Packed:
    """Sequences one behind the other in a single row of L tokens; the last tokens may belong to none (the tail)."""

    packed = True

    def __init__(self, lengths: Tensor, width: int, tokens: int) -> None:
        """`width` is at least the longest of the lengths, `tokens` at least their sum."""
        self.lengths = lengths
        self.width = width
        self.tokens = tokens
        self.starts = F.pad(lengths.cumsum(0), (1, 0)).to(torch.int32)
        """(B + 1,): where each sequence begins, and the last one ends."""
        self._cells: tuple[Tensor, Tensor] | None = None

    def _indices(self) -> tuple[Tensor, Tensor]:
        """For each cell of (B, T) the token that it is filled with, and for each token its cell (0 for the tail's)."""
        if self._cells is not None:
            return self._cells
        columns = torch.arange(self.width, device=self.lengths.device)
        inside = columns < self.lengths[:, None]  # (B, T)
        # Beyond a sequence's end any valid index will do: those cells are masked by whoever mixes positions.
        tokens = torch.where(inside, self.starts[:-1, None] + columns, 0)
        cells = inside.flatten().nonzero()[:, 0]
        self._cells = tokens.flatten(), F.pad(cells, (0, self.tokens - len(cells)))
        return self._cells

    def batch(self, x: Tensor) -> Tensor:
        return x[None]

    def unbatch(self, x: Tensor) -> Tensor:
        return x[0]

    def pad(self, x: Tensor) -> Tensor:
        return x.index_select(0, self._indices()[0]).view(len(self.lengths), self.width, -1)  # (L, D) -> (B, T, D)

    def flatten(self, x: Tensor) -> Tensor:
        return x.flatten(0, 1).index_select(0, self._indices()[1])  # (B, T, D) -> (L, D)

    def sequences(self) -> Tensor:
        """(L,) the sequence that each token belongs to; B for the tail's, which belong to none."""
        tokens = torch.arange(self.tokens, device=self.lengths.device)
        return torch.searchsorted(self.starts[1:], tokens, right=True)

    def positions(self) -> Tensor:
        tokens = torch.arange(self.tokens, device=self.lengths.device)
        # The tail may be longer than any sequence; its positions must still be among those that a table has.
        return (tokens - self.starts[self.sequences()]).clamp(max=self.width - 1)

    def inside(self) -> Tensor:
        return torch.arange(self.tokens, device=self.lengths.device) < self.starts[-1]


def whole(tokens: Tensor) -> Padded:
    """The layout of ids (B, T) without padding."""
    rows, width = tokens.shape
    return Padded(tokens.new_full((rows,), width), width)
