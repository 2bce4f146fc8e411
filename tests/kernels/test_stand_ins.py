"""Every compiled kernel that stands in for a part of `nn` agrees with the readable part, and `nn` works without any."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.errors import KernelError
from regard.kernels import native, table  # table: fills the table of stand-ins
from regard.nn.attention import Causal, Dot
from regard.nn.attention.multihead import Call, choose, run
from regard.nn.layers import (
    STAND_INS,
    Dropout,
    FeedForward,
    LayerNorm,
    Linear,
    only_references,
    refusal,
    stand_in,
    unavailable,
)
from regard.nn.positions import Rotary
from regard.nn.recurrent import LSTM, gru_cell, lstm_cell
from regard.nn.state import Packed
from regard.train import projected_loss
from regard.train.objectives import _loss_and_gradient
from regard.train.regularizers import _diverging

ROWS, WIDTH = 64, 32
TARGETS = torch.stack((torch.arange(ROWS) % WIDTH, torch.full((ROWS,), -1)), 1)[:, 0]  # a column of padded targets


def _attention(module: nn.Module, x: Tensor) -> Tensor:
    layout = Packed(torch.tensor([40, 24]), 40, ROWS)
    heads = module(x).view(1, ROWS, 2, -1).transpose(1, 2)
    return run(Call(heads, heads, heads, Dot(WIDTH // 2), Causal(), False, layout))[0]


def _rotary(module: nn.Module, x: Tensor) -> Tensor:
    heads = x.view(2, ROWS // 2, 2, -1).transpose(1, 2)
    return module(heads, torch.arange(ROWS // 2).flip(0), ROWS // 2)


def _dropout(module: nn.Module, x: Tensor) -> Tensor:
    out = Dropout(0.5)(x)  # the mask is drawn otherwise: what is kept must be twice what came
    return torch.where(out == 0, x, out / 2)


def _loss(module: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        losses, gradient = _loss_and_gradient(x.clone(), TARGETS, 0.1)
    return torch.cat((losses[:, None].to(x.dtype), gradient), 1)


def _divergence(module: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        both = x.clone(), (x + 0.5 * x.sin()).contiguous()
        found = _diverging(*both, TARGETS)
    return torch.cat((found[:, None].to(x.dtype), *both), 1)


def _lstm(module: nn.Module, x: Tensor) -> Tensor:
    cells = torch.ones(ROWS, WIDTH // 4, dtype=torch.promote_types(x.dtype, torch.float32))
    return torch.cat(lstm_cell(x, cells), 1)


WORK: dict[str, tuple[nn.Module, Callable[[Any, Tensor], Tensor], torch.dtype]] = {
    "attention": (nn.Linear(WIDTH, WIDTH), _attention, torch.float32),
    "layer_norm": (LayerNorm(WIDTH), lambda module, x: module(x), torch.float32),
    "rotary": (Rotary(WIDTH // 2, 8), _rotary, torch.float32),
    "dropout": (nn.Identity(), _dropout, torch.float32),
    "loss": (nn.Identity(), _loss, torch.float32),
    "divergence": (nn.Identity(), _divergence, torch.float32),
    "linear": (Linear(WIDTH, 48), lambda module, x: module(x), torch.bfloat16),
    "feedforward": (FeedForward(WIDTH, 64, "relu", 0.0), lambda module, x: module(x), torch.bfloat16),
    "projected_loss": (
        Linear(WIDTH, 40),
        lambda module, x: projected_loss(x, module.weight, module.bias, TARGETS, 0.1, ROWS),
        torch.bfloat16,
    ),
    "lstm_cell": (nn.Identity(), _lstm, torch.float32),
    "gru_cell": (nn.Linear(WIDTH, 96), lambda module, x: gru_cell(module(x), module(x).sin(), x), torch.float32),
    "lstm_layer": (LSTM(WIDTH, 48), lambda module, x: module(x[:, None].expand(-1, 8, -1))[0], torch.bfloat16),
}
"""Of each piece of work a module, what is done with it, and the numbers that it is compiled for."""


def test_every_stand_in_is_tested_here():
    assert WORK.keys() == STAND_INS.keys()


def _with_gradients(name: str, dtype: torch.dtype) -> list[Tensor]:
    given, work, _ = WORK[name]
    module = copy.deepcopy(given).bfloat16().to(dtype)  # rounded alike, however it is computed
    torch.manual_seed(1)
    x = torch.randn(ROWS, WIDTH).bfloat16().to(dtype).requires_grad_()
    torch.manual_seed(2)
    out = work(module, x)
    torch.manual_seed(3)
    if out.requires_grad:
        out.backward(torch.rand(out.shape).bfloat16().to(dtype) if out.dim() else None)
    return [out, *(t.grad for t in (x, *module.parameters()) if t.grad is not None)]


@pytest.mark.parametrize("name", STAND_INS)
def test_it_agrees_with_its_reference_in_float64(name, monkeypatch):
    monkeypatch.setattr(native, "beaten", lambda: None)
    dtype = WORK[name][2]
    if reason := unavailable(name, "cpu", dtype):
        pytest.skip(reason)
    used = []
    entry = STAND_INS[name]

    def run_and_note(*arguments: Any) -> Any:
        used.append(name)
        return entry.run(*arguments)

    monkeypatch.setitem(STAND_INS, name, type(entry)(run_and_note, entry.unavailable, entry.refuses))
    ours = _with_gradients(name, dtype)
    assert used, "the kernel did not run"
    used.clear()
    with only_references():
        exact = _with_gradients(name, torch.float64)
    assert not used
    assert len(ours) == len(exact)
    for one, other in zip(ours, exact, strict=True):
        bound = 1e-4 if dtype == torch.float32 else 0.02
        assert (one.double() - other).abs().max() <= bound * other.abs().max()


def test_reasons_are_sentences(monkeypatch):
    x = torch.zeros(40, 24)
    assert stand_in("layer_norm", x, x[0]) is None
    assert "no multiple of 16" in str(refusal("layer_norm", x, x[0]))
    assert "not all of one type" in str(refusal("dropout", x, x.double()))
    assert "float32 and bfloat16" in str(refusal("dropout", x.double()))
    assert "for bfloat16" in str(refusal("linear", x, x[:2], None))
    assert "for CPUs" in str(refusal("loss", x.to("meta")))
    assert "for CPUs" in str(unavailable("linear", "cuda", torch.bfloat16))
    with only_references():
        assert refusal("loss", x) == "compiled kernels are switched off"
        assert stand_in("loss", x) is None
    monkeypatch.delitem(STAND_INS, "loss")
    assert refusal("loss", x) == unavailable("loss", "cpu", torch.float32) == "no compiled kernel is there"
    assert stand_in("loss", x) is None


def test_a_target_outside_of_the_vocabulary_is_an_error_and_not_a_write():

    if (fast := stand_in("loss", torch.zeros(2, 16))) is None:
        pytest.skip(str(refusal("loss", torch.zeros(2, 16))))
    with pytest.raises(KernelError, match="target 16 of token 1 is outside of the vocabulary of 16"):
        fast(torch.zeros(2, 16), torch.tensor([3, 16]), 0.1)


def test_parts_of_networks_work_while_the_table_is_empty():
    program = """
