"""Corpora made one: how often each pair stands there, tags, and what is refused."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

import regard
from regard.apps.cli import main
from regard.errors import DataError, RegardError, TextError
from regard.text import read_lines, write_lines

SIZES = {"news": 4000, "talks": 400, "jokes": 40}
RECIPE = """
[data]
source = "all.en"
target = "all.de"
[text]
size = 320
shrink = true
symbols = ["<news>", "<talks>", "<jokes>"]
[model]
width = 16
heads = 2
feedforward = 16
encoder_layers = 1
decoder_layers = 1
[train]
max_updates = 2
average = "none"
precision = "float32"
[search]
beam = 1
extra_length = 2
"""


@pytest.fixture
def corpora(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[str, str]]:
    monkeypatch.chdir(tmp_path)
    for name, size in SIZES.items():
        write_lines(f"{name}.en", [f"{name} {i}" for i in range(size)])
        write_lines(f"{name}.de", [f"{name} {i} auf Deutsch" for i in range(size)])
    return {name: (f"{name}.en", f"{name}.de") for name in SIZES}


@pytest.mark.parametrize("temperature", [1.0, 2.0, 5.0])
def test_a_corpus_counts_as_the_temperature_says(corpora: dict[str, tuple[str, str]], temperature: float) -> None:
    made = regard.mix(corpora, ("all.en", "all.de"), temperature=temperature, most=1000)
    source, target = read_lines("all.en"), read_lines("all.de")
    assert [f"{line} auf Deutsch" for line in source] == target
    found = Counter(line.split()[0] for line in source)
    wanted = {name: size ** (1 / temperature) for name, size in SIZES.items()}
    for name in SIZES:
        assert found[name] / found["news"] == pytest.approx(wanted[name] / wanted["news"], rel=0.05)
    assert found["news"] == 4000, "the largest stands there once"
    assert dict(found) == made.written
    times = Counter(source)
    assert len(times) == sum(SIZES.values()), "no pair is lost"
    for name in SIZES:
        each = {count for line, count in times.items() if line.startswith(name)}
        assert max(each) - min(each) <= 1
    before = Path("all.en").read_bytes()
    regard.mix(corpora, ("all.en", "all.de"), temperature=temperature, most=1000)
    assert Path("all.en").read_bytes() == before
    if temperature == 2.0:  # of talks each line 3.16 times
        regard.mix(corpora, ("other.en", "other.de"), temperature=temperature, most=1000, seed=2)
        assert Path("other.en").read_bytes() != before


def test_a_tagged_mixture_is_learnt_from(
    corpora: dict[str, tuple[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    words = [f"{name}={source},{target}" for name, (source, target) in corpora.items()]
    command = ["mix", *words, "--out", "all.en", "all.de", "--temperature", "5", "--most", "3", "--tag"]
    assert main(command) == 0
    told = capsys.readouterr()
    assert told.out.split() == ["all.en", "all.de"]
    assert "symbols = ['<news>', '<talks>', '<jokes>']" in told.err
    lines = Counter(read_lines("all.en"))
    assert lines["<jokes> jokes 7"] == 3
    assert lines["<news> news 7"] == 1
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["repeats"]["jokes"] == 3
    assert found["pairs"] == SIZES
    assert found["files"] == ["all.en", "all.de"]
    Path("mixed.toml").write_text(RECIPE)
    bundle = regard.fit(regard.load_recipe("mixed.toml"), "run")
    assert regard.load(bundle).translate(["<jokes> jokes 7"])


def test_what_cannot_be_mixed(corpora: dict[str, tuple[str, str]], capsys: pytest.CaptureFixture[str]) -> None:
    write_lines("short.de", ["eins"])
    out = ("all.en", "all.de")
    refused: list[tuple[dict[str, tuple[str, str]], dict[str, float], type[RegardError], str]] = [
        ({}, {}, DataError, "there must be a corpus"),
        (corpora, {"temperature": 0.5}, DataError, "at least 1"),
        ({"a b": corpora["news"]}, {}, DataError, "'a b': a corpus has a name"),
        ({"news": ("news.en", "short.de")}, {}, TextError, "news.en has 4,000 lines and short.de 1"),
        ({"news": ("all.en", "news.de")}, {}, TextError, "must be two new files"),
        ({"news": ("nowhere.en", "news.de")}, {}, TextError, "nowhere.en: there is no such file"),
    ]
    for given, options, error, says in refused:
        with pytest.raises(error, match=says):
            regard.mix(given, out, **options)
    assert not Path("all.en").exists()
    for words in (["news=news.en"], ["news.en,news.de"], ["a=news.en,news.de", "a=talks.en,talks.de"]):
        assert main(["mix", *words, "--out", *out]) == 2
        assert "NAME=SOURCE,TARGET" in " ".join(capsys.readouterr().err.split())
