"""Exact search finds what going through every sequence finds, in fewer steps, and says so where it gave up."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_laws_search import History, _start, _table

from regard import extensions
from regard.errors import ModelError, RegardWarning
from regard.search.hypotheses import Problem
from regard.search.table import SEARCHES, SearchConfig, penalty_of, search_of
from regard.studies.exact import exact_search
from regard.studies.lectures.exhaustive import exhaustive_search


def _problem(seed: int, limit: int, penalty: Any, **more: Any) -> Problem[History]:
    return Problem(_table(seed, 1.5), *_start(1), torch.tensor([limit]), 3, penalty, **more)


@given(
    *(st.integers(0, 10_000), st.sampled_from(["gnmt", "power", "none"]), st.floats(0, 2)),
    *(st.integers(1, 5), st.integers(1, 3)),
)
@settings(max_examples=40, deadline=None)
def test_it_finds_what_going_through_all_finds(seed: int, name: str, alpha: float, limit: int, n_best: int) -> None:
    problem = _problem(seed, limit, penalty_of(name, alpha))
    found = exact_search(problem, most_steps=10_000, n_best=n_best)
    best = exhaustive_search(problem, n_best=n_best)
    assert found.finished
    assert [h.ids for h in found.hypotheses] == [h.ids for h in best]
    assert [h.score for h in found.hypotheses] == pytest.approx([h.score for h in best])
    assert [h.ended for h in found.hypotheses] == [h.ended for h in best]


def test_what_a_state_takes_from_a_score_counts() -> None:
    def bonus(state: History) -> Any:
        return -0.4 * (state.prefix[:, 1:] == 1).sum(-1).double().numpy()

    for seed in range(5):
        problem = _problem(seed, 4, penalty_of("none", 0.0), bonus=bonus)
        assert [h.ids for h in exact_search(problem, most_steps=10_000).hypotheses] == [
            h.ids for h in exhaustive_search(problem)
        ]


def test_a_bound_saves_most_steps() -> None:
    problem = _problem(3, 7, penalty_of("none", 0.0))
    assert exact_search(problem, most_steps=10_000).steps < 200 < sum(3**length for length in range(7))


def test_giving_up_is_said_and_the_line_is_named() -> None:
    problem = Problem(_table(1, 0.1), *_start(2), torch.tensor([6, 6]), 3, penalty_of("power", 2.0), lines=(4, 9))
    with pytest.warns(RegardWarning, match=r"line [49]: exact search did not finish in 8 steps") as warned:
        found = SEARCHES["exact"].run(problem, SearchConfig(method="exact", most_steps=8), 1)
    assert len(warned) == 2
    assert all(each[0].score > -np.inf for each in found)


def test_other_searches_take_no_limit_of_steps() -> None:
    with pytest.raises(ModelError, match="the search beam takes no most_steps; leave that out"):
        search_of(SearchConfig(method="beam", most_steps=5))


def test_the_command_line_knows_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(SEARCHES, "exact")
    monkeypatch.delitem(sys.modules, "regard.studies.exact")
    monkeypatch.setattr(extensions, "_looked", False)
    assert search_of(SearchConfig(method="exact")).settings >= {"most_steps"}
