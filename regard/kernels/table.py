"""Which compiled kernel stands in for which part of `regard.nn`: importing this fills the table that `nn` asks."""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import Tensor

from regard.nn.layers import STAND_INS, StandIn

from . import native, recurrent, rotary

_HAS_TRITON = find_spec("triton") is not None  # asked now, for PyTorch's compiler does not follow the question
_too_old: bool | None = None  # whether Triton has no code for the GPU; asked when a GPU is first used


def _unavailable_on_gpu(device: str, dtype: torch.dtype) -> str | None:
    global _too_old
    if _too_old is None:
        _too_old = torch.cuda.is_available() and torch.cuda.get_device_capability() < (8, 0)
    if _too_old:
        return "Triton is for GPUs of compute capability 8.0 and more"
    if dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return "it is for float32, bfloat16 and float16"
    return None if _HAS_TRITON else "Triton is not installed"


def _refuses_on_gpu(first: Tensor, *others: Tensor) -> str | None:
    if any(x.dtype != first.dtype for x in others):
        return "its tensors are not all of one type"
    if others and max(x.shape[-1] for x in (first, *others)) * first.element_size() > 512:
        return "a head is wider than 512 bytes"  # with more, what a program holds does not fit on all GPUs
    return _unavailable_on_gpu(first.device.type, first.dtype)


def _on_gpu(name: str) -> StandIn:
    """What `gpu` has of that name."""

    def run(*arguments: object) -> object:
        from . import gpu  # Triton is loaded where there is a GPU to use it

        return getattr(gpu, name)(*arguments)

    return StandIn(run, _unavailable_on_gpu, _refuses_on_gpu)


STAND_INS.update(
    {
        "attention": StandIn(native.attend, native.unavailable, native.refuses, _on_gpu("attend")),
        "layer_norm": StandIn(native.layer_norm, native.unavailable, native.refuses_norm),
        "rotary": StandIn(rotary.turn, native.unavailable, native.refuses_norm),
        "dropout": StandIn(native.drop_add, native.unavailable, native.refuses),
        "loss": StandIn(native.smoothed, native.unavailable, native.refuses, _on_gpu("smoothed")),
        "divergence": StandIn(native.diverging, native.unavailable, native.refuses),
        "linear": StandIn(native.linear, native.linear_unavailable, native.refuses_linear),
        "feedforward": StandIn(native.feedforward, native.linear_unavailable, native.refuses_linear),
        "projected_loss": StandIn(native.projected_loss, native.linear_unavailable, native.refuses_linear),
        "lstm_cell": StandIn(recurrent.lstm_cell, recurrent.unavailable, recurrent.refuses_lstm),
        "gru_cell": StandIn(recurrent.gru_cell, recurrent.unavailable, recurrent.refuses),
        "lstm_layer": StandIn(recurrent.lstm_layer, recurrent.layer_unavailable, recurrent.refuses_layer),
    }
)
