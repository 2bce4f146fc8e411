"""Beam search over any step function, no model in sight, and diverse beams: groups that shun each other's tokens.

Sizes: B sentences, K width, T tokens so far, V vocabulary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Generic

import numpy as np

from .arrays import Array, Indices, Numbers, like, likeliest, numpy
from .hypotheses import Hypothesis, Problem, S, run_through

_NONE = float("-inf")


@dataclass(frozen=True)
class Beams:
    """Where a beam search stands: hypotheses still open, a sentence a row, and those that finished."""

    history: Indices  # (B, K, T)
    totals: Numbers  # (B, K); -inf where no hypothesis is
    finished: list[list[Hypothesis]]  # of every sentence of the problem
    sentences: list[int]  # of each row, the number of its sentence: those that finished may be gone
    candidates: tuple[Numbers, Indices, Indices]
    """What the step chose from: log-probabilities, the hypotheses that they go on from, and tokens (B, 2K)."""
    new: list[list[Hypothesis]]  # of each row, those that the step finished, in the order of the candidates

    def agreed(self) -> list[int]:
        """Of a search for one sentence: the tokens that its best hypothesis begins with, whatever is still to come."""
        rows = [h.ids for h in self.finished[0][:1]] + [ids for of_one in self.open() for ids in of_one]
        return [column[0] for column in takewhile(lambda column: len({*column}) == 1, zip(*rows, strict=False))]

    def open(self) -> list[list[list[int]]]:
        """The ids of each row's open hypotheses."""
        return [of_one[keep].tolist() for of_one, keep in zip(self.history, self.totals > _NONE, strict=True)]


def beam_steps(
    problem: Problem[S], *, width: int, n_best: int = 1, stop: str = "bound", shrink: bool = True
) -> Generator[Beams, None, list[list[Hypothesis]]]:
    """The best `n_best` finished hypotheses of each sentence, best first; shows where it stands after every step.

    When a sentence stops is named by `stop`. "bound": when `n_best` of its finished ones cannot be overtaken by any
    open one, whatever that goes on to (log-probabilities only fall, so an open one is bounded by its own over the
    largest penalty it can reach). "first": when `n_best` have finished, which with width 1 is greedy search. "beam":
    when `width` have, as other libraries' beams do. "full": at the length limit.
    Finished sentences leave the batch when `shrink`. A sentence of which no hypothesis is possible gets none.
    """
    sentences, choose, limits = len(problem.first), problem.choose or best, problem.max_length.tolist()
    finished: list[list[Hypothesis]] = [[] for _ in range(sentences)]
    needed = max(width, n_best) if stop == "beam" else n_best
    alive, done = list(range(sentences)), [False] * sentences  # those still in the batch, in order
    rows = like(problem.first, np.arange(sentences).repeat(width))
    tokens, state = problem.first[rows], problem.state.select(rows)  # (B·K,)
    history = np.empty((sentences, width, 0), dtype=np.int64)
    # Only one copy of the first row counts, or the beam would hold the same hypothesis K times.
    totals = np.full((sentences, width), _NONE)
    totals[:, 0] = 0.0
    length = 0
    while not all(done):
        length += 1
        log_probabilities, state = problem.step(tokens, state)  # (B·K, V)
        vocabulary = log_probabilities.shape[-1]
        # Of 2K candidates, those that go on first in front, at most K are ends, so K open ones are always left.
        scores, flat = choose(log_probabilities, totals, min(2 * width, width * vocabulary), state)
        parents, chosen = np.divmod(flat, vocabulary)
        candidates, ends = (scores, parents, chosen), chosen == problem.end  # (B, 2K)
        going = np.where(ends, _NONE, scores)
        cut = [length >= limits[s] for s in alive]
        new: list[list[Hypothesis]] = [[]] * len(alive)
        if any(cut) or ends.any():
            new = _finished(problem, candidates, history, state, cut)
        for s, best_open, found in zip(alive, going.max(1).tolist(), new, strict=True):
            if not done[s]:
                finished[s] = sorted([*finished[s], *found], key=lambda h: -h.score)[: max(width, n_best)]
                # Every open hypothesis is bounded by the best one at its most generous penalty.
                most = max(problem.penalty(length + 1), problem.penalty(limits[s]))
                bound = best_open / most if stop == "bound" else _NONE
                enough = stop != "full" and len(finished[s]) >= needed and finished[s][needed - 1].score >= bound
                done[s] = length >= limits[s] or best_open == _NONE or enough
        order = ends.argsort(axis=1, kind="stable")[:, :width]  # the first K that are no ends
        totals, parents, chosen = (np.take_along_axis(each, order, 1) for each in (going, parents, chosen))
        history = np.concatenate((np.take_along_axis(history, parents[..., None], 1), chosen[..., None]), axis=2)
        yield Beams(history, totals, finished, alive, candidates, new)
        select = parents + np.arange(len(alive))[:, None] * width  # (B, K) rows of the state
        if shrink and any(done[s] for s in alive):
            index = [i for i, s in enumerate(alive) if not done[s]]
            alive = [alive[i] for i in index]
            history, totals, chosen, select = (x[index] for x in (history, totals, chosen, select))
        tokens = like(problem.first, chosen.ravel())
        if alive:
            state = state.select(like(problem.first, select.ravel()))
    return [each[:n_best] for each in finished]


