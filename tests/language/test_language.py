"""The words of models of one side, as they are typed."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard import recipe as recipes
from regard.apps.cli import main
from regard.errors import TextError
from regard.parsing.phrases import LONGEST_SWAPPED, phrases
from regard.tasks.fit import fit
from regard.text import write_lines


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A bundle of each kind, hardly trained."""
    folder = tmp_path_factory.mktemp("bundles")
    draw = random.Random(1)
    lines = [" ".join(draw.choices("abcdef", k=draw.randint(2, 6))) for _ in range(60)]
    write_lines(folder / "text", lines)
    write_lines(folder / "labelled", [f"{'yes' if 'a' in line else 'no'} {line}" for line in lines])
    sizes = {"width": 16, "heads": 2, "layers": 1, "max_positions": 24}
    text = {"text": str(folder / "text"), "valid_text": str(folder / "text")}
    labels = {"source": str(folder / "labelled"), "labels": "first", "valid_lines": 5}
    train = {"max_updates": 2, "average": "none"}
    made = {}
    for kind, data, spelling, family in (
        ("stream", {**text, "context": 12}, {"kind": "characters", "byte_fallback": False}, "gpt"),
        ("lines", text, {"kind": "words"}, "gpt"),
        ("reader", text, {"kind": "words"}, "bert"),
        ("classifier", labels, {"kind": "words", "target_kind": "words", "joint": False}, "bert-classifier"),
    ):
        tables = {"data": data, "text": spelling, "model": {**sizes, "family": family}, "train": train}
        made[kind] = fit(recipes.validate(tables), folder / kind)
    return made


