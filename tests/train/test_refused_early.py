"""What would cost a run its result is refused before the first update, or costs nothing but itself."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensorMode

from regard import recipe as recipes
from regard.apps.cli import main
from regard.errors import DataError, ModelError, RecipeError, TrainingError
from regard.kernels import native
from regard.machine import free_memory, locked
from regard.models.blocks import new_model, parameter_count
from regard.models.transformer import TransformerConfig
from regard.planning.plan import plan
from regard.tasks.fit import fit
from regard.text import write_lines
from regard.train.checkpoint import Checkpoint, load, save, write_durably

Tables = dict[str, dict[str, Any]]


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    """A run of a second."""
    draw = random.Random(2)
    lines = [" ".join(draw.choices("abcdef", k=draw.randint(1, 6))) for _ in range(60)]
    for side, texts in (("source", lines), ("target", [line[::-1] for line in lines])):
        write_lines(tmp_path / side, texts)
        write_lines(tmp_path / f"valid.{side}", texts[:6])
    files = {key: str(tmp_path / key.replace("_", ".")) for key in ("source", "target", "valid_source", "valid_target")}
    return {
        "data": {**files, "batch_tokens": 100},
        "text": {"kind": "words"},
        "model": {"width": 16, "heads": 2, "feedforward": 16, "encoder_layers": 1, "decoder_layers": 1},
        "train": {"max_updates": 4, "warmup": 1, "average": "none", "log_every": 1, "save_every": 1,
                  "precision": "float32"},
        "search": {"beam": 1, "extra_length": 3},
    }  # fmt: skip


def _events(tables: Tables, out: Path) -> list[dict[str, Any]]:
    """What is heard of a run that is refused."""
    events: list[dict[str, Any]] = []
    with pytest.raises((DataError, RecipeError)) as error:
        fit(recipes.validate(tables), out, callbacks=[events.append])
    assert not any(event["event"] in ("start", "train") for event in events)
    return [{"said": str(error.value)}]


# -- divergence --------------------------------------------------------------------------------------------------------


def test_training_stops_where_the_loss_is_not_finite(
    tables: Tables, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables["train"] |= {"learning_rate": 1e30, "schedule": "constant", "warmup": 0, "save_every": 3}
    tables["train"] |= {"max_updates": 50}
    (tmp_path / "r.toml").write_text(recipes.to_toml(recipes.validate(tables)), encoding="utf-8")
    assert main(["train", str(tmp_path / "r.toml"), "--out", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert "training has diverged: at update 2 the loss is nan and the learning rate is 1e+30." in said
    assert "lower train.learning_rate" in said
    assert not (tmp_path / "run" / "bundle").exists()
    assert not list((tmp_path / "run" / "checkpoints").glob("update-*"))


def test_the_checkpoints_before_it_stay(tables: Tables, tmp_path: Path) -> None:
    tables["train"] |= {"schedule": "constant", "warmup": 0, "learning_rate": 1e-3, "max_updates": 2}
    fit(recipes.validate(tables), tmp_path / "run")
    kept = sorted((tmp_path / "run" / "checkpoints").glob("update-*"))
    held = load(kept[-1])
    spoilt = {**held.tensors, next(iter(held.tensors)): torch.tensor([float("nan")])}
    with pytest.raises(TrainingError, match=r"is not saved, since .* holds numbers that are not finite"):
        save(tmp_path / "run" / "checkpoints", "update-000000009-0000000009", Checkpoint(spoilt, {}), 1)
    with pytest.raises(TrainingError, match="not finite"):
        write_durably(tmp_path / "best.safetensors", {"w": torch.tensor([1.0, float("inf")])})
    assert not (tmp_path / "best.safetensors").exists()
    assert sorted((tmp_path / "run" / "checkpoints").iterdir()) == kept
    load(kept[-1])


# -- one run in a directory --------------------------------------------------------------------------------------------


def test_two_runs_do_not_share_a_directory(tables: Tables, tmp_path: Path) -> None:
    recipe, out = recipes.validate(tables), tmp_path / "run"
    out.mkdir()
    with locked(out / ".lock") as free:
        assert free
        with pytest.raises(TrainingError, match="another process is training in this directory"):
            fit(recipe, out)
    fit(recipe, out)
    assert not (out / ".lock").exists()


# -- lines that are too long -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "side", "most"),
    [
        ({"positions": "learned", "max_positions": 12}, "source", 12),
        ({"positions": "learned", "max_positions": 12}, "target", 12),
        ({"score": "location", "score_width": 9}, "source", 9),
    ],
    ids=["learned-source", "learned-target", "location"],
)
@pytest.mark.parametrize("valid", [False, True], ids=["train", "dev"])
def test_a_line_longer_than_the_models_positions_is_named(
    tables: Tables, tmp_path: Path, model: dict[str, Any], side: str, most: int, valid: bool
) -> None:
    tables["model"] |= model
    file = tmp_path / (f"valid.{side}" if valid else side)
    lines = file.read_text().splitlines()
    lines[4] = " ".join("abcdef" * 3)
    write_lines(file, lines)
    (heard,) = _events(tables, tmp_path / "run")
    named = tmp_path / ("valid.source" if valid else "source")
    assert f"{named}: line 5: the {side} has 19 tokens, its end counted" in heard["said"]
    assert f"positions for {most}" in heard["said"]
    if not valid:
        assert f"data.filters.max_length to at most {most - 1}" in heard["said"]
        with pytest.raises(DataError, match="line 5"):
            plan(recipes.validate(tables), tmp_path / "planned", measure=False)
        tables["data"]["filters"] = {"max_length": most - 1}
        fit(recipes.validate(tables), tmp_path / "filtered")


def test_a_location_score_limits_the_source_alone(tables: Tables, tmp_path: Path) -> None:
    tables["model"] = {"family": "luong", "width": 16, "embedding": 8, "layers": 1, "score": "location"}
    tables["model"]["score_width"] = 7
    tables["data"]["filters"] = {"max_ratio": 100}
    lines = (tmp_path / "target").read_text().splitlines()
    lines[4] = " ".join("abcdef" * 3)
    write_lines(tmp_path / "target", lines)
    fit(recipes.validate(tables), tmp_path / "run")


def test_a_window_longer_than_the_models_positions_is_refused(tables: Tables, tmp_path: Path) -> None:
    tables["data"] = {"text": tables["data"]["source"], "valid_text": tables["data"]["valid_source"], "context": 20}
    tables["model"] = {"family": "gpt", "width": 16, "heads": 2, "layers": 1, "max_positions": 12}
    del tables["search"]
    (heard,) = _events(tables, tmp_path / "run")
    assert "data.context (20) is more than the 12 positions of the model" in heard["said"]


def test_a_test_set_that_cannot_be_scored_costs_no_other_its_scores(
    tables: Tables, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables["data"]["filters"] = {"max_length": 10}
    write_lines(tmp_path / "long.source", ["a b", "a " * 60])
    write_lines(tmp_path / "long.target", ["b a", "a"])
    good = {"source": str(tmp_path / "valid.source"), "reference": str(tmp_path / "valid.target")}
    long = {"source": str(tmp_path / "long.source"), "reference": str(tmp_path / "long.target")}
    tables["data"]["test"] = {"long": long, "good": good}
    (tmp_path / "r.toml").write_text(recipes.to_toml(recipes.validate(tables)), encoding="utf-8")
    assert main(["train", str(tmp_path / "r.toml"), "--out", str(tmp_path / "run")]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert f"long ({tmp_path / 'long.source'}, {tmp_path / 'long.target'}): was not scored: line 2 has 6" in said
    results = json.loads((tmp_path / "run" / "results.json").read_text("utf-8"))
    assert [each["set"] for each in results["scores"]] == ["dev", "good"]


# -- searches that the family has not ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "search", "message"),
    [
        (
            {"family": "seq2seq", "width": 16, "embedding": 8},
            {"coverage": 0.2},
            "search.coverage counts what attention has read, and this model has none",
        ),
        ({"family": "mask-predict"}, {"min_length": 3}, "takes no min_length"),
        ({"family": "mask-predict"}, {"no_repeat_ngram_size": 3}, "takes no no_repeat_ngram_size"),
        ({"family": "mask-predict"}, {"samples": 3}, "takes no samples"),
        ({"family": "mask-predict"}, {"groups": 2, "beam": 4}, "takes no groups"),
        ({}, {"shortlist": True}, "search.shortlist asks for a list that a new bundle has not learnt yet"),
        ({}, {"min_length": 40}, r"valid\.source: line \d permits at most \d+ tokens"),
    ],
    ids=["coverage", "min-length", "no-repeat", "samples", "groups", "shortlist", "short-source"],
)
def test_a_search_that_the_family_has_not_is_refused(
    tables: Tables, tmp_path: Path, model: dict[str, Any], search: dict[str, Any], message: str
) -> None:
    if model.get("family") == "mask-predict":
        model = {**tables["model"], **model, "width": 16}
    tables["model"] = model or tables["model"]
    tables["search"] = {"extra_length": 3, **search}
    events: list[dict[str, Any]] = []
    with pytest.raises(RecipeError, match=message):
        fit(recipes.validate(tables), tmp_path / "run", callbacks=[events.append])
    assert not any(event["event"] in ("start", "train") for event in events)


@pytest.mark.parametrize("width", [10**8, 9_999_999_992])  # bytes that nobody has, and that cannot be counted
def test_a_model_that_no_memory_holds_is_refused_in_words(width: int) -> None:
    said = r": [\d.]+ GiB where [\d.]+ are free; \S+ alone is \([\d, ]*100000000[\d, ]*\)"
    counted = said if sys.platform == "linux" and width == 10**8 else ""
    with pytest.raises(ModelError, match=f"asks for more memory than there is{counted}; choose smaller sizes"):
        new_model(TransformerConfig(width=width, heads=8), 100, 100)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems page a model that is too large to disk")
def test_a_model_is_refused_whose_memory_the_system_would_promise_and_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    config = TransformerConfig(width=64, heads=2)
    need = 4 * parameter_count(new_model(config, 100, 100))
    monkeypatch.setattr("regard.models.blocks.free_memory", lambda: need)
    random = torch.get_rng_state()
    new_model(config, 100, 100)
    torch.set_rng_state(random)
    monkeypatch.setattr("regard.models.blocks.free_memory", lambda: need - 1)
    with pytest.raises(ModelError, match=r"than there is: 0\.0 GiB where 0\.0 are free; \S+ alone is"):
        new_model(config, 100, 100)
    assert torch.equal(torch.get_rng_state(), random)  # counting draws nothing at random
    monkeypatch.setattr("regard.models.blocks.free_memory", lambda: 3 * need)
    new_model(config, 100, 100, copies=3)
    with pytest.raises(ModelError, match="asks for more memory than there is"):
        new_model(config, 100, 100, copies=3.5)
    with torch.device("meta"):
        new_model(config, 100, 100)  # which takes no memory, as `regard plan` and a bundle's check want it
    with FakeTensorMode():
        new_model(config, 100, 100)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems page a model that is too large to disk")
@pytest.mark.parametrize(
    ("train", "copies"),
    [({"optimizer": "adamw", "average": "ema"}, 5), ({"optimizer": "muon"}, 3.5), ({"optimizer": "sgd"}, 2)],
)
def test_what_training_keeps_beside_the_weights_is_counted_before_it_begins(
    tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train: dict[str, Any], copies: float
) -> None:
    tables["train"] |= {**train, "device": "cpu"}
    found = plan(recipes.validate(tables), tmp_path / "run")
    need = 4 * found.parameters * copies
    parts = ("weights", "gradients", "optimiser state", "moving average")
    assert need == pytest.approx(sum(found.memory["cpu"][part] for part in parts), rel=0.1)
    monkeypatch.setattr("regard.models.blocks.free_memory", lambda: 0.8 * need)
    with pytest.raises(ModelError, match="asks for more memory than there is"):
        fit(recipes.validate(tables), tmp_path / "run")
    monkeypatch.setattr("regard.models.blocks.free_memory", lambda: 1.2 * need)
    fit(recipes.validate(tables), tmp_path / "run")


def test_files_that_a_container_keeps_in_memory_leave_it_free(tmp_path: Path) -> None:
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal:  9000 kB\nMemAvailable:    8000 kB\n")
    assert free_memory(tmp_path) == 8_000 * 1024
    (group / "memory.current").write_text("5000000\n")
    (group / "memory.stat").write_text("anon 1000000\nactive_file 1500000\ninactive_file 2500000\n")
    (group / "memory.max").write_text("max\n")
    assert free_memory(tmp_path) == 8_000 * 1024
    (group / "memory.max").write_text("5000000\n")
    assert free_memory(tmp_path) == 4_000_000


def test_the_precision_of_a_wide_model_is_that_of_a_narrower_one() -> None:
    assert native.map_seconds(10**8) == native.map_seconds(2048)
