"""Objectives: what training makes small.

Sizes: N target tokens, D width, V vocabulary. Losses are sums over tokens in natural logarithms; who reports divides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["label_smoothed", "label_smoothed_reference", "projected_loss", "token_log_probabilities"]


def label_smoothed_reference(logits: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """Sum over tokens of cross-entropy with `smoothing` of the mass spread over V (Szegedy et al. 2016, section 7)."""
    log_probabilities = logits.float().log_softmax(-1)
    right = log_probabilities.gather(-1, targets[:, None])[:, 0]
    return -((1.0 - smoothing) * right + smoothing * log_probabilities.mean(-1)).sum()


class _LabelSmoothed(torch.autograd.Function):
    """The same loss without a graph of V-wide tensors: one exponential forward, one backward, the rest in place."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, smoothing: float) -> Tensor:
        scores = logits.float()
        normalizer = scores.logsumexp(-1)  # (N,)
        right = scores.gather(-1, targets[:, None])[:, 0]
        ctx.save_for_backward(logits, targets, normalizer)
        ctx.smoothing = smoothing
        return (normalizer - (1.0 - smoothing) * right - smoothing * scores.mean(-1)).sum()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        logits, targets, normalizer = ctx.saved_tensors
        gradient = (logits.float() - normalizer[:, None]).exp_()
        gradient -= ctx.smoothing / logits.shape[-1]
        gradient.scatter_add_(-1, targets[:, None], gradient.new_full((len(targets), 1), ctx.smoothing - 1.0))
        return gradient.mul_(gradients[0]).to(logits.dtype), None, None


def label_smoothed(logits: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """`label_smoothed_reference` in fewer passes: logits (N, V) and targets (N,) -> a scalar sum."""
    return _LabelSmoothed.apply(logits, targets, smoothing)  # type: ignore[no-any-return, no-untyped-call]


def projected_loss(
    project: Callable[[Tensor], Tensor], hidden: Tensor, targets: Tensor, smoothing: float, chunk: int
) -> float:
    """Project and score `chunk` tokens at a time, and run the whole backward pass; all N·V logits never stand at once.

    hidden (N, D) and targets (N,) without padding. Gradients land where `backward` puts them; returns the loss sum.
    """
    leaf = hidden.detach().requires_grad_()
    total = 0.0
    for piece, target in zip(leaf.split(chunk), targets.split(chunk), strict=True):
        loss = label_smoothed(project(piece), target, smoothing)
        loss.backward()
        total += float(loss.detach())
    hidden.backward(leaf.grad)
    return total


def token_log_probabilities(project: Callable[[Tensor], Tensor], hidden: Tensor, targets: Tensor, chunk: int) -> Tensor:
    """log p of each target: hidden (N, D), targets (N,) -> (N,) float32."""
    pieces = [
        -F.cross_entropy(project(h).float(), t, reduction="none")
        for h, t in zip(hidden.split(chunk), targets.split(chunk), strict=True)
    ]
    return torch.cat(pieces)
