"""Filters: what is dropped, why, and that it is counted."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict
from pathlib import Path

import pytest
from pydantic import ValidationError

from regard import recipe
from regard.data.corpus import Overlap
from regard.data.shards import Repeats, Report
from regard.settings import Filters
from regard.tasks.prepare import _learnt_from
from regard.text import read_lines
from regard.text.lines import read_pairs

RECIPES = Path(__file__).resolve().parents[2] / "recipes"

STRICT = Filters(max_length=10, max_ratio=3, drop_duplicates=True, drop_identical=True)


@pytest.mark.parametrize(
    ("pair", "tokens", "reason"),
    [
        (("Hi there", "Hallo"), (2, 1), None),
        (("", "Hallo"), (0, 1), "empty"),
        (("Hi", " \t"), (1, 2), "empty"),
        (("Taxi", "Taxi "), (1, 1), "identical"),
        (("<2de> Taxi", "Taxi"), (2, 1), "identical"),
        (("a", "b"), (10, 10), None),
        (("a", "b"), (11, 10), "long"),
        (("a", "b"), (10, 11), "long"),
        (("a", "b"), (2, 8), None),
        (("a", "b"), (2, 9), "ratio"),
        (("a", "b"), (9, 2), "ratio"),
    ],
)
def test_each_rule(pair: tuple[str, str], tokens: tuple[int, int], reason: str | None) -> None:
    assert STRICT.reason(*pair, *tokens, again=False) == reason
    assert STRICT.reason(*pair, *tokens, again=True) == (reason or "duplicate"), "any other reason goes first"


def test_a_pair_occurs_again_only_with_both_its_sides() -> None:
    repeats = Repeats()
    pairs = [("a", "b"), ("a", "c"), ("b", "b c"), ("a", "b"), ("ab", ""), ("a", "c"), ("a\0", "b")]
    assert [repeats.again(*pair) for pair in pairs] == [False, False, False, True, False, True, False]


def test_by_default_only_what_cannot_be_learnt_from_is_dropped() -> None:
    pairs = [("OK", "OK", 1, 1), ("OK", "OK", 1, 1), ("Yes.", "你好，世界。" * 5, 2, 20), ("", "", 0, 0)]
    assert [Filters().reason(*pair, again=True) for pair in pairs] == [None, None, None, "empty"]


def test_a_report_counts_every_pair_once() -> None:
    report = Report()
    for line, reason in enumerate([None, "empty", "long", None, "empty"], start=1):
        report.count(line, reason)
    assert str(report) == "5 pairs read, 2 kept; dropped: 2 empty (line 2), 1 long (line 3)"
    assert report.kept + sum(report.dropped.values()) == report.read
    assert Report(**json.loads(json.dumps(asdict(report)))) == report
    assert str(Report(1000, 1000)) == "1,000 pairs read, 1,000 kept"


def test_reports_of_parts_add_up_to_that_of_the_whole() -> None:
    reasons = [None, "empty", "long", None, "empty", "ratio", "long"]
    whole, first, second = Report(), Report(), Report()
    for line, reason in enumerate(reasons, start=1):
        whole.count(line, reason)
        (first if line < 3 else second).count(line, reason)
    first.add(second)
    assert (first, str(first)) == (whole, str(whole))


@pytest.mark.parametrize("wrong", [{"max_length": 0}, {"max_ratio": 0.5}, {"max_len": 3}])
def test_wrong_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        Filters.model_validate(wrong)


# -- text that is not to be learnt from --------------------------------------------------------------------------------

PASSAGE = ["先帝创业未半而中道崩殂，今天下三分。", "Two roads diverged in a yellow wood,", "Fin."]


@pytest.mark.parametrize(
    ("line", "shares"),
    [
        ("先帝创业未半而中道崩殂，今天下三分。", True),
        ("上疏曰： 先帝创业未半，而中道崩殂。", True),  # punctuation does not count
        ("中道崩殂今天", True),  # nor does it part
        ("先帝创业", False),  # four in a row
        ("先帝之创业未半，今天下乃三分", False),
        ("And so TWO ROADS diverged; in a wood", True),
        ("in a yellow wood two roads", False),  # a row ends where a line ends
        ("fin", True),  # all of a short line
        ("Fin fin", False),
        ("", False),
        ("，。", False),
    ],
)
def test_lines_with_five_words_or_characters_in_a_row_share_text(line: str, shares: bool) -> None:
    assert (line in Overlap(PASSAGE, 5)) is shares


def test_the_opening_that_a_recipe_is_to_translate_unseen_is_not_learnt_from() -> None:
    if not (folder := os.environ.get("REGARD_DATA")) or not (data := Path(folder) / "classical_modern_zh").is_dir():
        pytest.skip("REGARD_DATA names no folder with classical_modern_zh")
    made = recipe.load(RECIPES / "classical-modern-zh" / "transformer.toml", variables={"REGARD_DATA": folder})
    passage = read_lines(RECIPES / "classical-modern-zh" / "chu-shi-biao.txt")
    learnt = _learnt_from(None, made.data.model_copy(update={"exclude": str(RECIPES.parent / made.data.excludes[0])}))
    assert learnt is not None
    # Another way to the same: the passage without punctuation, cut into all its fives, sought in the raw text.
    bare = re.sub(r"[^\w\n]", "", "\n".join(passage))
    fives = {line[i : i + 5] for line in bare.split("\n") for i in range(len(line) - 4)}
    pairs = list(read_pairs(data / "train.lzh.gz", data / "train.zh.gz"))
    found = set()
    for side in (0, 1):
        text = re.sub(r"[^\w\n]", "", "\n".join(pair[side] for pair in pairs))
        found |= {text.count("\n", 0, hit.start()) for hit in re.finditer("|".join(fives), text)}
    assert any("侍卫之臣不懈於内" in pairs[line][0] for line in found), "a variant of another history"
    assert [pairs[line] for line in found if learnt(pairs[line])] == []
    assert sum(map(learnt, pairs[:2000])) == 2000, "what has nothing of it stays"
