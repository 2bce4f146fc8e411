"""Greedy search: the most likely token at every step."""

from __future__ import annotations

import torch
from torch import Tensor

from .hypotheses import Hypothesis, S, Step
from .penalties import Penalty, none

__all__ = ["greedy_search"]


def greedy_search(
    step: Step[S], state: S, first: Tensor, *, max_length: Tensor, end: int, penalty: Penalty | None = None
) -> list[Hypothesis]:
    """Follow the best token from `first` (B,) until `end`, or until row i holds max_length[i] tokens, end counted."""
    rank = penalty or (lambda length: none(length, 0.0))
    rows, tokens = first.shape[0], first
    total = torch.zeros(rows, dtype=torch.float64)
    lengths = torch.zeros(rows, dtype=torch.long)
    ended = torch.zeros(rows, dtype=torch.bool)
    limit = max_length.cpu()
    chosen: list[Tensor] = []
    open_rows = torch.ones(rows, dtype=torch.bool)
    while open_rows.any():
        log_probabilities, state = step(tokens, state)
        best, tokens = log_probabilities.max(dim=-1)
        total += torch.where(open_rows, best.double().cpu(), 0.0)
        lengths += open_rows
        ended |= open_rows & (tokens.cpu() == end)
        open_rows &= ~ended & (lengths < limit)
        chosen.append(tokens.cpu())
    grid = torch.stack(chosen, dim=1)  # (B, T)
    return [
        Hypothesis(
            grid[i, : int(lengths[i]) - bool(ended[i])].tolist(),
            float(total[i]),
            float(total[i]) / rank(int(lengths[i])),
            bool(ended[i]),
        )
        for i in range(rows)
    ]
