"""The built-in corpus: one right answer a line, held-out values never trained on, every cell equally frequent."""

from __future__ import annotations

import re
import sys
from collections import Counter
from datetime import datetime
from decimal import Decimal

import pytest

from regard.errors import DataError
from regard.studies.demo import corpus as builtin
from regard.studies.demo.corpus import DIRECTIONS, KINDS, LANGUAGES, Example, corpus, known, unlike

PER_CELL = 60


@pytest.fixture(scope="module")
def splits() -> dict[str, list[Example]]:
    return {split: corpus(split, per_cell=PER_CELL) for split in ("train", "valid", "heldout")}


def values(example: Example) -> dict[str, set[str]]:
    """The years, minutes and significant digits in a line's source and target, read from the text alone."""
    found: dict[str, set[str]] = {"year": set(), "minute": set(), "number": set()}
    for text in (example.source.partition(" ")[2], example.target):
        if example.kind in ("number", "amount"):
            found["number"].add(re.sub("[^0-9]", "", text).strip("0"))
        else:
            found["minute"].update(minute.lstrip("0") for minute in re.findall(":([0-9]{2})", text))
            found["year"].update(re.findall("[0-9]{4}", text))
    return found


def test_every_cell_is_equally_frequent(splits: dict[str, list[Example]]) -> None:
    for examples in splits.values():
        cells = Counter((e.source_language, e.target_language, e.kind) for e in examples)
        assert cells == dict.fromkeys([(a, b, kind) for a, b in DIRECTIONS for kind in KINDS], PER_CELL)


def test_a_source_line_has_one_right_answer(splits: dict[str, list[Example]]) -> None:
    answers: dict[str, str] = {}
    for example in [*splits["train"], *splits["heldout"], *corpus("train", per_cell=150, seed=1)]:
        source = builtin.typed(example.source)  # the same line with the space bar means the same
        assert answers.setdefault(source, example.target) == example.target


def test_no_value_occurs_in_two_splits(splits: dict[str, list[Example]]) -> None:
    seen = {split: {what: set[str]() for what in ("year", "minute", "number")} for split in splits}
    for split, examples in splits.items():
        for example in examples:
            for what, digits in values(example).items():
                seen[split][what] |= digits
    for what in ("year", "minute", "number"):
        assert not seen["train"][what] & seen["heldout"][what]
        assert not seen["train"][what] & seen["valid"][what]
        assert not seen["valid"][what] & seen["heldout"][what]
        assert seen["heldout"][what]


def test_source_and_target_carry_the_same_digits(splits: dict[str, list[Example]]) -> None:
    for example in splits["train"]:
        found = values(example)
        assert len(found["number"]) == (example.kind in ("number", "amount"))
        assert len(found["year"]) == (example.kind in ("date", "datetime"))
        assert len(found["minute"]) == (example.kind in ("time", "datetime"))


def test_held_out_lines_differ_within_a_cell(splits: dict[str, list[Example]]) -> None:
    for split in ("valid", "heldout"):
        lines = Counter((e.source, e.source_language) for e in splits[split])
        assert max(lines.values()) == 1


def test_the_same_arguments_make_the_same_corpus() -> None:
    assert corpus("train", per_cell=3, seed=4) == corpus("train", per_cell=3, seed=4)
    assert corpus("train", per_cell=3, seed=4) != corpus("train", per_cell=3, seed=5)


def test_a_moment_reads_as_people_write_it() -> None:
    value = builtin.Value("datetime", "weekday", datetime(2026, 11, 21, 18, 5))
    assert [builtin.typed(builtin.write(value, language)) for language in LANGUAGES] == [
        "Saturday, November 21, 2026 at 6:05 PM",
        "Samstag, 21. November 2026 um 18:05",
        "samedi 21 novembre 2026 à 18:05",
        "2026年11月21日 星期六 下午6:05",
    ]


