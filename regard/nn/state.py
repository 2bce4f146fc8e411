"""What is handed in and out of a forward pass and never kept on a module: layouts, the decoding state, an observer.

Sizes: B sequences (or hypotheses), T longest sequence, L tokens in a pack, H heads, S keys so far, D features.
A layout says where one sequence ends and the next begins. Only parts that mix positions are given one; all else acts on
``(…, D)``. What Bahdanau pre-computes and what GPT caches is the same thing: the keys after the score's own projection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Literal, Protocol, Self

import torch
from torch import Tensor
from torch.nn import functional as F

# -- layouts -----------------------------------------------------------------------------------------------------------


class Layout:
    """Where each of B sequences lies in a tensor of token features: here as rows (B, T, D), padded at their ends."""

    def __init__(self, lengths: Tensor, width: int) -> None:
        """Tokens in each sequence (B,), and T."""
        self.lengths, self.width = lengths, width

    def batch(self, x: Tensor) -> Tensor:
        """Features as a batch of rows: (B, T, D), or (1, L, D) if packed; a view."""
        return x

    def unbatch(self, x: Tensor) -> Tensor:
        """Bring a batch of rows back to this layout's own shape; a view."""
        return x

    def pad(self, x: Tensor) -> Tensor:
        """(…, D) -> (B, T, D); what stands beyond a sequence's end is unspecified and must be masked."""
        return x

    def flatten(self, x: Tensor) -> Tensor:
        """Bring padded sequences (B, T, D) back to this layout's own shape (…, D)."""
        return x

    def positions(self) -> Tensor:
        """The position of each token in its own sequence, from 0, in a shape that broadcasts with the tokens."""
        return torch.arange(self.width, device=self.lengths.device)

    def inside(self) -> Tensor:
        """Which tokens belong to a sequence: (B, T), or (L,) if packed."""
        return self.positions() < self.lengths[:, None]


Padded = Layout


class Packed(Layout):
    """Sequences one behind the other in a single row (L, D); the last tokens may belong to none (the tail)."""

    def __init__(self, lengths: Tensor, width: int, tokens: int) -> None:
        """`width` is at least the longest of the lengths, `tokens` at least their sum."""
        super().__init__(lengths, width)
        self.tokens = tokens
        self.starts = F.pad(lengths.cumsum(0), (1, 0)).to(torch.int32)
        """(B + 1,): where each sequence begins, and the last one ends."""
        self._cells: tuple[Tensor, Tensor] | None = None

    @property
    def was_padded(self) -> bool:
        """Whether somebody made rows of the sequences."""
        return self._cells is not None

    def _indices(self) -> tuple[Tensor, Tensor]:
        """For each cell of (B, T) the token that it is filled with, and for each token its cell (0 for the tail's)."""
        if self._cells is None:
            rows = in_rows(self)
            inside = rows.inside()
            # Beyond a sequence's end any valid index will do: those cells are masked by whoever mixes positions.
            tokens = torch.where(inside, self.starts[:-1, None] + rows.positions(), 0)
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
        # Not starts[1:]: for GPUs PyTorch 2.11 compiles this wrongly for a view, whose beginning it forgets.
        return torch.searchsorted(self.starts, self._tokens(), right=True) - 1

    def positions(self) -> Tensor:
        # The tail may be longer than any sequence; its positions must still be among those that a table has.
        return (self._tokens() - self.starts[self.sequences()]).clamp(max=self.width - 1)

    def inside(self) -> Tensor:
        return self._tokens() < self.starts[-1]

    def _tokens(self) -> Tensor:
        return torch.arange(self.tokens, device=self.lengths.device)


def whole(tokens: Tensor) -> Padded:
    """The layout of ids (B, T) without padding."""
    rows, width = tokens.shape
    return Padded(tokens.new_full((rows,), width), width)


def in_rows(layout: Layout) -> Padded:
    """The layout of the same sequences once they are padded, each in a row of its own."""
    return Padded(layout.lengths, layout.width)


# -- decoding states ---------------------------------------------------------------------------------------------------


class Packs(Protocol):
    """A state that can be kept as one tensor: see `regard.models.interface.Carries`."""

    def packed(self) -> Tensor: ...


