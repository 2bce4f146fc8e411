"""Linear maps in bfloat16 as compiled kernels (products.cpp), where the processor has its dot product.

Forwards, bias and activation belong to the product; backwards, both gradients come from one pass over the rows, summed
in float32. PyTorch's products are the reference, and what runs everywhere else.
Sizes: M rows, D width, F inner width, N outputs of a map, V vocabulary.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from . import native

__all__ = ["Linear", "back", "feedforward", "linear", "projected_loss", "refusal", "takes", "takes_loss"]

_SOURCE = Path(__file__).with_name("products.cpp")
_FEW = 32
"""Of fewer rows than these, arranging the weights for the product would take longer than the product."""
_MOST = 2**28
"""Bytes that the threads' sums of the last map's gradient may take."""


@cache
def _library() -> tuple[ctypes.CDLL | None, str]:
    library, reason = native.built(_SOURCE)
    if library is None:
        return None, reason
    if not hasattr(library, "linear"):
        return None, "this processor has no dot product of bfloat16 (AVX512_BF16)"
    if torch.cpu._is_amx_tile_supported():
        return None, "this processor multiplies tiles (AMX), which PyTorch's products use"
    return library, ""


def refusal() -> str | None:
    """None if these products can be used here, else why not."""
    return native.refusal() or _library()[1] or None


def takes(x: Tensor, *weights: Tensor | None) -> bool:
    """Whether x (…, D) can go through these weights here: bfloat16 on a CPU, not too few rows, even widths."""
    if x.dtype != torch.bfloat16 or x.device.type != "cpu" or x.numel() < _FEW * x.shape[-1]:
        return False
    for w in weights:
        if w is not None and (w.dtype != x.dtype or not w.is_contiguous() or any(size % 2 for size in w.shape)):
            return False
    return refusal() is None


def _run(name: str, *arguments: Any) -> None:
    library = _library()[0]
    assert library is not None
    native.call_with_workspace(library, name, *arguments)


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
    """x (…, D), weight (N, D), bias (N,) or None -> (…, N), for what `takes` accepts."""
    return _Linear.apply(x, weight, bias)  # type: ignore[no-any-return, no-untyped-call]


class Linear(nn.Linear):
    """A linear map, compiled where it can be."""

    def forward(self, x: Tensor) -> Tensor:
        if takes(x, self.weight, self.bias):
            return linear(x, self.weight, self.bias)
        return super().forward(x)


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
    return _FeedForward.apply(x, w1, b1, w2, b2)  # type: ignore[no-any-return, no-untyped-call]


def takes_loss(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether `projected_loss` can be had of these: each thread sums a gradient of the whole weight."""
    return 4 * torch.get_num_threads() * weight.numel() <= _MOST and takes(hidden, weight, bias)


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