import sys, torch
from regard.nn.layers import FeedForward, LayerNorm
from regard.nn.recurrent import LSTM
from regard.nn.layers import STAND_INS
x = torch.randn(40, 32)
(LayerNorm(32)(FeedForward(32, 64, "relu", 0.1)(x)).sum() + LSTM(32, 16)(x[None])[0].sum()).backward()
assert not STAND_INS
assert not any(name.startswith("regard.kernels") for name in sys.modules)
print("without")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "without\n", done.stderr


def test_what_runs_attention_is_still_told():
    x = torch.zeros(1, 2, 8, 16)
    layout = Packed(torch.tensor([8]), 8, 8)
    call = Call(x, x, x, Dot(16), Causal(), False, layout)
    with only_references():
        kernel, refusals = choose(call)
    assert kernel.name == "reference"
    assert refusals["compiled"] == "compiled kernels are switched off"


def test_what_the_kernels_for_gpus_do_not_take_is_said(monkeypatch):
    monkeypatch.setattr(table, "_HAS_TRITON", True)
    monkeypatch.setattr(table, "_too_old", False)
    assert unavailable("attention", "cuda", torch.bfloat16) is None
    assert unavailable("loss", "cuda", torch.float64) == "it is for float32, bfloat16 and float16"
    assert unavailable("dropout", "cuda", torch.float32) == "it is for CPUs"
    refuses = STAND_INS["attention"].on("cuda").refuses
    narrow, wide = torch.zeros(1, 2, 8, 128), torch.zeros(1, 2, 8, 129)
    assert refuses(narrow, narrow, narrow) is None
    assert refuses(narrow, narrow, wide) == "a head is wider than 512 bytes"
    assert refuses(*[torch.zeros(1, 2, 8, 256).half()] * 3) is None
    assert refuses(narrow, narrow, narrow.half()) == "its tensors are not all of one type"
    assert STAND_INS["loss"].on("cuda").refuses(torch.zeros(3, 40_000)) is None
    monkeypatch.setattr(table, "_too_old", True)
    assert unavailable("loss", "cuda", torch.float32) == "Triton is for GPUs of compute capability 8.0 and more"
    monkeypatch.setattr(table, "_too_old", False)
    monkeypatch.setattr(table, "_HAS_TRITON", False)
    assert unavailable("loss", "cuda", torch.float32) == "Triton is not installed"
