"""Linear maps in bfloat16 as compiled kernels (products.cpp), where the processor has its dot product.

Forwards, bias and activation belong to the product; backwards, both gradients come from one pass over the rows, summed
in float32. PyTorch's products are the reference, and what runs everywhere else.
Sizes: M rows, D width, F inner width, N outputs of a map, V vocabulary.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import torch
from torch import Tensor

from regard.nn.layers import applied

from .native import Part

_PART = Part("products")
_run = _PART.call_with_workspace
_FEW = 32
"""Of fewer rows than these, arranging the weights for the product would take longer than the product."""


def lacking() -> str | None:
    """None if these products can be computed on this machine at all, else why not."""
    without = None if _PART.has("linear") else "this processor has no dot product of bfloat16 (AVX512_BF16)"
    return _PART.lacking() or without


@cache
def beaten() -> str | None:
    """None if PyTorch has no faster products than these on this machine, else which."""
    tiles = torch.cpu._is_amx_tile_supported()
    return "this processor multiplies tiles (AMX), which PyTorch's products use and these do not" if tiles else None


def unavailable(device: str, dtype: torch.dtype) -> str | None:
    """None if these products can be computed here, and faster than PyTorch does, else why not."""
    if device != "cpu":
        return "it is for CPUs"
    return lacking() or beaten() if dtype == torch.bfloat16 else "it is for bfloat16"


def refuses(x: Tensor, *weights: Tensor | None) -> str | None:
    """None if x (…, D) can go through these weights here: not too few rows, even widths; else why not."""
    if (reason := unavailable(x.device.type, x.dtype)) is not None:
        return reason
    if x.numel() < _FEW * x.shape[-1]:
        return "arranging the weights takes longer than multiplying so few rows"
    for w in weights:
        if w is not None and (w.dtype != x.dtype or not w.is_contiguous() or any(size % 2 for size in w.shape)):
            return "its weights are not all contiguous, in bfloat16 and of even sizes"
    return None


def back(
    g: Tensor, x: Tensor, weight: Tensor, of_input: bool, of_bias: bool
) -> tuple[Tensor | None, Tensor, Tensor | None]:
    """From the gradient (…, N) of x (…, D) through a map (N, D), those of x, the weight and a bias."""
    dx = torch.empty_like(x) if of_input else None
    dw, db = torch.empty_like(weight), weight.new_empty(len(weight)) if of_bias else None
    _run("linear_back", g, x, weight, dx, dw, db, ctypes.c_int64(g.numel() // len(weight)), *weight.shape)
    return dx, dw, db


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        x = x.contiguous()
        ctx.save_for_backward(x, weight)
        ctx.biased = bias is not None
        out = x.new_empty(*x.shape[:-1], len(weight))
        _run("linear", x, weight, bias, out, ctypes.c_int64(out.numel() // len(weight)), *weight.shape)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        return back(gradients[0].contiguous(), x, weight, ctx.needs_input_grad[0], ctx.biased)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x (…, D), weight (N, D), bias (N,) or None -> (…, N), for what `refuses` does not."""
    return applied(_Linear, x, weight, bias)


class _FeedForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
        x = x.contiguous()
        inner, out = x.new_empty(*x.shape[:-1], len(w1)), torch.empty_like(x)
        ctx.save_for_backward(x, inner, w1, b1, w2, b2)
        ctx.sizes = ctypes.c_int64(x.numel() // x.shape[-1]), x.shape[-1], len(w1)
        _run("feedforward", x, w1, b1, w2, b2, inner, out, *ctx.sizes)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x, inner, w1, b1, w2, b2 = ctx.saved_tensors
        made = tuple(torch.empty_like(t) for t in (x, w1, b1, w2, b2))
        _run("feedforward_back", gradients[0].contiguous(), x, inner, w1, w2, *made, *ctx.sizes)
        return made


def feedforward(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
    """max(0, x w1^T + b1) w2^T + b2: x (…, D), w1 (F, D), w2 (D, F) -> (…, D)."""
    return applied(_FeedForward, x, w1, b1, w2, b2)


def projected_loss(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Label-smoothed losses (M,) of hidden (M, D) projected by weight (V, D), and the gradients of their sum."""
    losses = hidden.new_empty(len(hidden), dtype=torch.float32)
    hidden = hidden.contiguous()
    into = torch.empty_like(hidden), torch.empty_like(weight), None if bias is None else torch.empty_like(bias)
    sizes = ctypes.c_int64(len(hidden)), *weight.shape
    _run("projected_loss", hidden, weight, bias, targets.contiguous(), ctypes.c_float(smoothing), losses, *into, *sizes)
    return losses, *into
