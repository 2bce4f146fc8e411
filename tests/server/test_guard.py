"""What is done about translations that go wrong, and what is said of them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from regard.search.table import Options
from regard.server.guard import guarded, is_degenerate, lost, repeats
from regard.tasks.translation import Translation


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 1),
        ("a b c", 1),
        ("salad salad salad", 3),
        ("a b a b a b c", 3),
        ("no, no, no, no!", 4),
        ("not the same the same", 2),
        ("很很很很", 4),
    ],
)
def test_repeats(text: str, count: int) -> None:
    assert repeats(text) == count


def test_degenerate_translations_are_searched_again() -> None:
    asked: list[tuple[list[str], Options]] = []

    def translate(lines: Sequence[str], options: Options) -> list[Translation]:
        asked.append(([*lines], options))
        return [Translation("ein Salat") if line == "a salad" else Translation("x x x x x") for line in lines]

    lines = ["a salad", "fine", "no no no no no", "worse"]
    texts = ["Salat Salat Salat Salat", "gut", "nein nein nein nein nein", "schlimm schlimm schlimm schlimm schlimm"]
    found = guarded(lines, [Translation(text) for text in texts], translate, Options(n_best=2))
    assert [each.text for each in found] == ["ein Salat", *texts[1:]]
    assert asked == [(["a salad", "worse"], Options(n_best=2, search={"no_repeat_ngram_size": 3}))]
    assert is_degenerate("a", Translation("b", ended=False))


def test_nothing_is_asked_again_where_nothing_is_wrong() -> None:
    found = [Translation("a b"), Translation("c c")]
    assert guarded(["a b", "c c"], found, lambda lines, options: pytest.fail("asked"), Options()) == found


@pytest.mark.parametrize(
    ("source", "text", "missing"),
    [
        ("It costs 1,000.50 now", "Es kostet 1.000,50 jetzt", []),
        ("7 of 12", "7 von zwölf", ["12"]),
        ("write to a.b@c.org or https://x.org/a?b=1.", "an a.b@c.org", ["https://x.org/a?b=1"]),
        ("{name} has %d and %1$s", "{name} hat %1$s", ["%d"]),
        ("2 and 2", "2", ["2"]),
    ],
)
def test_lost(source: str, text: str, missing: list[str]) -> None:
    assert lost(source, text) == missing
