"""Normalisers: how scores become weights that sum to 1 over the keys.

Sizes: T queries, S keys. Each takes scores (…, T, S), where a hidden key's is the lowest number there is, and gives
weights of the same shape. Those that draw do so in training only; in use they look at the best key.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from ..layers import Saves, applied
from ..state import Observer
from .core import softmax

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
