"""The plain recurrent language model: PyTorch's own recurrences give the same, ties, and a state of one size."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import toy
from torch import nn

from regard import recipe as recipes
from regard.errors import ModelError, RecipeError
from regard.language.rnn import RNN, RNNConfig
from regard.models import FAMILIES

TEXT = torch.randint(4, 20, (3, 7), generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize(("cell", "theirs"), [("elman", nn.RNN), ("gru", nn.GRU), ("lstm", nn.LSTM)])
def test_it_is_embeddings_pytorchs_layers_and_a_projection(cell: Any, theirs: type[nn.RNNBase]) -> None:
    model: Any = toy.make(RNNConfig(cell=cell, width=16, embedding=12, layers=2, dropout=0.0), dtype=torch.float64)
    other = theirs(12, 16, 2, batch_first=True).double()
    with torch.no_grad():
        for i, layer in enumerate(model.layers.forwards):
            named = dict(other.named_parameters())
            ours = {f"weight_ih_l{i}": layer.input.weight, f"weight_hh_l{i}": layer.hidden.weight}
            ours[f"bias_ih_l{i}"] = layer.input.bias
            ours[f"bias_hh_l{i}"] = torch.zeros(()) if layer.hidden.bias is None else layer.hidden.bias
            for name, value in ours.items():
                named[name].copy_(value)
        right = model.output(other(model.table(TEXT))[0])
    torch.testing.assert_close(model.project(model.decode(TEXT, model.start())[0]), right)


def test_a_tied_model_has_one_matrix() -> None:
    config = RNNConfig(width=12, embedding=12, layers=1, tied=True)
    model = RNN(config, 20, 20)
    free = RNN(config.model_copy(update={"tied": False}), 20, 20)
    assert model.output.weight is model.table.weight
    assert sum(p.numel() for p in free.parameters()) - sum(p.numel() for p in model.parameters()) == 20 * 12
    one = {"family": "rnn-lm", "width": 12, "embedding": 10, "layers": 1, "tied": True}
    with pytest.raises(RecipeError, match=r"embedding \(10\) features; make width \(12\) equal"):
        recipes.validate({"data": {"text": "a"}, "model": one})
    with pytest.raises(ModelError, match=r"here are 20 and 21 tokens; set text\.joint = true"):
        FAMILIES["rnn-lm"].build(config, 20, 21)


@pytest.mark.parametrize("cell", ["elman", "gru", "lstm"])
def test_a_tied_models_last_layer_is_as_wide_as_an_embedding(cell: Any) -> None:
    model = toy.make(RNNConfig(cell=cell, width=16, embedding=12, layers=3, tied=True), dtype=torch.float32)
    hidden, state = model.decode(TEXT, model.start())
    assert [layer.width for layer in model.layers.forwards] == [16, 16, 12]
    assert hidden.shape == (*TEXT.shape, 12)
    assert model.project(hidden).shape[-1] == model.table.num_embeddings
    again = model.resume(state.packed())
    for one, other in zip(state.carries, again.carries, strict=True):
        for x, y in zip(one, other, strict=True):
            torch.testing.assert_close(x, y, rtol=0, atol=0)


def test_its_state_has_one_size_however_long_the_text() -> None:
    model: Any = toy.make(RNNConfig(width=16, embedding=12))
    sizes = []
    for length in (1, 7):
        _, state = model.decode(TEXT[:, :length], model.start())
        sizes.append(sum(x.numel() for carry in state.carries for x in carry))
    assert sizes[0] == sizes[1] == 2 * 2 * 3 * 16
