"""Edit distances to many lines at once equal the classic table's; the nearest line is the nearest."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.studies.demo.corpus import corpus
from regard.studies.demo.nearest import Nearest, distances

LINES = st.text(st.sampled_from("ab1年\U0001f600"), max_size=64)


def classic(a: str, b: str) -> int:
    """Wagner and Fischer's table, row by row."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        above, row = row, [i]
        for j, y in enumerate(b, 1):
            row.append(min(above[j] + 1, row[-1] + 1, above[j - 1] + (x != y)))
    return row[-1]


@given(LINES, LINES)
def test_distance_is_the_classic_table_s(a: str, b: str) -> None:
    codes = np.array([[ord(c) for c in b]] * 2, dtype=np.int32).reshape(2, len(b))
    assert distances(a, codes).tolist() == [classic(a, b)] * 2


@given(LINES, st.lists(LINES, min_size=1, max_size=20))
def test_the_nearest_line_is_found(line: str, lines: list[str]) -> None:
    number, distance = Nearest(lines).find(line)
    assert distance == classic(line, lines[number]) == min(classic(line, other) for other in lines)


def test_a_line_of_the_corpus_is_nearest_to_itself() -> None:
    lines = sorted({example.source for example in corpus("train", per_cell=20)})
    nearest = Nearest(lines)
    assert all(nearest.find(line) == (number, 0) for number, line in enumerate(lines) if number % 9 == 0)


def test_equally_near_lines_give_the_first() -> None:
    assert Nearest(["ac", "ab", "ac"]).find("ad") == (0, 1)


def test_nothing_to_search_is_refused() -> None:
    with pytest.raises(ValueError, match="no lines"):
        Nearest([])
