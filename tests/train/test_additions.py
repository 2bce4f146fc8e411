"""What a script adds: an objective, an optimiser, a schedule and a regulariser are trained, resumed and used."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard
from regard import recipe as recipes
from regard.errors import DataError, ModelError, RecipeError
from regard.models import FAMILIES
from regard.tasks.fit import fit
from regard.text import write_lines
from regard.train import (
    OBJECTIVES,
    OPTIMIZERS,
    REGULARIZERS,
    SCHEDULES,
    Callback,
    Interrupted,
    Optimizer,
    Regularizer,
    TrainConfig,
    Trainer,
)
from regard.train.objectives import LossSettings, Outputs, cross_entropy

LETTERS = "abcdef"


def _lines(count: int = 80) -> list[str]:
    draw = random.Random(2)
    return [" ".join(draw.choices(LETTERS, k=draw.randint(1, 6))) for _ in range(count)]


def _tables(folder: Path, **train: Any) -> dict[str, Any]:
    lines = _lines()
    write_lines(folder / "source", lines)
    write_lines(folder / "target", [line[::-1] for line in lines])
    return {
        "data": {"source": str(folder / "source"), "target": str(folder / "target"), "valid_lines": 8,
                 "batch_tokens": 120},
        "text": {"kind": "words"},
        "model": {"width": 16, "heads": 2, "feedforward": 16, "encoder_layers": 1, "decoder_layers": 1},
        "train": {"max_updates": 6, "warmup": 2, "average": "none", "save_every": 2, "log_every": 1,
                  "validate_every": 3, "precision": "float32", **train},
        "search": {"beam": 1, "extra_length": 3},
    }  # fmt: skip


class StopAfter(Callback):
    """Asks for a stop after an update."""

    def __init__(self, update: int) -> None:
        self.update = update

    def on_update(self, trainer: Trainer) -> None:
        trainer.stop = trainer.progress.update == self.update


def _losses(events: list[dict[str, Any]]) -> dict[int, float]:
    return {e["update"]: e["loss"] for e in events if e["event"] == "train"}


def _trained_resumed_and_used(tables: dict[str, Any], folder: Path) -> dict[int, float]:
    """Train at once, and in two parts; the same bits, and a bundle that translates. Returns the losses."""
    recipe, whole, events = recipes.validate(tables), folder / "whole", []
    bundle = fit(recipe, whole, callbacks=[events.append])
    again: list[dict[str, Any]] = []
    with pytest.raises(Interrupted):
        fit(recipe, folder / "parts", callbacks=[again.append, StopAfter(3)])
    resumed = fit(recipe, folder / "parts", callbacks=[again.append], resume=True)
    assert _losses(again) == _losses(events)
    name = "weights.safetensors"
    assert (bundle / name).read_bytes() == (resumed / name).read_bytes()
    assert len(regard.load(bundle).translate(["a b c"])) == 1
    return _losses(events)


def _momentum(model: nn.Module, parameters: Mapping[str, nn.Parameter], s: TrainConfig) -> list[torch.optim.Optimizer]:
    return [torch.optim.SGD(parameters.values(), lr=0.0, momentum=s.beta1)]


def test_an_optimiser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OPTIMIZERS, "momentum", Optimizer(_momentum, state=1.0))
    said = r'\[train\] optimizer = "momentun": must be one of adamw, .*did you mean momentum'
    with pytest.raises(RecipeError, match=said):
        recipes.validate(_tables(tmp_path, optimizer="momentun"))
    found = _trained_resumed_and_used(_tables(tmp_path, optimizer="momentum"), tmp_path)
    plain: list[dict[str, Any]] = []
    fit(recipes.validate(_tables(tmp_path)), tmp_path / "plain", callbacks=[plain.append])
    assert found[1] == _losses(plain)[1]
    assert found[6] != _losses(plain)[6]


def test_a_schedule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCHEDULES, "stairs", lambda s, update: s.peak * 0.5 ** (update // 3))
    events: list[dict[str, Any]] = []
    tables = _tables(tmp_path, schedule="stairs", learning_rate=0.01)
    _trained_resumed_and_used(tables, tmp_path)
    fit(recipes.validate(tables), tmp_path / "heard", callbacks=[events.append])
    rates = [e["learning_rate"] for e in events if e["event"] == "train"]
    assert rates == [0.01, 0.01, 0.005, 0.005, 0.005, 0.0025]


def _entropy(strength: Tensor, model: Any, outputs: Outputs) -> Tensor:
    chances = model.output(outputs.hidden[outputs.targets >= 0]).log_softmax(-1)
    return strength * (chances.exp() * chances).sum()


def test_a_regulariser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGULARIZERS, "entropy", Regularizer("confidence penalty (Pereyra et al. 2017)", add=_entropy))
    found = _trained_resumed_and_used(_tables(tmp_path, regularizers={"entropy": 2.0}), tmp_path)
    events: list[dict[str, Any]] = []
    fit(recipes.validate(_tables(tmp_path)), tmp_path / "plain", callbacks=[events.append])
    assert found[1] == _losses(events)[1], "the loss that is reported is the model's own"
    assert found[6] != _losses(events)[6]
    with pytest.raises(RecipeError, match=r'regularizers = "entropie": must be one of .*did you mean entropy'):
        recipes.validate(_tables(tmp_path, regularizers={"entropie": 2.0}))
    with pytest.raises(RecipeError, match="at least 0"):
        recipes.validate(_tables(tmp_path, regularizers={"entropy": -1.0}))


def _focal(model: Any, outputs: Outputs, settings: LossSettings) -> Tensor:
    """Lin et al. 2017: what is known already counts less."""
    with torch.no_grad():
        right = model.output(outputs.hidden).softmax(-1).gather(-1, outputs.targets.clamp(min=0)[:, None])[:, 0]
    return cross_entropy(model, outputs, replace(settings, token_weights=(1.0 - right) ** 2))


def test_an_objective(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OBJECTIVES, "focal", replace(OBJECTIVES["translate"], loss=_focal))
    found = _trained_resumed_and_used(_tables(tmp_path, objective="focal"), tmp_path)
    assert found[1] < 2.9, "each token's loss is multiplied with less than 1"
    monkeypatch.delitem(OBJECTIVES, "focal")
    assert regard.load(tmp_path / "whole" / "bundle").translate(["a b"]), "what is used need not know how it learnt"
    with pytest.raises(RecipeError, match="must be one of translate"):
        recipes.validate(_tables(tmp_path, objective="focal"))


def test_word_dropout_changes_what_is_read_in_training_alone(tmp_path: Path) -> None:
    found = _trained_resumed_and_used(_tables(tmp_path, regularizers={"word-dropout": 0.5}), tmp_path)
    plain: list[dict[str, Any]] = []
    fit(recipes.validate(_tables(tmp_path)), tmp_path / "plain", callbacks=[plain.append])
    assert found[1] != _losses(plain)[1]


class Heard(Callback):
    """Keeps what it was told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def on_update(self, trainer: Trainer) -> None:
        self.told.append(trainer.progress.update)

    def on_validation(self, trainer: Trainer, scores: dict[str, float]) -> None:
        self.told.append(sorted(scores))

    def on_checkpoint(self, trainer: Trainer, path: Path) -> None:
        self.told.append(path.name)


