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

from .beam import Beams, beam_steps
from .hypotheses import Hypothesis, Problem, S

Taken = Counter[tuple[int, int, int]]
"""(sentence, position, token) -> how many open hypotheses of earlier groups took it; positions count from 1."""


@dataclass(frozen=True)
class _Grouped:
    inner: Any
    sentences: tuple[int, ...]
    position: int = 0

    def select(self, rows: Tensor) -> _Grouped:
        return _Grouped(self.inner.select(rows), tuple(self.sentences[i] for i in rows.tolist()), self.position)


def diverse_search(
    problem: Problem[S], *, groups: int, diversity: float, width: int, n_best: int = 1, stop: str = "bound"
) -> list[list[Hypothesis]]:
    """`beam_search` in groups of width / groups, rounded up: at most `n_best` of each sentence, no two the same.

    `diversity` is taken from a token's log-probability for each open hypothesis of earlier groups that took it at the
    same position (their Hamming diversity). It steers what goes on; what is reported and ranked at the end is without
    it.
    """
    taken: Taken = Counter()
    found: list[dict[tuple[int, ...], Hypothesis]] = [{} for _ in range(problem.first.shape[0])]
    for _ in range(groups):
        taking: Taken = Counter()
        hypotheses = _one_group(problem, taken, taking, diversity, -(-width // groups), -(-n_best // groups), stop)
        for s, each in enumerate(hypotheses):
            for h in each:
                lost = diversity * sum(taken[s, position, token] for position, token in enumerate(h.ids, start=1))
                rank = h.score + lost / problem.penalty(len(h.ids) + h.ended)
                found[s].setdefault(
                    (*h.ids, *[problem.end][: h.ended]),
                    replace(h, log_probability=h.log_probability + lost, score=rank),
                )
        taken += taking
    return [sorted(each.values(), key=lambda h: -h.score)[:n_best] for each in found]


def _one_group(
    problem: Problem[S], taken: Taken, taking: Taken, diversity: float, width: int, n_best: int, stop: str
) -> list[list[Hypothesis]]:
    """A beam search that loses `diversity` for each token in `taken`, and counts in `taking` what it takes itself."""

    def shunning(tokens: Tensor, state: _Grouped) -> tuple[Tensor, _Grouped]:
        if state.position:
            taking.update((s, state.position, token) for s, token in zip(state.sentences, tokens.tolist(), strict=True))
        log_probabilities, inner = problem.step(tokens, state.inner)
        after = _Grouped(inner, state.sentences, state.position + 1)
        if taken:
            log_probabilities = log_probabilities - diversity * _counts(taken, after, log_probabilities)
        return log_probabilities, after

    sentences = problem.first.shape[0]
    everything = torch.arange(sentences, device=problem.first.device)
    bonus, choose = problem.bonus, problem.choose
    inner: Problem[_Grouped] = Problem(
        shunning,
        _Grouped(problem.state.select(everything), tuple(range(sentences))),
        problem.first,
        problem.max_length,
        problem.end,
        problem.penalty,
        (lambda s: bonus(s.inner)) if bonus else None,
        (lambda values, totals, keep, s: choose(values, totals, keep, s.inner)) if choose else None,
    )
    limits: list[int] = problem.max_length.tolist()
    steps = beam_steps(inner, width=width, n_best=n_best, stop=stop)
    while True:
        try:
            _count_last(taking, next(steps), limits)
        except StopIteration as finished:
            found: list[list[Hypothesis]] = finished.value
            return found


def _count_last(taking: Taken, beams: Beams, limits: list[int]) -> None:
    """Counts the tokens that open hypotheses took at the last permitted position, after which no step reads them."""
    length = beams.history.shape[2]
    for s, of_one in zip(beams.sentences, beams.open(), strict=True):
        if length == limits[s]:
            taking.update((s, length, ids[-1]) for ids in of_one)


def _counts(taken: Taken, state: _Grouped, like: Tensor) -> Tensor:
    """How often each token was taken at this position in each row's sentence (N, V)."""
    by_sentence: dict[int, dict[int, int]] = {s: {} for s in set(state.sentences)}
    for (s, position, token), count in taken.items():
        if position == state.position and s in by_sentence:
            by_sentence[s][token] = count
    counts = torch.zeros(like.shape, dtype=like.dtype)
    for row, s in enumerate(state.sentences):
        for token, count in by_sentence[s].items():
            counts[row, token] = count
    return counts.to(like.device)