def test_midnight_and_noon_are_told_apart() -> None:
    midnight, noon = (builtin.Value("time", "plain", datetime(2026, 1, 1, hour, 8)) for hour in (0, 12))
    assert [builtin.typed(builtin.write(midnight, language)) for language in ("en", "de", "zh")] == [
        "12:08 AM",
        "00:08",
        "上午12:08",
    ]
    assert [builtin.typed(builtin.write(noon, language)) for language in ("en", "de", "zh")] == [
        "12:08 PM",
        "12:08",
        "下午12:08",
    ]


def test_numbers_are_exact_in_every_language() -> None:
    written = {language: builtin.write(_number("million", "12300000"), language) for language in LANGUAGES}
    assert written == {"en": "12.3 million", "de": "12,3 Millionen", "fr": "12,3 millions", "zh": "1230万"}
    assert builtin.write(_number("plain", "1234567.8"), "fr") == "1\u202f234\u202f567,8"
    assert builtin.write(_number("percent", "12.5"), "de") == "12,5\u00a0%"


def _number(style: str, number: str) -> builtin.Value:
    return builtin.Value("number", style, number=Decimal(number))


def test_sources_have_both_kinds_of_space_and_targets_cldr_s(splits: dict[str, list[Example]]) -> None:
    amounts = [e for e in splits["train"] if e.kind == "amount" and e.source_language == "fr"]
    assert any("\u202f" in e.source for e in amounts)
    assert any(re.search("[0-9] [0-9]", e.source) for e in amounts)
    assert not any(re.search("[0-9] [0-9]", e.target) for e in splits["train"])


def test_every_line_is_known(splits: dict[str, list[Example]]) -> None:
    for examples in splits.values():
        assert [unlike(e.source) for e in examples if not known(e.source)] == []
    large = corpus("train", per_cell=150, seed=2)
    assert [unlike(e.source) for e in large if not known(e.source)] == []


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("3:05 PM", "does not begin with one of the tags"),
        ("<2es> 3:05 PM", "does not begin with one of the tags"),
        ("", "does not begin with one of the tags"),
        ("<2fr>", 'written like ""'),
        ("<2fr> hello there", 'written like "hello there"; the nearest form is'),
        ("<2de> 05/11/2026", 'written like "05/11/2026"; the nearest form is'),
        ("<2en> 3:05 PM", "is English already"),
        ("<2fr> 3:75 PM", '"3:75"'),
        ("<2fr> 13:05 PM", "no time of day"),
        ("<2fr> 25:05", "no time of day"),
        ("<2fr> 31. März 3026", "the year 3026 is outside 1800 to 2199"),
        ("<2fr> 32. März 2026", "no such day"),
        ("<2fr> 2026年13月1日", "no such day"),
        ("<2en> 12.345.678,90 €", "written like"),
    ],
)
def test_an_unlike_line_is_told_apart_and_why(line: str, says: str) -> None:
    assert not known(line)
    assert says in (unlike(line) or "")


def test_a_line_is_known_with_either_space() -> None:
    assert known("<2fr> 3:05 PM")
    assert known("<2fr> 3:05\u202fPM")
    assert known("<2zh> 1 234,50 €")


def test_the_characters_are_those_of_the_lines(splits: dict[str, list[Example]]) -> None:
    made = {c for examples in splits.values() for e in examples for c in e.source.partition(" ")[2] + e.target}
    assert made <= builtin.characters()
    assert {"亿", "星", "é", "\u202f", "7"} <= builtin.characters()


def test_without_babel_the_message_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    builtin._babel.cache_clear()
    monkeypatch.setitem(sys.modules, "babel.dates", None)
    with pytest.raises(DataError, match=r"pip install '\.\[demo\]'"):
        corpus("train", per_cell=1)
    builtin._babel.cache_clear()


def test_an_unknown_split_is_named() -> None:
    with pytest.raises(DataError, match='no split "test"'):
        corpus("test", per_cell=1)  # type: ignore[arg-type]