def beam_search(
    problem: Problem[S], *, width: int, n_best: int = 1, stop: str = "bound", shrink: bool = True
) -> list[list[Hypothesis]]:
    """What `beam_steps` comes to."""
    return run_through(beam_steps(problem, width=width, n_best=n_best, stop=stop, shrink=shrink))


def best(log_probabilities: Array, totals: Numbers, keep: int, state: object = None) -> tuple[Numbers, Indices]:
    """The best `keep` continuations of each sentence: log-probability (B, keep) and index into (K·V)."""
    sentences, width = totals.shape
    vocabulary = log_probabilities.shape[-1]
    # Each row's own best first, so that the wide sort runs on K·keep numbers instead of K·V.
    likely, index = likeliest(log_probabilities, keep)  # (B·K, keep)
    summed = (likely + totals.ravel()[:, None]).reshape(sentences, -1)
    flat = (index + (np.arange(len(index)) % width * vocabulary)[:, None]).reshape(sentences, -1)
    order = np.argsort(-summed, axis=1, kind="stable")[:, :keep]
    return np.take_along_axis(summed, order, 1), np.take_along_axis(flat, order, 1)


def _finished(
    problem: Problem[S], candidates: tuple[Numbers, Indices, Indices], history: Indices, state: S, cut: list[bool]
) -> list[list[Hypothesis]]:
    """Of each row, the hypotheses that this step finishes: ends among its best K, or all where the limit cuts them.

    `candidates` are log-probabilities, the hypotheses that they go on from, and tokens (B, 2K).
    """
    width, length = history.shape[1], history.shape[2] + 1
    rows = history.tolist()
    extra = problem.bonus(state).reshape(-1, width).tolist() if problem.bonus else None  # (B, K)
    new: list[list[Hypothesis]] = [[] for _ in cut]
    for i, (cut_off, *each) in enumerate(zip(cut, *(x.tolist() for x in candidates), strict=True)):
        for j, (score, parent, token) in enumerate(zip(*each, strict=True)):
            if score == _NONE or (j >= width and not cut_off):
                break
            ended = token == problem.end
            if ended or cut_off:
                ids = rows[i][parent] + ([] if ended else [token])
                rank = score / problem.penalty(length) + (extra[i][parent] if extra else 0.0)
                new[i].append(Hypothesis(ids, score, rank, ended))
    return new


