"""Exact search: the best of all sequences, by going through them in depth with a bound (Stahlberg and Byrne 2019).

"On NMT search errors and model errors: cat got your tongue?" shows that log-probabilities only fall as a sequence
grows, so that nothing which begins as badly as the best finished hypothesis already is can end better. What is left is
small enough to go through, for short sentences and modest penalties at least; a limit of steps ends the rest, with a
warning. It adds itself to the search table as an extension does, which `regard.extensions` names.

Sizes: N rows, V vocabulary.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic

import numpy as np

from regard.errors import RegardWarning
from regard.search.arrays import Indices, Numbers, like, numpy
from regard.search.beam import beam_search
from regard.search.hypotheses import Hypothesis, Problem, S
from regard.search.table import SEARCHES, Found, Search, SearchConfig

_TOGETHER = 16
"""Tokens that may follow one beginning and are tried in one step: of more, most are tried in vain."""


@dataclass(frozen=True)
class Exact:
    """What an exact search found for a sentence, best first."""

    hypotheses: list[Hypothesis]
    finished: bool  # False where the limit of steps ended it, so that a better one may be left
    steps: int  # beginnings that the model was asked to go on from


@dataclass
class _Open(Generic[S]):
    """A beginning that is being gone on with: what may follow it, likeliest first, and how many were tried."""

    ids: list[int]
    state: S  # of the step that read the beginning
    row: int  # of that state
    tokens: Indices
    totals: Numbers  # log-probabilities of the beginning with each token
    tried: int = 0


def exact_search(
    problem: Problem[S], *, most_steps: int, n_best: int = 1, width: int = 1, stop: str = "bound"
) -> Exact:
    """The `n_best` best of all sequences of a problem of one sentence.

    A beam of this `width` goes before it, since a good hypothesis at once makes the bound tight.
    """
    [before] = beam_search(problem, width=max(width, n_best), n_best=n_best, stop=stop)
    search = _Depth(problem, n_best, before)
    return search.run(most_steps)


class _Depth(Generic[S]):
    """The search in depth: `best` is what is known so far, by ids and whether they ended."""

    def __init__(self, problem: Problem[S], n_best: int, known: list[Hypothesis]) -> None:
        self.problem, self.n_best = problem, n_best
        self.best = {(tuple(h.ids), h.ended): h for h in known if h.score > float("-inf")}
        [self.limit] = problem.max_length.tolist()
        penalties = np.array([problem.penalty(length) for length in range(1, self.limit + 1)])
        self.least = np.minimum.accumulate(penalties[::-1])[::-1]  # of this length and all longer ones
        self.most = np.maximum.accumulate(penalties[::-1])[::-1]

    def run(self, most_steps: int) -> Exact:
        steps, stack = 1, self._opened([[]], self.problem.state, [0.0], self.problem.first)
        while stack:
            top = stack[-1]
            chosen = self._next(top)
            if not len(chosen):
                stack.pop()
                continue
            if steps + len(chosen) > most_steps:
                return Exact(self._ranked(), False, steps)
            steps += len(chosen)
            rows = like(self.problem.first, np.full(len(chosen), top.row))
            tokens = like(self.problem.first, top.tokens[chosen])
            begun = [[*top.ids, int(token)] for token in top.tokens[chosen]]
            totals = [float(total) for total in top.totals[chosen]]
            stack += reversed(self._opened(begun, top.state.select(rows), totals, tokens))
        return Exact(self._ranked(), True, steps)

    def _opened(self, begun: list[list[int]], state: S, totals: list[float], tokens: Indices) -> list[_Open[S]]:
        """Beginnings (N of one length) read by the model; what they end in is kept, the rest is open."""
        log_probabilities, state = self.problem.step(tokens, state)
        values = numpy(log_probabilities).astype(np.float64) + np.array(totals)[:, None]  # (N, V)
        extra = self.problem.bonus(state) if self.problem.bonus else np.zeros(len(begun))
        return [self._one(ids, state, row, values[row], float(extra[row])) for row, ids in enumerate(begun)]

    def _one(self, ids: list[int], state: S, row: int, totals: Numbers, extra: float) -> _Open[S]:
        length, end = len(ids) + 1, self.problem.end
        ending = [end] if length < self.limit else np.flatnonzero(totals > float("-inf"))
        for token in ending:
            if self._may(totals[token], length):
                self._keep(ids if token == end else [*ids, int(token)], float(totals[token]), length, extra)
        going = np.flatnonzero(self._promising(totals, length)) if length < self.limit else np.zeros(0, np.int64)
        going = going[going != end]
        order = np.argsort(-totals[going], kind="stable")
        return _Open(ids, state, row, going[order], totals[going[order]])

    def _next(self, top: _Open[S]) -> Indices:
        """Which of what may follow is tried now: the next few that can still be among the best."""
        few = np.arange(top.tried, min(top.tried + _TOGETHER, len(top.tokens)))
        few = few[self._promising(top.totals[few], len(top.ids) + 1)]
        top.tried = top.tried + len(few) if len(few) else len(top.tokens)  # the others are less likely still
        return few

    def _promising(self, totals: Numbers, length: int) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Which totals of so many tokens can be gone on with to a score above the last of the best."""
        divisor = self.most[length] if length < self.limit else self.most[-1]
        other = self.least[length] if length < self.limit else self.least[-1]
        found: np.ndarray[tuple[int, ...], np.dtype[np.bool_]] = (
            np.maximum(totals / divisor, totals / other) > self._bound()
        )
        return found

    def _may(self, total: float, length: int) -> bool:
        return bool(total / self.problem.penalty(length) > self._bound())

    def _bound(self) -> float:
        """What a hypothesis must be better than to be wanted."""
        return float("-inf") if len(self.best) < self.n_best else min(h.score for h in self.best.values())

    def _keep(self, ids: list[int], total: float, length: int, extra: float) -> None:
        score, ended = total / self.problem.penalty(length) + extra, length > len(ids)
        self.best[tuple(ids), ended] = Hypothesis(ids, total, score, ended)
        self.best = {(tuple(h.ids), h.ended): h for h in self._ranked()}

    def _ranked(self) -> list[Hypothesis]:
        return sorted(self.best.values(), key=lambda h: -h.score)[: self.n_best]


def exact_searches(problem: Problem[S], settings: SearchConfig, n_best: int) -> Iterator[Exact]:
    """What exact search finds for each sentence of a problem, one after the other."""
    for sentence in range(len(problem.first)):
        one = problem.select(np.array([sentence]))
        yield exact_search(one, most_steps=settings.most_steps, n_best=n_best, width=settings.beam, stop=settings.stop)


def _run(problem: Problem[S], settings: SearchConfig, n_best: int) -> Found:
    found = []
    for sentence, each in enumerate(exact_searches(problem, settings, n_best)):
        found.append(each.hypotheses)
        if not each.finished:
            warnings.warn(
                f"line {problem.line(sentence)}: exact search did not finish in {settings.most_steps:,} steps, and "
                "gives the best that it has found, which may not be the best there is; raise most_steps, lower "
                'alpha, or set penalty = "none".',
                RegardWarning,
                stacklevel=2,
            )
    return found


SEARCHES["exact"] = Search(_run, settings=frozenset({"beam", "stop", "coverage", "most_steps"}))
