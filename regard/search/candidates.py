"""What a beam holds, and which of its continuations go on.

Sizes: B sentences, K width, T tokens so far, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .hypotheses import Hypothesis, S

__all__ = ["Beams", "Choose", "best"]

Choose = Callable[[Tensor, Tensor, int, S], tuple[Tensor, Tensor]]
"""Log-probabilities (B·K, V), totals (B, K), a number and the state after the step -> that many candidates of each
sentence, those that go on first in front: their totals (B, number) and indices into K·V."""


@dataclass(frozen=True)
class Beams:
    """Where a beam search stands: hypotheses still open, a sentence a row, and those that finished."""

    history: Tensor  # (B, K, T)
    totals: Tensor  # (B, K); -inf where no hypothesis is
    finished: list[list[Hypothesis]]

    def agreed(self) -> list[int]:
        """Of a search for one sentence: the tokens that its best hypothesis begins with, whatever is still to come."""
        rows = [h.ids for h in self.finished[0][:1]]
        rows += [r for r, t in zip(self.history.tolist(), self.totals.tolist(), strict=True) for r in _open(r, t)]
        same = 0
        while rows and same < min(map(len, rows)) and len({row[same] for row in rows}) == 1:
            same += 1
        return rows[0][:same] if rows else []


def _open(rows: list[list[int]], totals: list[float]) -> list[list[int]]:
    return [row for row, total in zip(rows, totals, strict=True) if total > float("-inf")]


def best(log_probabilities: Tensor, totals: Tensor, keep: int, state: object = None) -> tuple[Tensor, Tensor]:
    """The best `keep` continuations of each sentence: log-probability (B, keep) in float64 and index into (K·V)."""
    sentences, width = totals.shape
    rows, vocabulary = log_probabilities.shape
    # Each row's own best first, so that the wide sort runs on K·keep numbers instead of K·V.
    likely, index = log_probabilities.topk(min(keep, vocabulary), dim=-1)  # (B·K, keep)
    summed = (likely.double() + totals.flatten()[:, None]).view(sentences, -1)
    flat = (index + torch.arange(rows, device=index.device).remainder(width)[:, None] * vocabulary).view(sentences, -1)
    scores, order = summed.topk(min(keep, summed.shape[1]), dim=1, sorted=True)
    return scores, flat.gather(1, order)