class State(Protocol):
    """What a decoder needs to go on. A state is spent once passed in: a fixed cache is written in place."""

    def select(self, rows: Tensor) -> Self:
        """The state whose row i is this state's row ``rows[i]``; rows may repeat or be left out."""


@dataclass(frozen=True)
class Rows:
    """A state whose tensors, also those in tuples and in states inside, have a row a hypothesis; all else is shared."""

    def select(self, rows: Tensor) -> Self:
        return replace(self, **{field.name: _selected(getattr(self, field.name), rows) for field in fields(self)})


def _selected(value: object, rows: Tensor) -> object:
    match value:
        case Tensor():
            return value.index_select(0, rows)
        case tuple():
            return tuple(_selected(each, rows) for each in value)
        case Rows():
            return value.select(rows)
    return value


@dataclass(frozen=True)
class KeysValues(Rows):
    """Prepared keys (B, H, S, Dk) and values (B, H, S, Dv)."""

    keys: Tensor
    values: Tensor
    layout: Layout | None = None
    """Where their sequences lie; None: as the queries' do."""

    def select(self, rows: Tensor) -> KeysValues:
        return KeysValues(self.keys.index_select(0, rows), self.values.index_select(0, rows))


@dataclass(frozen=True)
class Cache(Rows):
    """Keys and values of the tokens so far: growing when `capacity` is None, else a fixed block, written in place."""

    stored: KeysValues | None = None
    length: int = 0
    capacity: int | None = None

    def append(self, keys: Tensor, values: Tensor) -> Cache:
        """The cache with T more tokens, keys (B, H, T, Dk) and values (B, H, T, Dv)."""
        length, stored = self.length + keys.shape[2], self.stored
        if self.capacity is None:
            if stored is not None:
                keys, values = torch.cat((stored.keys, keys), 2), torch.cat((stored.values, values), 2)
            return Cache(KeysValues(keys, values), length)
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


# -- observers ---------------------------------------------------------------------------------------------------------

Part = Literal["encoder", "decoder", "cross"]
"""Whose attention: of what is read to itself, of what is written to itself, or of what is written to what is read."""

AuxiliaryLoss = Callable[[Tensor, Tensor], Tensor]
"""Losses (B,) and tokens (B,) -> what a part of the model adds to the summed loss of a pass in training.

The losses are each line's own, summed over its tokens, and have no gradient.
"""


Change = Callable[[Part, int, Tensor], Tensor]
"""A part, the number of its layer from 0, its weights (B, H, T, S) -> the weights that values are mixed with instead.

Zeros in the place of a head's weights switch it off. What a mask hides stays hidden. It acts in Transformers alone.
"""


class Observer:
    """Collects the attention weights of the parts that it is made for, and the auxiliary losses of all parts."""

    def __init__(self, *parts: Part, change: Change | None = None) -> None:
        self.weights: dict[Part, list[Tensor]] = {part: [] for part in parts}
        """Each layer's weights (B, H, T, S) of every wanted part; none where the model has no such attention."""
        self.losses: list[AuxiliaryLoss] = []
        self.state: Packs | None = None  # what a decoder ended with, where it can be carried on
        self.change = change
        self.passed: dict[Part, int] = {"encoder": 0, "decoder": 0, "cross": 0}
        """How many layers of each part a change has acted on; so an observer that changes serves one pass."""


def changed(observe: Observer | None, part: Part, normalize: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """The normaliser of the next layer of a part, with what the observer makes of its weights."""
    if observe is None or observe.change is None:
        return normalize
    change, layer = observe.change, observe.passed[part]
    observe.passed[part] += 1
    return lambda scores: change(part, layer, normalize(scores))


def wanted(observe: Observer | None, part: Part) -> bool:
    """Whether somebody wants to see the weights of this part, which then must be formed."""
    return observe is not None and part in observe.weights


def show(observe: Observer | None, part: Part, weights: Tensor | None) -> None:
    """Give a layer's weights (B, H, T, S) to the observer, if it wants those of this part."""
    if observe is not None and weights is not None and part in observe.weights:
        observe.weights[part].append(weights)
