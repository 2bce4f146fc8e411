"""Exhaustive search: every sequence, for vocabularies and lengths small enough; the yardstick of beams."""

from __future__ import annotations

import torch
from torch import Tensor

from .hypotheses import Hypothesis, Problem, S


def exhaustive_search(problem: Problem[S], *, n_best: int = 1) -> list[Hypothesis]:
    """The best `n_best` of all sequences of a problem of one sentence."""
    found: list[Hypothesis] = []
    [limit] = problem.max_length.tolist()

    def visit(tokens: Tensor, state: S, ids: list[int], total: float) -> None:
        log_probabilities, state = problem.step(tokens, state)
        length = len(ids) + 1
        extra = float(problem.bonus(state)[0]) if problem.bonus else 0.0
        values: list[float] = log_probabilities[0].double().tolist()
        possible = {token: total + value for token, value in enumerate(values) if value > float("-inf")}
        for token, score in possible.items():
            if token == problem.end or length >= limit:
                reached = ids if token == problem.end else [*ids, token]
                rank = score / problem.penalty(length) + extra
                found.append(Hypothesis(reached, score, rank, token == problem.end))
        if length >= limit:
            return
        every = state.select(torch.zeros(len(values), dtype=torch.long, device=tokens.device))
        for token, score in possible.items():
            if token != problem.end:
                row = torch.tensor([token], device=tokens.device)
                visit(row, every.select(row), [*ids, token], score)

    visit(problem.first, problem.state, [], 0.0)
    return sorted(found, key=lambda h: -h.score)[:n_best]
