"""Attention is three verbs: compare queries with keys, weigh the positions, mix the values. And what may be looked at.

Sizes: B batch, H heads, T queries, S keys, D key width, E value width. This is the reference; kernels may stand in for
`attend`, none may differ. Masks are meanings; they become a matrix only for who needs one. True means "may look".
A packed call is a batch of one row with all sequences behind each other, and layouts that say where each one lies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Protocol

import torch
from torch import Tensor, nn

from ..layers import Dropout, Saves, applied
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

    def sees(self, row: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """Whether, in these rows of the batch, queries at these positions may look at keys at these positions.

        The three broadcast with each other; positions are counted from 0 in each row.
        """


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


# -- normalisers: how scores become weights ----------------------------------------------------------------------------
#
# Each takes scores (…, T, S), where a hidden key's is the lowest number there is, and gives weights of the same shape
# that sum to 1 over S. Those that draw do so in training only; in use they look at the best key.

Normalizer = Callable[[Tensor], Tensor]
"""Scores (…, T, S) -> weights (…, T, S).

A plain function, or a module, whose `forward` also takes `drawn`: what is called with the log-probabilities (…, T) of
keys that were drawn, if they are to be learnt from; None: nobody learns.
"""


def _ranked(scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The scores with the row's largest at 0, the same ranked, and 1, 2, … S.

    What is 2 below the largest or more gets no weight, so it need not be kept exact.
    """
    z = (scores - scores.amax(-1, keepdim=True)).clamp(min=-2.0)
    ranked = z.sort(-1, descending=True)[0]
    return z, ranked, torch.arange(1, z.shape[-1] + 1, device=z.device, dtype=z.dtype)


def _sparsemax(scores: Tensor) -> tuple[Tensor, Tensor]:
    z, ranked, count = _ranked(scores)
    sums = ranked.cumsum(-1)
    support = (1 + count * ranked > sums).sum(-1, keepdim=True)
    weights = (z - (sums.gather(-1, support - 1) - 1) / support).clamp(min=0)
    return weights, (weights > 0).to(weights.dtype)


def _entmax15(scores: Tensor) -> tuple[Tensor, Tensor]:
    z, ranked, count = _ranked(scores / 2)
    mean = ranked.cumsum(-1) / count
    spread = count * (ranked.square().cumsum(-1) / count - mean.square())
    thresholds = mean - ((1 - spread) / count).clamp(min=0).sqrt()
    support = (thresholds <= ranked).sum(-1, keepdim=True)
    root = (z - thresholds.gather(-1, support - 1)).clamp(min=0)
    return root.square(), root


