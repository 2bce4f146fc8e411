"""Rotary positions as a compiled kernel (rotary.h); `regard.nn.positions.Rotary` has the reference."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from regard.nn.layers import Saves, applied

from .native import TYPES, Part, like_rows

_PART = Part("native")


class _Turn(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Saves, x: Tensor, table: Tensor, positions: Tensor) -> Tensor:
        ctx.save_for_backward(table, positions)
        return _turned(x, table, positions, 1.0)

    @staticmethod
    def backward(ctx: Saves, *gradients: Tensor) -> tuple[Tensor, None, None]:
        table, positions = ctx.saved_tensors
        return _turned(gradients[0], table, positions, -1.0), None, None


def _turned(x: Tensor, table: Tensor, positions: Tensor, sign: float) -> Tensor:
    x = x if x.stride(3) == 1 else x.contiguous()
    out = like_rows(x)
    sizes = (ctypes.c_int64(n) for n in (*x.stride()[:3], *out.stride()[:3], *x.shape, table.shape[1]))
    _PART.call(f"turn_{TYPES[x.dtype]}", x, out, table, positions, *sizes, ctypes.c_float(sign))
    return out


def turn(x: Tensor, table: Tensor, positions: Tensor) -> Tensor:
    """x (B, H, T, D) turned, at positions (T,) whose sines and cosines are table (2, P, D / 2); D a multiple of 16."""
    return applied(_Turn, x, table.float().contiguous(), positions.long().contiguous())
