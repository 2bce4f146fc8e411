"""Recurrences as compiled kernels (recurrent.cpp): a step but for its matrix products, and an LSTM's whole layer.

`regard.nn.recurrent` holds the references. Sizes: B rows, T positions, I input features, D features.
"""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any

import torch
from torch import Tensor

from regard.nn.layers import applied

from . import native
from .native import TYPES, Part

_PART = Part("recurrent")
unavailable, refuses = _PART.unavailable, _PART.refuses
layer_unavailable = partial(native.linear_unavailable, beside=_PART)


def refuses_lstm(sums: Tensor, cells: Tensor) -> str | None:
    """The same of an LSTM's step, whose cells are float32."""
    return refuses(sums) if cells.dtype == torch.float32 else "its cells are not float32"


def refuses_layer(x: Tensor, given: Tensor, bias: Tensor, before: Tensor) -> str | None:
    """None if an LSTM of these inputs and weights can be worked on, else why not."""
    if before.shape[1] % 16:
        return "its width is no multiple of 16"
    return native.refuses_linear(x, given, bias, before) or _PART.lacking()


def _call(name: str, like: Tensor, *tensors: Tensor) -> None:
    _PART.call(f"{name}_{TYPES[like.dtype]}", *(ctypes.c_int64(n) for n in like.shape), *tensors)


class _LSTMCell(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, sums: Tensor, cells: Tensor) -> tuple[Tensor, Tensor]:
        sums, cells = sums.contiguous(), cells.contiguous()
        kept, after, hidden = torch.empty_like(sums), torch.empty_like(cells), sums.new_empty(cells.shape)
        _call("lstm", hidden, sums, cells, kept, after, hidden)
        ctx.save_for_backward(kept, cells, after)
        return hidden, after

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        kept, cells, after = ctx.saved_tensors
        of_hidden, of_after = (g.contiguous() for g in gradients)
        made = torch.empty_like(kept), torch.empty_like(cells)
        _call("lstm_back", of_hidden, kept, cells, after, of_hidden, of_after, *made)
        return made


def lstm_cell(sums: Tensor, cells: Tensor) -> tuple[Tensor, Tensor]:
    """Sums of the gates (B, 4 D) and cells (B, D) -> hidden, next cells."""
    hidden, after = applied(_LSTMCell, sums, cells)
    return hidden, after


class _GRUCell(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, given: Tensor, recurred: Tensor, hidden: Tensor) -> Tensor:
        given, recurred, hidden = given.contiguous(), recurred.contiguous(), hidden.contiguous()
        kept, out = hidden.new_empty(len(hidden), 4 * hidden.shape[1]), torch.empty_like(hidden)
        _call("gru", hidden, given, recurred, hidden, kept, out)
        ctx.save_for_backward(kept, hidden)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        kept, hidden = ctx.saved_tensors
        rows, width = hidden.shape
        made = hidden.new_empty(rows, 3 * width), hidden.new_empty(rows, 3 * width), torch.empty_like(hidden)
        _call("gru_back", hidden, kept, hidden, gradients[0].contiguous(), *made)
        return made


def gru_cell(given: Tensor, recurred: Tensor, hidden: Tensor) -> Tensor:
    """What input and hidden give to the gates, (B, 3 D) each, and hidden (B, D) -> hidden."""
    return applied(_GRUCell, given, recurred, hidden)


class _LSTMLayer(torch.autograd.Function):
    """An LSTM's way through all positions: hidden (T, B, D), and hidden and cells after each row's last position."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, given: Tensor, bias: Tensor, before: Tensor, hidden: Tensor, cells: Tensor, last: Tensor
    ) -> tuple[Tensor, ...]:
        (positions, rows, inputs), width = x.shape, before.shape[1]
        x, last = x.contiguous(), last.contiguous()
        passed, held = (like.new_empty(positions + 1, rows, width) for like in (hidden, cells))
        passed[0], held[0] = hidden, cells
        kept = x.new_empty(positions, rows, 4 * width)
        ctx.sizes = ctypes.c_int64(positions), ctypes.c_int64(rows)
        sizes = *ctx.sizes, inputs, width
        _PART.call_with_workspace("lstm_layer", x, given, before, bias, passed, held, kept, *sizes)
        ctx.save_for_backward(x, given, before, passed, held, kept, last)
        ctx.set_materialize_grads(False)
        ends = (each[1:].gather(0, last[None, :, None].expand(1, -1, width))[0] for each in (passed, held))
        return passed[1:], *ends

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        x, given, before, passed, held, kept, last = ctx.saved_tensors
        of_sums, of_hidden, of_cells = torch.empty_like(kept), torch.empty_like(passed[0]), torch.empty_like(held[0])
        of_all, *of_ends = (None if g is None else g.contiguous() for g in gradients)
        found = before, held, kept, of_all, *of_ends, last, of_sums, of_hidden, of_cells
        _PART.call_with_workspace("lstm_layer_back", *found, *ctx.sizes, before.shape[1])
        of_x, of_given, of_bias = native.linear_back(of_sums, x, given, ctx.needs_input_grad[0], True)
        _, of_before, _ = native.linear_back(of_sums, passed[:-1], before, False, False)
        return of_x, of_given, of_bias, of_before, of_hidden, of_cells, None


def lstm_layer(
    x: Tensor, given: Tensor, bias: Tensor, before: Tensor, hidden: Tensor, cells: Tensor, last: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """An LSTM over x (T, B, I) from hidden and cells (B, D): hidden of all positions (T, B, D), and both after `last`.

    The weights are those of the inputs, given (4 D, I) with their bias (4 D,), and of hidden, before (4 D, D).
    """
    found, *ends = applied(_LSTMLayer, x, given, bias, before, hidden, cells, last)
    return found, *ends
