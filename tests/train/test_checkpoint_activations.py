"""Activations that are computed again in the backward pass give the same bits, dropout too, and take less memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from toy import CONFIGS, make

from regard.errors import ModelError
from regard.models.blocks import around_layers
from regard.models.transformer import TransformerConfig
from regard.train import Inputs, Step


def stacks(model: torch.nn.Module) -> list[torch.nn.Module]:
    return [layer for part in model.modules() if isinstance(part, torch.nn.ModuleList) for layer in part]


STACKS = [name for name, config in CONFIGS.items() if stacks(make(config))]


def packed() -> Inputs:
    """Three pairs."""
    lengths = torch.tensor([5, 9, 2]), torch.tensor([7, 3, 6])
    source, tokens, targets = torch.randint(3, 20, (16,)), torch.randint(3, 20, (16,)), torch.randint(3, 20, (16,))
    return Inputs("packed", source, lengths[0], tokens, targets, lengths[1], (9, 7))


def padded() -> Inputs:
    """Two pairs."""
    lengths = torch.tensor([5, 3]), torch.tensor([4, 6])
    source, tokens = torch.randint(3, 20, (2, 5)), torch.randint(3, 20, (2, 6))
    targets = torch.where(torch.arange(6) < lengths[1][:, None], torch.randint(3, 20, (2, 6)), -1)
    return Inputs("padded", source, lengths[0], tokens, targets, lengths[1], (5, 6))


@pytest.mark.parametrize("name", STACKS)
def test_gradients_have_the_same_bits(name: str) -> None:
    config, found = CONFIGS[name].model_copy(update={"dropout": 0.3}), []
    for again in (False, True):
        torch.manual_seed(1)
        model = make(config, 20).train()
        x = packed() if config.family == "transformer" else padded()
        forwards = [layer.forward for layer in stacks(model)]
        step = Step(model, 0.1, 8)
        step.again = again
        loss = step(x)
        loss.backward()
        assert [layer.forward for layer in stacks(model)] == forwards
        found.append([loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None)])
    assert len(found[0]) == len(found[1]) > 5
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_a_layer_keeps_what_enters_it_alone() -> None:
    kept: dict[bool, int] = {}
    config = TransformerConfig(width=16, heads=2, feedforward=64, encoder_layers=4, decoder_layers=4)
    for again in (False, True):
        step = Step(make(config, 20).train(), 0.1, 8)
        step.again = again
        bytes_: dict[int, int] = {}

        def pack(x: torch.Tensor, bytes_: dict[int, int] = bytes_) -> torch.Tensor:
            bytes_[x.data_ptr()] = x.untyped_storage().nbytes()
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            step(packed())
        kept[again] = sum(bytes_.values())
    assert kept[True] < 0.5 * kept[False]


def test_running_averages_and_models_without_layers_are_refused() -> None:
    small: dict[str, Any] = {"width": 16, "heads": 2, "feedforward": 32, "norm_kind": "batch"}
    for model in (make(TransformerConfig(**small), 20), torch.nn.Linear(2, 2)):
        with pytest.raises(ModelError, match="a stack of layers, and no running averages"), around_layers(model, id):
            pass
