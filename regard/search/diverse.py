"""Diverse beam search (Vijayakumar et al. 2016): groups of hypotheses that shun each other's tokens.

A group's penalty at a step depends on the groups before it at that step only, so the groups may run one after the
other, each a beam search over a step function that takes the penalty off.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .beam import beam_search
from .candidates import Choose
from .hypotheses import Bonus, Hypothesis, S, Step
from .penalties import Penalty

__all__ = ["diverse_search"]

Taken = Counter[tuple[int, int, int]]
"""(sentence, step, token) -> how many open hypotheses of earlier groups took it."""


@dataclass(frozen=True)
class _Grouped:
    inner: Any
    sentences: tuple[int, ...]
    place: int = 0

    def select(self, rows: Tensor) -> _Grouped:
        return _Grouped(self.inner.select(rows), tuple(self.sentences[i] for i in rows.tolist()), self.place)


def diverse_search(
    step: Step[S],
    state: S,
    first: Tensor,
    *,
    groups: int,
    diversity: float,
    width: int,
    max_length: Tensor,
    end: int,
    penalty: Penalty,
    n_best: int = 1,
    stop: str = "bound",
    bonus: Bonus[S] | None = None,
    choose: Choose[S] | None = None,
) -> list[list[Hypothesis]]:
    """`beam_search` in groups of width / groups, rounded up: at most `n_best` of each sentence, no two the same.

    `diversity` is taken from a token's log-probability for each open hypothesis of earlier groups that took it at the
    same step (their Hamming diversity). It steers what goes on; what is reported and ranked at the end is without it.
    """
    taken: Taken = Counter()
    found: list[dict[tuple[int, ...], Hypothesis]] = [{} for _ in range(first.shape[0])]
    for _ in range(groups):
        taking: Taken = Counter()

        def shunning(
            tokens: Tensor, state: _Grouped, taken: Taken = taken, taking: Taken = taking
        ) -> tuple[Tensor, _Grouped]:
            if state.place:
                taking.update(
                    (s, state.place, token) for s, token in zip(state.sentences, tokens.tolist(), strict=True)
                )
            log_probabilities, inner = step(tokens, state.inner)
            after = _Grouped(inner, state.sentences, state.place + 1)
            if taken:
                log_probabilities = log_probabilities - diversity * _counts(taken, after, log_probabilities)
            return log_probabilities, after

        everything = torch.arange(first.shape[0], device=first.device)
        hypotheses = beam_search(
            shunning,
            _Grouped(state.select(everything), tuple(range(first.shape[0]))),
            first,
            width=-(-width // groups),
            max_length=max_length,
            end=end,
            penalty=penalty,
            n_best=-(-n_best // groups),
            stop=stop,
            bonus=(lambda s: bonus(s.inner)) if bonus else None,
            choose=(lambda values, totals, keep, s: choose(values, totals, keep, s.inner)) if choose else None,
        )
        for s, each in enumerate(hypotheses):
            for h in each:
                lost = diversity * sum(taken[s, place, token] for place, token in enumerate(h.ids, start=1))
                rank = h.score + lost / penalty(len(h.ids) + h.ended)
                found[s].setdefault(
                    (*h.ids, *[end][: h.ended]), replace(h, log_probability=h.log_probability + lost, score=rank)
                )
        taken += taking
    return [sorted(each.values(), key=lambda h: -h.score)[:n_best] for each in found]


def _counts(taken: Taken, state: _Grouped, like: Tensor) -> Tensor:
    """How often each token was taken at this step in each row's sentence (N, V)."""
    by_sentence: dict[int, dict[int, int]] = {s: {} for s in set(state.sentences)}
    for (s, place, token), count in taken.items():
        if place == state.place and s in by_sentence:
            by_sentence[s][token] = count
    counts = torch.zeros(like.shape, dtype=like.dtype)
    for row, s in enumerate(state.sentences):
        for token, count in by_sentence[s].items():
            counts[row, token] = count
    return counts.to(like.device)