# -- diverse beams (Vijayakumar et al. 2016) ---------------------------------------------------------------------------
#
# A group's penalty at a step depends on the groups before it at that step only, so the groups may run one after the
# other, each a beam search over a step function that takes the penalty off.

Taken = Counter[tuple[int, int, int]]
"""(sentence, position, token) -> how many open hypotheses of earlier groups took it; positions count from 1."""


@dataclass(frozen=True)
class _Grouped(Generic[S]):
    inner: S
    sentences: tuple[int, ...]
    position: int = 0

    def select(self, rows: Array) -> _Grouped[S]:
        return _Grouped(self.inner.select(rows), tuple(self.sentences[i] for i in rows.tolist()), self.position)


def diverse_search(
    problem: Problem[S], *, groups: int, diversity: float, width: int, n_best: int = 1, stop: str = "bound"
) -> list[list[Hypothesis]]:
    """`beam_search` in groups of width / groups, rounded up: at most `n_best` of each sentence, no two the same.

    `diversity` is taken from a token's log-probability for each open hypothesis of earlier groups that took it at the
    same position (their Hamming diversity). It steers what goes on, and is not in what is reported and ranked.
    """
    taken: Taken = Counter()
    limits: list[int] = problem.max_length.tolist()
    found: list[dict[tuple[int, ...], Hypothesis]] = [{} for _ in limits]
    for _ in range(groups):
        taking: Taken = Counter()

        def count_last(beams: Beams, taking: Taken = taking) -> None:
            """Counts what open hypotheses took at the last permitted position, after which no step reads it."""
            length = beams.history.shape[2]
            for s, of_one in zip(beams.sentences, beams.open(), strict=True):
                if length == limits[s]:
                    taking.update((s, length, ids[-1]) for ids in of_one)

        group = _shunning(problem, taken, taking, diversity)
        steps = beam_steps(group, width=-(-width // groups), n_best=-(-n_best // groups), stop=stop)
        for s, each in enumerate(run_through(steps, count_last)):
            for h in each:
                lost = diversity * sum(taken[s, position, token] for position, token in enumerate(h.ids, start=1))
                rank = h.score + lost / problem.penalty(len(h.ids) + h.ended)
                key = (*h.ids, *[problem.end][: h.ended])
                found[s].setdefault(key, replace(h, log_probability=h.log_probability + lost, score=rank))
        taken += taking
    return [sorted(each.values(), key=lambda h: -h.score)[:n_best] for each in found]


def _shunning(problem: Problem[S], taken: Taken, taking: Taken, diversity: float) -> Problem[_Grouped[S]]:
    """The problem with `diversity` lost for each token in `taken`; what goes on is counted in `taking`."""

    def step(tokens: Array, state: _Grouped[S]) -> tuple[Array, _Grouped[S]]:
        if state.position:
            taking.update((s, state.position, token) for s, token in zip(state.sentences, tokens.tolist(), strict=True))
        log_probabilities, inner = problem.step(tokens, state.inner)
        after = _Grouped(inner, state.sentences, state.position + 1)
        if taken:
            log_probabilities = numpy(log_probabilities)
            counts = np.zeros_like(log_probabilities)
            rows: dict[int, list[int]] = {}
            for row, s in enumerate(state.sentences):
                rows.setdefault(s, []).append(row)
            for (s, position, token), count in taken.items():
                if position == after.position and s in rows:
                    counts[rows[s], token] = count
            log_probabilities = log_probabilities - diversity * counts
        return log_probabilities, after

    everything = np.arange(len(problem.first))
    state = _Grouped(problem.state.select(like(problem.first, everything)), tuple(everything.tolist()))
    bonus, choose = problem.bonus, problem.choose
    over = (lambda state: bonus(state.inner)) if bonus else None
    among = (lambda values, totals, keep, state: choose(values, totals, keep, state.inner)) if choose else None
    first, limits = problem.first, problem.max_length
    return Problem(step, state, first, limits, problem.end, problem.penalty, over, among)