def test_objects_are_taken_as_well_as_names(tmp_path: Path) -> None:
    """A corpus, a model, an objective, an optimiser and callbacks that a script hands in."""
    tables = _tables(tmp_path)
    del tables["data"]["source"], tables["data"]["target"]
    recipe = recipes.validate(tables)
    pairs = [(line, line[::-1]) for line in _lines()]
    mine, heard = replace(OBJECTIVES["translate"], loss=_focal), Heard()
    given: dict[str, Any] = {"corpus": pairs, "objective": mine, "optimizer": "lion"}
    bundle = fit(recipe, tmp_path / "first", **given, callbacks=[heard])
    begun, step = [1, 2, "update-000000002", 3], ["loss", "perplexity"]
    told = [each.rpartition("-")[0] if isinstance(each, str) else each for each in heard.told]
    assert told == [*begun, step, 4, "update-000000004", 5, 6, step, "update-000000006"]
    try:
        with pytest.raises(DataError, match="begun with another train set"):
            fit(recipe, tmp_path / "first", **{**given, "corpus": pairs[::-1]}, resume=True)
        model = regard.load(bundle).bundle.model()
        loss: list[dict[str, Any]] = []
        fit(recipe, tmp_path / "on", **given, model=model, callbacks=[loss.append])
        alone: list[dict[str, Any]] = []
        fit(recipe, tmp_path / "alone", **given, callbacks=[alone.append])
        assert _losses(loss)[1] < _losses(alone)[1], "it begins with what the model that was handed in has learnt"
        wrong = FAMILIES["transformer"].build(FAMILIES["transformer"].config(**FAMILIES["transformer"].small), 9, 9, 0)
        with pytest.raises(ModelError, match=r"not of the recipe's \[model\]"):
            fit(recipe, tmp_path / "wrong", **given, model=wrong)
    finally:
        del OBJECTIVES["handed-in"]
