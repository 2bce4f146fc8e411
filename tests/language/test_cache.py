"""A language model that looks back at what was said: against the formula, written out position by position."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard import recipe as recipes
from regard.apps.cli import main
from regard.errors import DataError, ModelError
from regard.language.cache import MOST, SHARES, Cache
from regard.language.measure import choose_cache, perplexities
from regard.language.open import Pipeline, open_bundle
from regard.tasks.fit import fit
from regard.text import BEGIN, END, write_lines


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text whose lines say one word again and again, and a model of each kind that hardly knows it."""
    folder, draw = tmp_path_factory.mktemp("cache"), random.Random(1)
    words = [f"w{i}" for i in range(40)]
    for name, count in (("train", 60), ("dev", 12), ("test", 12)):
        lines = []
        for _ in range(count):
            said = draw.sample(words, 2)
            lines.append(" ".join(draw.choices(said, k=8)))
        write_lines(folder / name, lines)
    text = {"text": str(folder / "train"), "valid_text": str(folder / "dev")}
    train = {"max_updates": 30, "average": "none", "learning_rate": 5e-3, "schedule": "constant", "warmup": 0}
    gpt = {"family": "gpt", "width": 16, "heads": 2, "layers": 1, "max_positions": 24}
    lstm = {"family": "rnn-lm", "width": 16, "embedding": 16, "layers": 1, "carry": True}
    for name, data, model in (
        ("carried", {**text, "context": 7, "batch_tokens": 28}, lstm),
        ("stream", {**text, "context": 7}, gpt),
        ("lines", text, gpt),
    ):
        tables = {"data": data, "text": {"kind": "words"}, "model": model, "train": train}
        fit(recipes.validate(tables), folder / name)
    return folder


def _lines(path: Path) -> list[str]:
    return path.read_text("utf-8").split("\n")[:-1]


def _by_hand(opened: Pipeline, lines: list[str], cache: Cache) -> float:
    """The text's log-probability: a step at a time, each with a sum over the positions that came before."""
    model: Any = opened.model_for("exact")
    size, carry = opened.capacity or opened.recipe.data.context, opened.recipe.carries
    rows = [([BEGIN, *opened.encode(line)], [*opened.encode(line), END], 0) for line in lines]
    if opened.recipe.data.context:
        stream = [END, *(x for line in lines for x in [*opened.encode(line), END])]
        ends = [*range(size, len(stream) - 1, size), len(stream) - 1]
        # Of a model without a state to carry, the last window sees a whole one, and scores what is left.
        begins = [end - size if not carry else size * i for i, end in enumerate(ends)]
        firsts = [size * i - begin for i, begin in enumerate(begins)]
        rows = [(stream[a:b], stream[a + 1 : b + 1], c) for a, b, c in zip(begins, ends, firsts, strict=True)]
    total, seen, state = 0.0, [], model.start()
    with torch.inference_mode():
        for read, targets, first in rows:
            hidden, state = model.decode(torch.tensor([read]), state if carry else model.start())
            for h, target in zip(hidden[0, first:], targets[first:], strict=True):
                probability = float(model.project(h).double().softmax(-1)[target])
                back = seen[-cache.size :]
                if back:
                    weights = [math.exp(cache.flatness * float(h.double() @ key)) for key, _ in back]
                    again = sum(w for w, (_, word) in zip(weights, back, strict=True) if word == target) / sum(weights)
                    probability = (1 - cache.share) * probability + cache.share * again
                total += math.log(probability)
                seen.append((h.double(), target))
    return total


@pytest.mark.parametrize("name", ["carried", "stream", "lines"])
@pytest.mark.parametrize("size", [1, 5, 200])
def test_it_is_the_formula(folder: Path, name: str, size: int) -> None:
    opened, lines = open_bundle(folder / name / "bundle", ["language-model"]), _lines(folder / "test")
    cache = Cache(size, 0.7, 0.3)
    found = perplexities(opened, lines, cache=cache, precision="exact")["token"]
    known = _by_hand(opened, lines, cache)
    assert found.detail["nats"] * found.detail["count"] == pytest.approx(-known, rel=1e-9)


