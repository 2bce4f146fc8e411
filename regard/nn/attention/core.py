"""Attention is three verbs: compare queries with keys, weigh the positions, mix the values. And what may be looked at.

Sizes: B batch, H heads, T queries, S keys, D key width, E value width. This is the reference; kernels may stand in for
`attend`, none may differ. Masks are meanings; they become a matrix only for who needs one. True means "may look".
A packed call is a batch of one row with all sequences behind each other, and layouts that say where each one lies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from ..layers import Dropout
from ..positions import Bias
from ..state import Layout, Observer, Packed, in_rows
from .scores import Score


def softmax(scores: Tensor) -> Tensor:
    """Softmax over the last axis."""
    return torch.softmax(scores, dim=-1)


def weigh(
    scores: Tensor,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    normalize: Callable[[Tensor], Tensor] = softmax,
) -> Tensor:
    """Turn scores (…, T, S) into weights (…, T, S) that sum to 1 over S.

    `mask` is true where a query may look. A row with nothing to look at gives zeros, never NaN.
    `bias` is added to the scores (relative positions).
    """
    if bias is not None:
        scores = scores + bias
    if mask is None:
        return normalize(scores)
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return normalize(scores).masked_fill(~mask, 0.0)


def mix(weights: Tensor, values: Tensor) -> Tensor:
    """(…, T, S) weights and (…, S, E) values -> (…, T, E)."""
    return weights @ values


def attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    compare: Callable[[Tensor, Tensor], Tensor],
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    normalize: Callable[[Tensor], Tensor] = softmax,
    drop: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention as the papers write it: queries (…, T, D), keys (…, S, D), values (…, S, E) -> (…, T, E) and weights.

    Vaswani et al. 2017, equation 1, when `compare` is the scaled dot product. `drop` drops weights out.
    """
    weights = weigh(compare(queries, keys), mask, bias, normalize)
    return mix(weights if drop is None else drop(weights), values), weights


# -- masks -------------------------------------------------------------------------------------------------------------


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


# -- a call ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """One attention call: prepared queries (B, H, T, D), prepared keys (B, H, S, D), values (B, H, S, E)."""

    queries: Tensor
    keys: Tensor
    values: Tensor
    score: Score
    mask: Mask | None = None
    want_weights: bool = False
    layout: Layout | None = None
    """Where the queries' sequences lie; None: each row is one."""
    key_layout: Layout | None = None
    """The same of keys and values; None: as the queries'."""
    normalize: Callable[[Tensor], Tensor] = softmax
    drop: Dropout | None = None
    """What drops weights, while training."""
    bias: Bias | None = None
    position: int = 0
    """The position of the first query, for the bias; that of the first key is 0."""
    observe: Observer | None = None
    """Who learns from what a normaliser draws."""

    def packed(self) -> tuple[Packed, Packed] | None:
        """Both layouts of a packed call; None if it is padded."""
        keys = self.key_layout or self.layout
        return (self.layout, keys) if isinstance(self.layout, Packed) and isinstance(keys, Packed) else None

    def packs(self) -> tuple[Packed, Packed]:
        """Both layouts of a call that is packed."""
        pack = self.packed()
        assert pack is not None
        return pack

    def in_rows(self) -> Call:
        """The call with each sequence in a row of its own."""
        if (pack := self.packed()) is None:
            return self
        queries, keys = pack
        return replace(
            self,
            queries=_laid_out(self.queries, queries),
            keys=_laid_out(self.keys, keys),
            values=_laid_out(self.values, keys),
            layout=in_rows(queries),
            key_layout=in_rows(keys),
        )

    def restored(self, mixed: Tensor) -> Tensor:
        """What the call in rows gave, (B, H, T, E), as the queries lie."""
        if (pack := self.packed()) is None:
            return mixed
        flat = pack[0].flatten(mixed.transpose(1, 2).flatten(-2))  # (L, H·E)
        return flat.view(1, len(flat), mixed.shape[1], -1).transpose(1, 2)

    def sizes(self) -> tuple[int, int]:
        """T and S of padded sequences."""
        pack = self.packed()
        return (pack[0].width, pack[1].width) if pack else (self.queries.shape[-2], self.keys.shape[-2])

    def matrix(self) -> Tensor | None:
        """The mask of a call in rows as a matrix that broadcasts with (B, H, T, S), or None."""
        if self.mask is None:
            return None
        return matrix(self.mask, len(self.queries), *self.sizes(), self.queries.device)

    def added(self) -> Tensor | None:
        """What positions add to the scores of padded sequences, (…, H, T, S)."""
        if self.bias is None:
            return None
        return self.bias.scores(self.queries, *self.positions()).to(self.queries.dtype)

    def positions(self) -> tuple[Tensor, Tensor]:
        """The positions of padded queries (T,) and keys (S,)."""
        queries, keys = (torch.arange(n, device=self.queries.device) for n in self.sizes())
        return queries + self.position, keys


def _laid_out(x: Tensor, layout: Layout) -> Tensor:
    """(1, H, L, D) -> (B, H, T, D)."""
    padded = layout.pad(x[0].transpose(0, 1).flatten(-2))
    return padded.view(*padded.shape[:2], x.shape[1], -1).transpose(1, 2)