class _Sparse(torch.autograd.Function):
    """Weights, with the gradient s (g - Σ s g / Σ s), of which they give the factors s."""

    @staticmethod
    def forward(ctx: Saves, scores: Tensor, weigh: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Tensor:
        weights, factors = weigh(scores)
        ctx.save_for_backward(factors)
        return weights

    @staticmethod
    def backward(ctx: Saves, *gradients: Tensor) -> tuple[Tensor, None]:
        (factors,) = ctx.saved_tensors
        g = gradients[0] * factors
        return g - factors * (g.sum(-1, keepdim=True) / factors.sum(-1, keepdim=True)), None


def _exactly(weigh: Callable[[Tensor], tuple[Tensor, Tensor]], scores: Tensor) -> Tensor:
    """In float32 at least: thresholds are differences of sums over the row."""
    weights: Tensor = applied(_Sparse, scores.to(torch.promote_types(scores.dtype, torch.float32)), weigh)
    return weights.to(scores.dtype)


def sparsemax(scores: Tensor) -> Tensor:
    """The nearest point of the simplex (Martins and Astudillo 2016, algorithm 1): many weights are exactly 0."""
    return _exactly(_sparsemax, scores)


def entmax15(scores: Tensor) -> Tensor:
    """1.5-entmax, half way from softmax to sparsemax, by sorting (Peters et al. 2019, algorithm 2)."""
    return _exactly(_entmax15, scores)


def _best(scores: Tensor) -> Tensor:
    """A one at the highest score of each row, the first of equals."""
    return torch.zeros_like(scores).scatter_(-1, scores.argmax(-1, keepdim=True), 1.0)


def _gumbel(scores: Tensor) -> Tensor:
    """Scores with Gumbel noise: the highest is a draw from their softmax."""
    return scores - torch.empty_like(scores).exponential_().log_()


class StraightThrough(nn.Module):
    """All weight on the best key, with the gradient of the softmax (Bengio et al. 2013)."""

    perturbed: Callable[[Tensor], Tensor] = staticmethod(lambda scores: scores)

    def forward(self, scores: Tensor, drawn: Callable[[Tensor], None] | None = None) -> Tensor:
        if not self.training:
            return _best(scores)
        soft = torch.softmax(self.perturbed(scores), -1)
        return _best(soft.detach()) + (soft - soft.detach())


class Gumbel(StraightThrough):
    """All weight on a key drawn from the softmax, with the gradient of the perturbed softmax (Jang et al. 2017)."""

    perturbed = staticmethod(_gumbel)


class Sampled(nn.Module):
    """Hard attention: all weight on a key drawn from the softmax, learnt by the score function (Xu et al. 2015, 4.1).

    A draw has no gradient of its own; `score_function` gives the objective what has.
    """

    def forward(self, scores: Tensor, drawn: Callable[[Tensor], None] | None = None) -> Tensor:
        if not self.training:
            return _best(scores)
        weights = _best(_gumbel(scores.detach()))
        if drawn is not None:
            drawn((torch.log_softmax(scores, -1) * weights).sum(-1))
        return weights


def score_function(chosen: Tensor, losses: Tensor, tokens: Tensor) -> Tensor:
    """The surrogate: each sentence's log-probabilities (B, …) of its draws times how much worse it did than expected.

    Losses (B,) are the sentences' own, without a gradient, tokens (B,) their counts. What is expected of a sentence
    is the loss a token of the batch's others, which is independent of its own draws.
    """
    others = (losses.sum() - losses) / (tokens.sum() - tokens).clamp(min=1)
    return (chosen.flatten(1).sum(1) * (losses - tokens * others)).sum()


def observed(normalize: Normalizer, observe: Observer | None, inside: Tensor | None) -> Normalizer:
    """The normaliser with an auxiliary loss for the observer wherever it draws.

    `inside` (B, T) is false for queries that are only padding, whose draws do not count; None: there are none.
    """
    if observe is None or not isinstance(normalize, nn.Module):
        return normalize

    def drawn(chosen: Tensor) -> None:  # (B, H, T)
        counted = chosen if inside is None else chosen * inside[:, None]
        observe.losses.append(partial(score_function, counted))

    return partial(normalize, drawn=drawn)


NORMALIZERS: dict[str, Callable[[], Normalizer]] = {
    "softmax": lambda: softmax,
    "sparsemax": lambda: sparsemax,
    "entmax15": lambda: entmax15,
    "straight_through": StraightThrough,
    "gumbel": Gumbel,
    "sampled": Sampled,
}


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
        return None if self.mask is None else matrix(self.mask, len(self.queries), *self.sizes(), self.queries.device)

    def added(self) -> Tensor | None:
        """What positions add to the scores of padded sequences, (…, H, T, S)."""
        return None if self.bias is None else self.bias.scores(self.queries, *self.positions()).to(self.queries.dtype)

    def positions(self) -> tuple[Tensor, Tensor]:
        """The positions of padded queries (T,) and keys (S,)."""
        queries, keys = (torch.arange(n, device=self.queries.device) for n in self.sizes())
        return queries + self.position, keys


def _laid_out(x: Tensor, layout: Layout) -> Tensor:
    """(1, H, L, D) -> (B, H, T, D)."""
    padded = layout.pad(x[0].transpose(0, 1).flatten(-2))
    return padded.view(*padded.shape[:2], x.shape[1], -1).transpose(1, 2)
