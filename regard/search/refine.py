"""Mask-predict: all positions at once, then those that the model was least sure of again (Ghazvininejad et al. 2019).

Sizes: B sentences, K lengths of each, N = B·K rows, a sentence's one after another, T the longest, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .hypotheses import Hypothesis


@dataclass(frozen=True)
class Blanks:
    """What mask-predict is given: targets of likely lengths to be filled in."""

    fill: Callable[[Tensor, Tensor], Tensor]
    """Rows of ids with masks (N, T) and their lengths (N,) -> log-probabilities at every position (N, T, V)."""
    lengths: Tensor  # (B, K), the end counted, the likeliest first
    mask: int
    pad: int
    end: int
    never: Sequence[int] = ()  # ids that are not written


def fill_blanks(blanks: Blanks, passes: int, n_best: int) -> list[list[Hypothesis]]:
    """Of each sentence the `n_best` best of its lengths, best first."""
    made, number = mask_predict(blanks, passes), blanks.lengths.shape[1]
    rows = [made[i : i + number] for i in range(0, len(made), number)]
    return [sorted(row, key=lambda h: -h.score)[:n_best] for row in rows]


@torch.inference_mode()
def mask_predict(blanks: Blanks, passes: int) -> list[Hypothesis]:
    """A row of each length after `passes` passes.

    At first all positions but the end are masks. Of n positions, pass t of P masks the n (P - t) / P that the model is
    least sure of and predicts them again (section 3.2). A hypothesis is ranked by the mean log-probability of its
    positions, each as it was when last predicted.
    """
    lengths = blanks.lengths.flatten()
    rows, longest = len(lengths), int(lengths.max())
    position = torch.arange(longest, device=lengths.device)
    # (N, T): positions to fill, and the end
    inside, last = position < lengths[:, None] - 1, position == lengths[:, None] - 1
    ids = torch.where(inside, blanks.mask, torch.where(last, blanks.end, blanks.pad))
    certainty = torch.zeros(rows, longest, dtype=torch.float64, device=lengths.device)
    masked = inside
    for i in range(1, passes + 1):
        log_probabilities = blanks.fill(ids, lengths)
        log_probabilities[..., [blanks.mask, blanks.pad, blanks.end, *blanks.never]] = float("-inf")
        likely, tokens = log_probabilities.max(-1)
        ids = torch.where(masked, tokens, ids)
        certainty = torch.where(masked, likely.double(), certainty)
        again = ((lengths - 1) * (passes - i)) // passes  # (N,)
        if not bool(again.any()):
            break
        order = certainty.masked_fill(~inside, float("inf")).argsort(dim=1, stable=True)
        masked = torch.zeros_like(inside).scatter(1, order, position < again[:, None]) & inside
        ids = ids.masked_fill(masked, blanks.mask)
    totals = certainty.masked_fill(~inside, 0.0).sum(1)
    return [
        Hypothesis(row[: n - 1], total, total / max(1, n - 1), True)
        for row, n, total in zip(ids.tolist(), lengths.tolist(), totals.tolist(), strict=True)
    ]
