"""Mask-predict: all places at once, and those that the model was least sure of again (Ghazvininejad et al. 2019).

Sizes: N rows, T the longest, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from .hypotheses import Hypothesis

__all__ = ["Fill", "mask_predict"]

Fill = Callable[[Tensor, Tensor], Tensor]
"""Rows of ids with masks (N, T) and their lengths (N,) -> log-probabilities at every place (N, T, V)."""


def mask_predict(
    fill: Fill, lengths: Tensor, *, mask: int, pad: int, end: int, passes: int, never: Sequence[int] = ()
) -> list[Hypothesis]:
    """Rows of these lengths (N,), the end counted, after `passes` passes; `never` are ids that are not written.

    At first all places but the end are masks. Of n places, pass t of P masks the n (P - t) / P that the model is least
    sure of and says again what stands there (section 3.2). A hypothesis is ranked by the mean log-probability of its
    places, each as it was when last said.
    """
    rows, longest = len(lengths), int(lengths.max())
    place = torch.arange(longest, device=lengths.device)
    inside, last = place < lengths[:, None] - 1, place == lengths[:, None] - 1  # (N, T): places to fill, and the end
    ids = torch.where(inside, mask, torch.where(last, end, pad))
    said = torch.zeros(rows, longest, dtype=torch.float64, device=lengths.device)
    masked = inside
    for i in range(1, passes + 1):
        log_probabilities = fill(ids, lengths)
        log_probabilities[..., [mask, pad, end, *never]] = float("-inf")
        likely, tokens = log_probabilities.max(-1)
        ids = torch.where(masked, tokens, ids)
        said = torch.where(masked, likely.double(), said)
        again = ((lengths - 1) * (passes - i)) // passes  # (N,)
        if not bool(again.any()):
            break
        order = said.masked_fill(~inside, float("inf")).argsort(dim=1, stable=True)
        masked = torch.zeros_like(inside).scatter(1, order, place < again[:, None]) & inside
        ids = ids.masked_fill(masked, mask)
    totals = said.masked_fill(~inside, 0.0).sum(1)
    return [
        Hypothesis(row[: n - 1], total, total / max(1, n - 1), True)
        for row, n, total in zip(ids.tolist(), lengths.tolist(), totals.tolist(), strict=True)
    ]
