"""Greedy search: the most likely token at every step."""

from __future__ import annotations

import torch
from torch import Tensor

from .hypotheses import Hypothesis, Problem, S


def greedy_search(problem: Problem[S]) -> list[Hypothesis]:
    """Of each sentence, the best token again and again until the end, or until the length limit."""
    state, tokens, rows = problem.state, problem.first, problem.first.shape[0]
    total = torch.zeros(rows, dtype=torch.float64)
    lengths = torch.zeros(rows, dtype=torch.long)
    ended = torch.zeros(rows, dtype=torch.bool)
    limit = problem.max_length.cpu()
    chosen: list[Tensor] = []
    open_rows = torch.ones(rows, dtype=torch.bool)
    while open_rows.any():
        log_probabilities, state = problem.step(tokens, state)
        best, tokens = log_probabilities.max(dim=-1)
        total += torch.where(open_rows, best.double().cpu(), 0.0)
        lengths += open_rows
        ended |= open_rows & (tokens.cpu() == problem.end)
        open_rows &= ~ended & (lengths < limit)
        chosen.append(tokens.cpu())
    grid = torch.stack(chosen, dim=1)  # (B, T)
    return [
        Hypothesis(
            grid[i, : int(lengths[i]) - bool(ended[i])].tolist(),
            float(total[i]),
            float(total[i]) / problem.penalty(int(lengths[i])),
            bool(ended[i]),
        )
        for i in range(rows)
    ]
