"""Exhaustive search: every sequence, for vocabularies and lengths small enough; the yardstick of beams."""

from __future__ import annotations

import torch
from torch import Tensor

from .hypotheses import Bonus, Hypothesis, S, Step
from .penalties import Penalty

__all__ = ["exhaustive_search"]


def exhaustive_search(
    step: Step[S],
    state: S,
    first: Tensor,
    *,
    max_length: int,
    end: int,
    penalty: Penalty,
    n_best: int = 1,
    bonus: Bonus[S] | None = None,
) -> list[Hypothesis]:
    """The best `n_best` of all sequences from `first` (1,) of at most `max_length` tokens, the end counted."""
    found: list[Hypothesis] = []

    def visit(tokens: Tensor, state: S, ids: list[int], total: float) -> None:
        log_probabilities, state = step(tokens, state)
        vocabulary = log_probabilities.shape[-1]
        length = len(ids) + 1
        extra = float(bonus(state)[0]) if bonus else 0.0
        for token, value in enumerate(log_probabilities[0].double().tolist()):
            score = total + value
            if score == float("-inf"):
                continue  # a rule forbids it
            if token == end or length >= max_length:
                reached = ids if token == end else [*ids, token]
                found.append(Hypothesis(reached, score, score / penalty(length) + extra, token == end))
        if length >= max_length:
            return
        every = state.select(torch.zeros(vocabulary, dtype=torch.long, device=tokens.device))
        for token, value in enumerate(log_probabilities[0].double().tolist()):
            if token != end and value > float("-inf"):
                row = torch.tensor([token], device=tokens.device)
                visit(row, every.select(row), [*ids, token], total + value)

    visit(first, state, [], 0.0)
    return sorted(found, key=lambda h: -h.score)[:n_best]
