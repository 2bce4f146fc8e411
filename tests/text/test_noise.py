"""Mistakes put into lines: what each does, that they are drawn anew and alike, and a model that bears them."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

import regard
from regard import recipe as recipes
from regard.errors import RecipeError
from regard.tasks.fit import batches_of, fit
from regard.tasks.prepare import prepare_for
from regard.text import write_lines
from regard.text.noise import NOISES, noised

LINE, TARGET = "A man, who is tall, plays the guitar.", "Ein Mann, der groß ist, spielt Gitarre."


def _many(name: str, line: str = LINE, times: int = 300) -> list[str]:
    made = [NOISES[name](line, TARGET, Random(seed)) for seed in range(times)]
    assert all(target == TARGET for _, target in made) or name == "emoji"
    return [source for source, _ in made]


def test_typos_change_a_letter_in_fifteen_and_nothing_else() -> None:
    found = _many("typos")
    assert sum(line == LINE for line in found) < 15  # two equal letters swapped, or one typo undoing another
    assert len(set(found)) > 200
    assert all(abs(len(line) - len(LINE)) <= 2 for line in found)
    assert all(line.count(" ") == LINE.count(" ") or " " in line for line in found)
    assert {len(line) - len(LINE) for line in found} >= {-1, 0, 1}
    assert _many("typos", "…", 5) == ["…"] * 5
    assert _many("typos", "一个男人在弹吉他。") != ["一个男人在弹吉他。"] * 300


def test_the_other_kinds_are_what_they_say() -> None:
    assert set(_many("case")) == {LINE.lower(), LINE.upper(), LINE.title()}
    assert set(_many("punctuation")) == {
        LINE[:-1], *(LINE + "." * n for n in (1, 2, 3)), "A man who is tall plays the guitar.",
    }  # fmt: skip
    assert set(_many("punctuation", "no mark")) == {"no mark"}
    assert set(_many("punctuation", "...")) <= {"...", ".."} | {"." * n for n in range(1, 6)}
    spaced = set(_many("spaces"))
    assert all(line.replace(" ", "") == LINE.replace(" ", "") and line != LINE for line in spaced)
    assert set(_many("spaces", "word")) == {"word"}
    for seed in range(20):
        source, target = NOISES["emoji"](LINE, TARGET, Random(seed))
        assert (source.removeprefix(LINE), LINE) == (target.removeprefix(TARGET), source[: len(LINE)])
        assert len(source) > len(LINE) + 1


def test_each_is_put_into_its_share_of_the_lines_and_tags_stay() -> None:
    tagged = f"<2de> {LINE}"
    changed = sum(noised((tagged, TARGET), {"case": 0.3}, Random(seed))[0] != tagged for seed in range(2000))
    assert 0.26 < changed / 2000 < 0.34
    everything = dict.fromkeys(NOISES, 1.0)
    for seed in range(200):
        source, _ = noised((tagged, TARGET), everything, Random(seed))
        assert source.startswith("<2de>")
    assert noised(("", TARGET), everything, Random(1)) == ("", TARGET)


def _tables(folder: Path, **text: Any) -> dict[str, Any]:
    """Lines of words, to be turned round letter by letter; mistakes of case alone are put into them."""
    draw = Random(3)
    lines = ["".join(draw.choices("abcdefgh", k=draw.randint(2, 4))) for _ in range(400)]
    write_lines(folder / "source", lines)
    write_lines(folder / "target", [line[::-1] for line in lines])
    return {
        "data": {"source": str(folder / "source"), "target": str(folder / "target"), "valid_lines": 20,
                 "batch_tokens": 400},
        "text": {"kind": "characters", "size": 300, "shrink": True, **text},
        "model": {"width": 32, "heads": 2, "feedforward": 64, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.0},
        "train": {"max_updates": 900, "warmup": 40, "schedule": "linear", "learning_rate": 5e-3, "average": "none",
                  "save_every": 400, "validate_every": 400, "precision": "float32", "label_smoothing": 0.0},
        "search": {"beam": 1, "extra_length": 3},
    }  # fmt: skip


def test_the_noise_of_a_line_depends_on_seed_epoch_and_line_alone(tmp_path: Path) -> None:
    recipe = recipes.validate(_tables(tmp_path, noise={"case": 0.5}))
    prepared = prepare_for(recipe, tmp_path / "run")

    def epoch(number: int, tokens: int) -> dict[int, list[int]]:
        batches, found = batches_of(recipe, prepared, tokens), {}
        batches.seek({"epoch": number, "pool": 0, "batch": 0})
        while batches.epoch == number:
            batch = next(batches)
            rows = zip(batch.lines.tolist(), batch.source, batch.source_lengths.tolist(), strict=True)
            found |= {line: row[:n].tolist() for line, row, n in rows} if batch.layout == "padded" else {}
        return found

    first = epoch(0, 200)
    assert first == epoch(0, 350)
    other = epoch(1, 200)
    changed = sum(first[line] != other[line] for line in first)
    assert first.keys() == other.keys()
    assert changed > len(first) / 3 or not first


def test_a_model_bears_what_it_was_shown(tmp_path: Path) -> None:
    found = {}
    for name, noise in (("plain", {}), ("noise", {"case": 0.6})):
        made = regard.load(fit(recipes.validate(_tables(tmp_path, noise=noise)), tmp_path / name))
        lines = (tmp_path / "source").read_text("utf-8").split()[:50]
        for kind, given in (("quiet", lines), ("loud", [line.upper() for line in lines])):
            texts = [translation.text for translation in made.translate(given)]
            found[name, kind] = sum(text == line[::-1] for text, line in zip(texts, lines, strict=True))
    assert found["plain", "quiet"] > 40
    assert found["plain", "loud"] < 5
    assert found["noise", "quiet"] > 40
    assert found["noise", "loud"] > 40


def test_what_cannot_be_put_in_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"no 'typo'; choose among typos, case"):
        recipes.validate(_tables(tmp_path, noise={"typo": 0.1}))
    with pytest.raises(RecipeError, match="choose from 0 to 1"):
        recipes.validate(_tables(tmp_path, noise={"typos": 1.5}))
    with pytest.raises(RecipeError, match="leave it out"):
        recipes.validate({"data": {"text": "a"}, "text": {"noise": {"typos": 0.1}}, "model": {"family": "gpt"}})