def _run(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main([str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out


def _refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main([str(argument) for argument in arguments]) == 2
    return capsys.readouterr().err


def test_generate(bundles: dict[str, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    shown = _run(capsys, "generate", bundles["stream"], "a b", "--max-length", 30, "--temperature", 0.9, "--seed", 3)
    again = _run(
        capsys,
        "generate",
        bundles["stream"],
        "a b",
        "--max-length",
        30,
        "--temperature",
        0.9,
        "--no-stream",
        "--seed",
        3,
    )
    assert shown == again
    assert shown.startswith("a b")
    assert len(shown) == 34
    several = json.loads(_run(capsys, "generate", bundles["lines"], "a", "--samples", 3, "--max-length", 4, "--json"))
    assert len(several) == 3
    assert all(one["log_probability"] < 0 for one in several)
    write_lines(tmp_path / "prompt", ["a b", "c"])
    long = _run(capsys, "generate", bundles["stream"], "--file", tmp_path / "prompt", "--max-length", 1, "--beam", 1)
    assert long.startswith("a b\nc\n")
    assert "leave one of the two out" in _refused(
        capsys, "generate", bundles["stream"], "x", "--file", tmp_path / "prompt"
    )
    assert "is a masked language model; use `regard fill`" in _refused(capsys, "generate", bundles["reader"])
    assert "set samples to at least 1" in _refused(capsys, "generate", bundles["lines"], "--samples", 0, "--top-k", 5)
    assert "line 1 contains a line break" in _refused(capsys, "generate", bundles["lines"], "a\nb")


def test_fill(bundles: dict[str, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    lines = io.TextIOWrapper(io.BytesIO(b"a <mask> b\n<mask> <mask>\n"))
    monkeypatch.setattr("sys.stdin", lines)
    rows = [line.split("\t") for line in _run(capsys, "fill", bundles["reader"], "--top", 2).splitlines()]
    assert [row[:2] for row in rows] == [["1", "1"], ["2", "1"], ["2", "2"]]
    assert all(len(row) == 4 for row in rows)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a b\n")))
    assert "line 1 ('a b') has no <mask>" in _refused(capsys, "fill", bundles["reader"])


def test_classify_and_embed(bundles: dict[str, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write_lines(tmp_path / "lines", ["a b", "c", "zebra"])
    rows = _run(capsys, "classify", bundles["classifier"], tmp_path / "lines").splitlines()
    assert [row.split()[0] in ("yes", "no") for row in rows] == [True] * 3
    records = _run(capsys, "classify", bundles["classifier"], tmp_path / "lines", "--top", 2, "--json").splitlines()
    assert [len(json.loads(record)["labels"]) for record in records] == [2, 2, 2]
    for kind in ("classifier", "reader", "lines"):
        _run(capsys, "embed", bundles[kind], tmp_path / "lines", "--output", tmp_path / "v.npy")
        vectors = np.load(tmp_path / "v.npy")
        shown = _run(capsys, "embed", bundles[kind], tmp_path / "lines").splitlines()
        np.testing.assert_allclose([json.loads(line) for line in shown], vectors, atol=1e-6)
        assert vectors.shape == (3, 16)


def test_perplexity_and_evaluate(bundles: dict[str, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write_lines(tmp_path / "text", ["a b c", "d"])
    shown = _run(capsys, "perplexity", bundles["stream"], tmp_path / "text").splitlines()
    assert [line.split(" per ")[1].split(":")[0] for line in shown] == ["token", "word", "character"]
    told = json.loads(_run(capsys, "evaluate", bundles["lines"], "--source", tmp_path / "text", "--json"))["scores"]
    assert told["word"]["detail"]["count"] == 6
    write_lines(tmp_path / "labels", ["yes", "no"])
    accuracy = _run(
        capsys, "evaluate", bundles["classifier"], "--source", tmp_path / "text", "--reference", tmp_path / "labels"
    )
    assert accuracy.startswith("accuracy ")
    assert "0 labels" in _refused(capsys, "evaluate", bundles["classifier"], "--source", tmp_path / "text")
    assert "leave the second text out" in _refused(
        capsys, "perplexity", bundles["lines"], tmp_path / "text", tmp_path / "text"
    )


def test_phrases_of_a_treebank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_lines(tmp_path / "trees", ["(3 (2 It) (4 (2 's) (4 fun)))", "(1 (2 It) (0 bores))", "(2 meh)"])
    assert list(phrases(tmp_path / "trees")) == [
        *("3 It 's fun", "2 It", "4 's fun", "2 's", "4 fun", "1 It bores", "0 bores", "2 meh")
    ]
    assert list(phrases(tmp_path / "trees", whole=True)) == ["3 It 's fun", "1 It bores", "2 meh"]
    _run(capsys, "phrases", tmp_path / "trees", "--binary", "--output", tmp_path / "out")
    assert (tmp_path / "out").read_text().splitlines() == [
        *("positive It 's fun", "positive 's fun", "positive fun", "negative It bores", "negative bores")
    ]
    write_lines(tmp_path / "wrong", ["(NP (2 a) (2 b))"])
    with pytest.raises(TextError, match="none of 0 to 4"):
        list(phrases(tmp_path / "wrong", binary=True))


def _swapped(treebank: Path, swaps: int, **keys: Any) -> list[str]:
    """The new sentences alone."""
    old = len(list(phrases(treebank, whole=True, binary=keys.get("binary", False))))
    return list(phrases(treebank, whole=True, swaps=swaps, **keys))[old:]


def test_phrases_that_are_swapped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nouns = [("cat", 2), ("joy", 3), ("bore", 1), ("delight", 3), ("pain", 1), ("gift", 3)]
    sides = {"dull": 1, "sad": 1, "grim": 1, "fine": 3, "glad": 3, "warm": 3, "long": 2, "wide": 2}
    trees = [
        f"({side} ({tone} (2 the) ({tone} {noun})) ({side} (2 is) ({side} {word})))"
        for noun, tone in nouns
        for word, side in sides.items()
    ]
    write_lines(tmp_path / "trees", trees)
    new = [line.split() for line in _swapped(tmp_path / "trees", 3, share=0.5)]
    assert len(new) == 3 * len(trees)
    tones = dict(nouns)
    old = [line.split() for line in phrases(tmp_path / "trees", whole=True)]
    for line, before in zip(new, [line for line in old for _ in range(3)], strict=True):
        label, the, noun, verb, word = line
        assert (label, the, verb) == (before[0], "the", "is"), "a sentence keeps its label, a phrase its frequent word"
        assert (tones[noun], sides[word]) == (tones[before[2]], sides[before[4]]), "a phrase gives way to its equals"
    assert sum(line[1:] != before[1:] for line, before in zip(new[::3], old, strict=True)) > len(trees) / 2
    assert [" ".join(line) for line in new] == _swapped(tmp_path / "trees", 3, share=0.5), "the same seed"
    assert [" ".join(line) for line in new] != _swapped(tmp_path / "trees", 3, share=0.5, seed=2)
    sided = _swapped(tmp_path / "trees", 1, binary=True)
    assert {line.split()[0] for line in sided} == {"negative", "positive"}
    assert len(sided) == sum(side != 2 for side in sides.values()) * len(nouns), "neutral sentences are left out"
    for more in (0, 1):  # the longest phrase that is swapped, and one that is too long
        words = range(LONGEST_SWAPPED - 1 + more)
        write_lines(
            tmp_path / "long",
            [f"(3 (2 so) (3 (2 the) {' '.join(f'(2 {letter}{i})' for i in words)}))" for letter in "abc"],
        )
        kept = list(phrases(tmp_path / "long", whole=True))
        assert (_swapped(tmp_path / "long", 1, share=0.0) == kept) == bool(more)
    write_lines(tmp_path / "few", ["(3 (1 a) (4 b))"])
    assert _swapped(tmp_path / "few", 1) == ["3 a b"], "a phrase without equals stays"
    write_lines(tmp_path / "outer", ["(ROOT (3 (2 a) (3 b)) (1 c))", "( (2 meh))"])
    assert _swapped(tmp_path / "outer", 1) == list(phrases(tmp_path / "outer", whole=True)) == ["3 a b", "2 meh"]
    _run(capsys, "phrases", tmp_path / "trees", "--whole", "--swaps", 2, "--output", tmp_path / "out")
    assert len((tmp_path / "out").read_text().splitlines()) == 3 * len(trees)
    write_lines(tmp_path / "wrong", ["(NP (2 a) (2 b))"])
    with pytest.raises(TextError, match="none of 0 to 4"):
        _swapped(tmp_path / "wrong", 1, binary=True)
    assert "--share" in _refused(capsys, "phrases", tmp_path / "trees", "--share", 2, "--output", tmp_path / "out")
    alone = _refused(capsys, "phrases", tmp_path / "trees", "--seed", 2, "--output", tmp_path / "out")
    assert "(--swaps N)" in alone
    with pytest.raises(TextError, match="--swaps N"):
        list(phrases(tmp_path / "trees", share=0.5))