def test_without_a_share_it_is_the_model(folder: Path) -> None:
    lines = _lines(folder / "test")
    plain = regard.perplexities(folder / "stream" / "bundle", lines)["word"].value
    assert perplexities(folder / "stream" / "bundle", lines, cache=Cache(50, 1.0, 0.0))["word"].value == pytest.approx(
        plain, rel=1e-6
    )


@pytest.mark.parametrize("name", ["carried", "lines"])
def test_a_long_window_in_parts_is_the_same(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, lines = open_bundle(folder / name / "bundle", ["language-model"]), _lines(folder / "test")
    whole = perplexities(opened, lines, cache=Cache(6, 0.7, 0.3), precision="exact")["token"].value
    monkeypatch.setattr("regard.language.cache._PART", 2)
    parts = perplexities(opened, lines, cache=Cache(6, 0.7, 0.3), precision="exact")["token"].value
    assert parts == pytest.approx(whole, rel=1e-12)


def test_what_is_chosen_is_the_best_for_the_text_and_helps_on_another(folder: Path) -> None:
    opened, dev = open_bundle(folder / "carried" / "bundle", ["language-model"]), _lines(folder / "dev")
    cache = choose_cache(opened, dev, 30)
    assert cache.size == 30
    assert cache.share in SHARES
    best = perplexities(opened, dev, cache=cache)["word"].value
    for share in SHARES:
        assert perplexities(opened, dev, cache=Cache(30, cache.flatness, share))["word"].value >= best - 1e-9
    test = _lines(folder / "test")
    assert perplexities(opened, test, cache=cache)["word"].value < 0.8 * perplexities(opened, test)["word"].value


@pytest.mark.parametrize(
    "given", [(0, 1.0, 0.1), (MOST + 1, 1.0, 0.1), (5, -1.0, 0.1), (5, math.nan, 0.1), (5, 1.0, 1.0)]
)
def test_what_cannot_be_is_refused(given: tuple[int, float, float]) -> None:
    with pytest.raises(ModelError, match="from 1 to 20,000 positions"):
        Cache(*given)


def test_who_does_not_read_on_has_no_cache(folder: Path) -> None:
    tables = {
        "data": {"text": str(folder / "train"), "valid_text": str(folder / "dev")},
        "text": {"kind": "words"},
        "model": {"family": "bert", "width": 16, "heads": 2, "layers": 1, "max_positions": 24},
        "train": {"max_updates": 1, "average": "none"},
    }
    reader = fit(recipes.validate(tables), folder / "reader")
    with pytest.raises(ModelError, match="a cache is of a language model"):
        perplexities(reader, ["w1"], cache=Cache(5, 1.0, 0.1))
    with pytest.raises(ModelError, match="a cache is of a language model"):
        choose_cache(reader, ["w1"])
    with pytest.raises(DataError, match="no line to choose"):
        choose_cache(folder / "lines" / "bundle", [])


def test_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["perplexity", str(folder / "carried" / "bundle"), str(folder / "test")]
    assert main([*given, "--cache", "30", "--cache-dev", str(folder / "dev"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cache"]["size"] == 30
    assert main([*given, "--json"]) == 0
    assert found["word"]["value"] < json.loads(capsys.readouterr().out)["word"]["value"]
    assert main([*given, "--cache", "30", "--cache-dev", str(folder / "dev")]) == 0
    assert "cache of 30 positions, flatness " in capsys.readouterr().out
    assert main([*given, "--cache", "30"]) == 2
    assert "--cache-dev FILE; give both, or neither" in capsys.readouterr().err
    assert main([*given, "--cache", "20001", "--cache-dev", str(folder / "dev")]) == 2
    assert "from 1 to 20,000 positions" in capsys.readouterr().err
