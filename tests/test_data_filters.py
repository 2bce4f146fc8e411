"""Filters: what is dropped, why, and that it is counted."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from regard.data import Filters, Report
from regard.data.filters import Repeats

STRICT = Filters(max_length=10, max_ratio=3, drop_duplicates=True, drop_identical=True)


@pytest.mark.parametrize(
    ("pair", "pieces", "reason"),
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
def test_each_rule(pair: tuple[str, str], pieces: tuple[int, int], reason: str | None) -> None:
    assert STRICT.reason(*pair, *pieces, again=False) == reason
    assert STRICT.reason(*pair, *pieces, again=True) == (reason or "duplicate"), "any other reason goes first"


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
    assert Report(**json.loads(json.dumps(report.to_dict()))) == report
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
