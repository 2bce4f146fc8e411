"""Parts of networks: slopes as the authors have them, and modules that keep nothing of a forward pass."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import toy
from torch import Tensor
from torch.nn import functional as F

from regard.models import FAMILIES
from regard.nn import ACTIVATIONS
from regard.nn.positions import alibi_slopes
from regard.nn.recurrent import SSRU, Cells, gated_sums
from regard.nn.state import Observer, whole

# By the authors' program: of 8 heads 1/2 … 1/256; of 12 these, and every other one of 16 heads' from 2^(-1/2) on.
SLOPES = {
    1: [2.0**-8],
    2: [2.0**-4, 2.0**-8],
    3: [2.0**-4, 2.0**-8, 2.0**-2],
    8: [2.0**-n for n in range(1, 9)],
    12: [*(2.0**-n for n in range(1, 9)), 2.0**-0.5, 2.0**-1.5, 2.0**-2.5, 2.0**-3.5],
}


@pytest.mark.parametrize("heads", SLOPES)
def test_slopes_are_those_of_the_authors_whatever_the_number_of_heads(heads: int) -> None:
    assert alibi_slopes(heads) == pytest.approx(SLOPES[heads], rel=1e-12)


def test_gpt2s_gelu_is_the_one_by_tanh() -> None:
    x = torch.linspace(-4, 4, 81, dtype=torch.float64)
    right = 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)))
    torch.testing.assert_close(ACTIVATIONS["gelu_new"](x), right)
    assert (F.gelu(x) - right).abs().max() > 1e-4


@pytest.mark.parametrize("length", [1, 2, 3, 7, 64])
def test_a_recurrence_by_doubling_is_the_one_step_by_step(length: int) -> None:
    torch.manual_seed(0)
    gates, given = torch.rand(3, length, 5, dtype=torch.float64), torch.randn(3, length, 5, dtype=torch.float64)
    cells, rows = torch.zeros(3, 5, dtype=torch.float64), []
    for t in range(length):
        cells = gates[:, t] * cells + given[:, t]
        rows.append(cells)
    torch.testing.assert_close(gated_sums(gates, given), torch.stack(rows, 1), rtol=1e-12, atol=1e-12)


def test_an_ssru_is_its_equations() -> None:
    torch.manual_seed(0)
    unit, x = SSRU(4).double(), torch.randn(1, 6, 4, dtype=torch.float64)
    (gate, other), (bias, more) = unit.gates.weight.chunk(2), unit.gates.bias.chunk(2)
    cells, rows = torch.zeros(4, dtype=torch.float64), []
    for row in x[0]:
        f = (gate @ row + bias).sigmoid()
        cells = f * cells + (1 - f) * (other @ row + more)
        rows.append(cells.relu())
    found, kept = unit.of_itself(x, whole(torch.zeros(1, 6)), None, unit.begin(None), None)
    torch.testing.assert_close(found[0], torch.stack(rows))
    assert isinstance(kept, Cells)
    torch.testing.assert_close(kept.cells, cells[None])


def _kept(model: torch.nn.Module) -> dict[str, Any]:
    """All that the modules hold besides parameters, buffers and modules, by name; tensors by what they are."""
    inside = ("_parameters", "_buffers", "_modules")
    return {
        f"{name}.{key}": id(value) if isinstance(value, Tensor) else repr(value)
        for name, module in model.named_modules()
        for key, value in vars(module).items()
        if key not in inside
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_is_left_on_a_module_by_a_forward_pass(family: str) -> None:
    known = FAMILIES[family]
    changed = {"normalize": "sampled"} if "normalize" in known.config.model_fields else {}
    model: Any = toy.make(known.config(**{**known.small, **changed})).train()
    before, observe = _kept(model), Observer("encoder", "decoder", "cross")
    (source, reading), (target, writing) = toy.padded(toy.SOURCES), toy.padded(toy.TARGETS)
    if known.kind in ("encoder-decoder", "mask-predictor"):
        model.decode(target, model.start(model.encode(source, reading, observe), reading), writing, observe)
    elif known.kind == "language-model":
        model.decode(target, model.start(), writing, observe)
    elif known.kind == "reader":
        model.encode(source, reading, observe)
    else:
        model.classify(source, reading, observe)
    assert _kept(model) == before
    assert any(observe.weights.values()) == known.has_attention
    for weights in observe.weights["cross"]:
        assert weights.shape[1] == known.cross_attention(model_config(family))[1]
    assert len(observe.weights["cross"]) == known.cross_attention(model_config(family))[0]
    assert bool(observe.losses) == bool(changed or family in ("mask-predict", "self-attentive"))


def model_config(family: str) -> Any:
    return FAMILIES[family].config(**FAMILIES[family].small)
