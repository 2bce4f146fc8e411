"""Cross-entropy of targets under logits, with label smoothing, in memory for a few tokens' logits at a time.

Sizes: N target tokens, D width, V vocabulary. Losses are sums over tokens in natural logarithms; who reports divides.
A target below 0 is padding: it is not scored and gives no gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.nn.layers import applied, stand_in


def _smoothed(logits: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """Of each token (N,) what `label_smoothed` sums."""
    log_probabilities = logits.float().log_softmax(-1)
    right = log_probabilities.gather(-1, targets.clamp(min=0)[:, None])[:, 0]
    losses = -((1.0 - smoothing) * right + smoothing * log_probabilities.mean(-1))
    return losses.masked_fill(targets < 0, 0.0)


def label_smoothed(logits: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """Sum over tokens of cross-entropy with `smoothing` of the mass spread over V (Szegedy et al. 2016, section 7)."""
    return _smoothed(logits, targets, smoothing).sum()


def _loss_and_gradient(logits: Tensor, targets: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """What `label_smoothed` sums, (n,), of logits (n, V), and its gradient in their own type, in few passes over V.

    The logits are spent.
    """
    if (fast := stand_in("loss", logits)) is not None:
        return fast(logits, targets, smoothing), logits
    real = targets >= 0
    right = targets.clamp(min=0)[:, None]
    largest, where = logits.max(-1, keepdim=True)
    gradient = logits.softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    # The likeliest token has at least 1 / V, so its logarithm is always finite.
    normalizer = largest.to(gradient.dtype) - gradient.gather(-1, where).log()
    chosen = logits.gather(-1, right).to(gradient.dtype)
    losses = normalizer - (1.0 - smoothing) * chosen - smoothing * logits.mean(-1, keepdim=True, dtype=gradient.dtype)
    gradient -= smoothing / logits.shape[-1]
    gradient.scatter_add_(-1, right, gradient.new_full(right.shape, smoothing - 1.0))
    gradient *= real[:, None]
    return losses[:, 0].masked_fill(~real, 0.0), gradient.to(logits.dtype)


@cache
def _compiled() -> Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor]]:
    return torch.compile(_loss_and_gradient, dynamic=False)


class _ProjectedLoss(torch.autograd.Function):
    """Makes the gradients beside the loss, `chunk` tokens at a time, so that N·V logits never stand at once."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        settings: tuple[float, int, bool],
        token_weights: Tensor | None,
    ) -> Tensor:
        smoothing, chunk, compiled = settings
        fast = None if token_weights is not None else stand_in("projected_loss", hidden, weight, bias)
        if fast is not None:
            losses, *made = fast(hidden, weight, bias, targets, smoothing)
            ctx.save_for_backward(*made)
            total: Tensor = losses.sum()
            return total
        score = _compiled() if compiled else _loss_and_gradient
        total = hidden.new_zeros((), dtype=torch.promote_types(hidden.dtype, torch.float32))
        into = torch.empty_like(hidden), torch.zeros_like(weight), None if bias is None else torch.zeros_like(bias)
        for start in range(0, len(hidden), chunk):
            token = hidden[start : start + chunk]
            logits = F.linear(token, weight, bias)
            losses, gradient = score(logits, targets[start : start + chunk], smoothing)
            if token_weights is not None:
                counts = token_weights[start : start + chunk]
                losses, gradient = losses * counts, gradient * counts[:, None].to(gradient.dtype)
            total += losses.sum()
            torch.mm(gradient, weight, out=into[0][start : start + chunk])
            into[1].addmm_(gradient.T, token)
            if into[2] is not None:
                into[2].add_(gradient.sum(0))
        ctx.save_for_backward(*into)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        scale = gradients[0]
        if scale.device.type == "cpu" and scale == 1:  # as in training: no need to go through them all
            return (*ctx.saved_tensors, *[None] * 3)
        made = (None if g is None else g * scale.to(g.dtype) for g in ctx.saved_tensors)
        return (*made, *[None] * 3)


def projected_loss(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    smoothing: float,
    chunk: int,
    compiled: bool = False,
    token_weights: Tensor | None = None,
) -> Tensor:
    """`label_smoothed` of hidden (N, D) projected by weight (V, D) and bias (V,), targets (N,) -> a scalar sum.

    Equal to the plain composition, but needs memory for `chunk` tokens' logits only; `compiled`: by PyTorch. Each
    token's loss is multiplied with its `token_weights` (N,).
    """
    if torch.is_grad_enabled():
        settings = smoothing, chunk, compiled
        total: Tensor = applied(_ProjectedLoss, hidden, weight, bias, targets, settings, token_weights)
        return total
    losses = token_losses(hidden, weight, bias, targets, smoothing, chunk)
    return (losses if token_weights is None else losses * token_weights).sum()


@torch.no_grad()
def token_losses(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float, chunk: int
) -> Tensor:
    """Of each token (N,) what `projected_loss` sums; no gradient flows."""
    chunks = zip(hidden.split(chunk), targets.split(chunk), strict=True)
    return torch.cat([_smoothed(F.linear(h, weight, bias), t, smoothing) for h, t in chunks])


def token_log_probabilities(project: Callable[[Tensor], Tensor], hidden: Tensor, targets: Tensor, chunk: int) -> Tensor:
    """log p of each target: hidden (N, D), targets (N,) -> (N,) float32."""
    chunks = [
        -F.cross_entropy(project(h).float(), t, reduction="none")
        for h, t in zip(hidden.split(chunk), targets.split(chunk), strict=True)
    ]
    return torch.cat(chunks)
