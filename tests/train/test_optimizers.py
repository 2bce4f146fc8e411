"""Optimisers: what decays, that their steps are those of the papers, and that resuming is exact with each."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.data.batches import Batches
from regard.data.store import Store, fingerprint
from regard.errors import ModelError
from regard.models.transformer import TransformerConfig, build
from regard.settings import Filters, TrainConfig
from regard.text import Tokenizer
from regard.train import OPTIMIZERS, Callback, Interrupted, Options, Trainer
from regard.train.parallel import Parallel
from regard.train.step import Lion

SIZES = TransformerConfig(width=16, heads=2, feedforward=16, encoder_layers=1, decoder_layers=1, dropout=0.1)


def _model() -> nn.Module:
    torch.manual_seed(0)
    made: nn.Module = build(SIZES, 12, 12)
    return made


def _stepped(optimizers: Any, parameters: dict[str, nn.Parameter], rate: float, steps: int = 3) -> dict[str, Tensor]:
    """The parameters after so many steps with gradients that are the same for everybody."""
    for step in range(steps):
        for number, parameter in enumerate(parameters.values()):
            draw = torch.Generator().manual_seed(100 * step + number)
            parameter.grad = torch.randn(parameter.shape, generator=draw)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
    return {name: parameter.detach().clone() for name, parameter in parameters.items()}


def test_adamw_without_decay_is_pytorchs_own_bit_for_bit() -> None:
    found = []
    for plain in (False, True):
        model = _model()
        parameters = dict(model.named_parameters())
        ours = OPTIMIZERS["adamw"].build(model, parameters, TrainConfig())
        settings: dict[str, Any] = {"betas": (0.9, 0.98), "eps": 1e-9, "weight_decay": 0.0, "fused": True}
        theirs = [torch.optim.AdamW(parameters.values(), lr=0.0, **settings)]
        found.append(_stepped(theirs if plain else ours, parameters, 0.01))
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


@pytest.mark.parametrize("name", ["adamw", "lion", "adafactor", "muon", "sgd"])
def test_norms_and_biases_do_not_decay_and_matrices_do(name: str) -> None:
    found = []
    for decay in (0.0, 0.5):
        model = _model()
        parameters = dict(model.named_parameters())
        built = OPTIMIZERS[name].build(model, parameters, TrainConfig(weight_decay=decay))
        assert {p for o in built for g in o.param_groups for p in g["params"]} == set(parameters.values())
        found.append(_stepped(built, parameters, 0.01))
    alike = {name for name in found[0] if torch.equal(found[0][name], found[1][name])}
    assert alike == {name for name, tensor in found[0].items() if tensor.dim() < 2}


def test_lion_is_algorithm_2() -> None:
    weight = nn.Parameter(torch.randn(4, 3, generator=torch.Generator().manual_seed(1)))
    expected, momentum = weight.detach().clone(), torch.zeros(4, 3)
    found = _stepped([Lion([{"params": [weight], "weight_decay": 0.1}], (0.9, 0.99))], {"w": weight}, 0.02)
    for step in range(3):
        gradient = torch.randn(4, 3, generator=torch.Generator().manual_seed(100 * step))
        update = (0.9 * momentum + 0.1 * gradient).sign()
        expected = expected - 0.02 * (update + 0.1 * expected)
        momentum = 0.99 * momentum + 0.01 * gradient
    torch.testing.assert_close(found["w"], expected)


def test_sgd_goes_down_the_gradient() -> None:
    model = nn.Linear(3, 4, bias=False)
    expected = model.weight.detach().clone()
    built = OPTIMIZERS["sgd"].build(model, dict(model.named_parameters()), TrainConfig(weight_decay=0.1))
    found = _stepped(built, {"w": model.weight}, 0.02)
    for step in range(3):
        gradient = torch.randn(4, 3, generator=torch.Generator().manual_seed(100 * step))
        expected = expected - 0.02 * (gradient + 0.1 * expected)
    torch.testing.assert_close(found["w"], expected)


def test_muon_is_for_the_matrices_inside() -> None:
    model = _model()
    parameters = dict(model.named_parameters())
    muon, rest = OPTIMIZERS["muon"].build(model, parameters, TrainConfig())
    names = {parameter: name for name, parameter in parameters.items()}
    inside = {names[p] for group in muon.param_groups for p in group["params"]}
    matrices = {name for name, parameter in parameters.items() if parameter.dim() == 2}
    assert inside == {name for name in matrices if "table" not in name and not name.startswith("output")}
    assert inside
    assert {names[p] for group in rest.param_groups for p in group["params"]} == set(parameters) - inside


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Tokenizer]:
    draw = random.Random(1)
    lines = [" ".join(draw.choices("abcdefgh", k=draw.randint(1, 6))) for _ in range(80)]
    tokenizer = Tokenizer.train(lines, size=50, kind="words")
    pairs = ((line, line[::-1]) for line in lines)
    path = tmp_path_factory.mktemp("toy") / "store"
    return Store.build(path, pairs, tokenizer, tokenizer, Filters(), fingerprint("toy")), tokenizer


class _Stop(Callback):
    def on_update(self, trainer: Trainer) -> None:
        trainer.stop = trainer.progress.update == 3


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_resuming_is_exact(name: str, precision: Any, corpus: tuple[Store, Tokenizer], tmp_path: Path) -> None:
    store, tokenizer = corpus
    config = TrainConfig(
        max_updates=6, optimizer=name, learning_rate=0.01, schedule="constant", warmup=0, weight_decay=0.1,
        precision=precision, average="none",
    )  # fmt: skip

    def trainer(out: Path, *callbacks: Callback) -> Trainer:
        torch.manual_seed(0)
        batches = Batches(store, batch_tokens=80, seed=2)
        made = build(SIZES, len(tokenizer), len(tokenizer))
        return Trainer(made, batches, config, out, seed=1, width=16, options=Options(callbacks=callbacks))

    def state(made: Trainer) -> dict[str, Any]:
        held: dict[str, Any] = {n: p.detach() for n, p in made.parameters.items()}
        for number, optimizer in enumerate(made.optimizers):
            for n, p in made.parameters.items():
                held |= {f"{number}.{n}.{key}": value for key, value in optimizer.state.get(p, {}).items()}
        return held

    whole = trainer(tmp_path / "whole")
    begun = {n: p.detach().clone() for n, p in whole.parameters.items()}
    whole.run()
    with pytest.raises(Interrupted):
        trainer(tmp_path / "parts", _Stop()).run()
    torch.manual_seed(9)
    resumed = trainer(tmp_path / "parts")
    assert resumed.resume() is not None
    assert resumed.progress.update == 3
    resumed.run()
    expected, found = state(whole), state(resumed)
    assert expected.keys() == found.keys()
    for key, value in expected.items():
        assert torch.equal(torch.as_tensor(value), torch.as_tensor(found[key])), key
    assert any(not torch.equal(begun[n], expected[n]) for n in begun)


def test_what_needs_whole_weights_says_so(corpus: tuple[Store, Tokenizer], tmp_path: Path) -> None:
    batches = Batches(corpus[0], batch_tokens=80)
    options = Options(parallel=Parallel(0, 2, kind="fsdp"))
    with pytest.raises(ModelError, match=r'train\.optimizer = "muon" needs whole weights; set train\.parallel = "ddp"'):
        Trainer(_model(), batches, TrainConfig(optimizer="muon"), tmp_path, seed=1, width=16, options=options)
    with pytest.raises(ModelError, match=r"train\.schedule = 'stairs': must be one of"):
        Trainer(_model(), batches, TrainConfig(schedule="stairs"), tmp_path, seed=1, width=16)
