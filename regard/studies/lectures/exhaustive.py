"""Search along every path there is: what it costs is a lecture's subject, and what it finds the yardstick of beams."""

from __future__ import annotations

import numpy as np

from regard.search.arrays import Array, like, numpy
from regard.search.hypotheses import Hypothesis, Problem, S


def exhaustive_search(problem: Problem[S], *, n_best: int = 1) -> list[Hypothesis]:
    """The best `n_best` of all sequences of a problem of one sentence, small enough in vocabulary and length."""
    found: list[Hypothesis] = []
    [limit] = problem.max_length.tolist()

    def visit(tokens: Array, state: S, ids: list[int], total: float) -> None:
        log_probabilities, state = problem.step(tokens, state)
        length = len(ids) + 1
        extra = float(problem.bonus(state)[0]) if problem.bonus else 0.0
        values: list[float] = numpy(log_probabilities)[0].astype(np.float64).tolist()
        possible = [(token, total + value) for token, value in enumerate(values) if value > float("-inf")]
        for token, score in possible:
            ends = token == problem.end
            if ends or length >= limit:
                rank = score / problem.penalty(length) + extra
                found.append(Hypothesis(ids if ends else [*ids, token], score, rank, ends))
        for token, score in possible if length < limit else []:
            if token != problem.end:
                row, only = like(problem.first, np.array([token])), like(problem.first, np.array([0]))
                visit(row, state.select(only), [*ids, token], score)

    visit(problem.first, problem.state, [], 0.0)
    return sorted(found, key=lambda h: -h.score)[:n_best]
