"""Beam search over any step function, no model in sight, and diverse beams: groups that shun each other's tokens.

Sizes: B sentences, K width, T tokens so far, V vocabulary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Generic

import torch
from torch import Tensor

from .hypotheses import Hypothesis, Problem, S, run_through

_NONE = float("-inf")


@dataclass(frozen=True)
class Beams:
    """Where a beam search stands: hypotheses still open, a sentence a row, and those that finished."""

    history: Tensor  # (B, K, T)
    totals: Tensor  # (B, K); -inf where no hypothesis is
    finished: list[list[Hypothesis]]  # of every sentence of the problem
    sentences: list[int]  # of each row, the number of its sentence: those that finished may be gone

    def agreed(self) -> list[int]:
        """Of a search for one sentence: the tokens that its best hypothesis begins with, whatever is still to come."""
        rows = [h.ids for h in self.finished[0][:1]] + [ids for of_one in self.open() for ids in of_one]
        return [column[0] for column in takewhile(lambda column: len({*column}) == 1, zip(*rows, strict=False))]

    def open(self) -> list[list[list[int]]]:
        """The ids of each row's open hypotheses."""
        kept = self.totals > _NONE
        return [of_one[keep].tolist() for of_one, keep in zip(self.history, kept, strict=True)]


def beam_steps(
    problem: Problem[S], *, width: int, n_best: int = 1, stop: str = "bound", shrink: bool = True
) -> Generator[Beams, None, list[list[Hypothesis]]]:
    """The best `n_best` finished hypotheses of each sentence, best first; shows where it stands after every step.

    When a sentence stops is named by `stop`. "bound": when `n_best` of its finished ones cannot be overtaken by any
    open one, whatever that goes on to (log-probabilities only fall, so an open one is bounded by its own over the
    largest penalty it can reach). "first": when `n_best` have finished. "beam": when `width` have, as other libraries'
    beams do. "full": at the length limit.
    Finished sentences leave the batch when `shrink`. A sentence of which no hypothesis is possible gets none.
    """
    sentences, device, choose = problem.first.shape[0], problem.first.device, problem.choose or best
    limits: list[int] = problem.max_length.tolist()
    finished: list[list[Hypothesis]] = [[] for _ in range(sentences)]
    needed = max(width, n_best) if stop == "beam" else n_best
    alive, done = list(range(sentences)), [False] * sentences  # those still in the batch, in order
    tokens = problem.first.repeat_interleave(width)  # (B·K,)
    state = problem.state.select(torch.arange(sentences, device=device).repeat_interleave(width))
    history = torch.empty(sentences, width, 0, dtype=torch.long, device=device)
    # Only one copy of the first row counts, or the beam would hold the same hypothesis K times.
    totals = torch.full((sentences, width), _NONE, dtype=torch.float64, device=device)
    totals[:, 0] = 0.0
    length = 0
    while not all(done):
        length += 1
        log_probabilities, state = problem.step(tokens, state)  # (B·K, V)
        vocabulary = log_probabilities.shape[-1]
        # Of 2K candidates, those that go on first in front, at most K are ends, so K open ones are always left.
        scores, flat = choose(log_probabilities, totals, min(2 * width, width * vocabulary), state)
        parents, chosen = flat // vocabulary, flat % vocabulary
        ends = chosen == problem.end  # (B, 2K)
        going = scores.masked_fill(ends, _NONE)
        cut = [length >= limits[s] for s in alive]
        new: list[list[Hypothesis]] = [[]] * len(alive)
        if any(cut) or bool(ends.any()):
            new = _finished(problem, (scores, parents, chosen), history, state, cut)
        for s, best_open, found in zip(alive, going.amax(1).tolist(), new, strict=True):
            if not done[s]:
                finished[s] = sorted([*finished[s], *found], key=lambda h: -h.score)[: max(width, n_best)]
                # Every open hypothesis is bounded by the best one at its most generous penalty.
                most = max(problem.penalty(length + 1), problem.penalty(limits[s]))
                bound = best_open / most if stop == "bound" else _NONE
                enough = stop != "full" and len(finished[s]) >= needed and finished[s][needed - 1].score >= bound
                done[s] = length >= limits[s] or best_open == _NONE or enough
        order = ends.long().argsort(dim=1, stable=True)[:, :width]  # the first K that are no ends
        totals, parents, chosen = (each.gather(1, order) for each in (going, parents, chosen))
        history = torch.cat((history.gather(1, parents[..., None].expand_as(history)), chosen[..., None]), dim=2)
        yield Beams(history, totals, finished, alive)
        select = parents + torch.arange(len(alive), device=device)[:, None] * width  # (B, K) rows of the state
        if shrink and any(done[s] for s in alive):
            index = torch.tensor([i for i, s in enumerate(alive) if not done[s]], dtype=torch.long, device=device)
            alive = [s for s in alive if not done[s]]
            history, totals, chosen, select = (x.index_select(0, index) for x in (history, totals, chosen, select))
        tokens = chosen.flatten()
        if alive:
            state = state.select(select.flatten())
    return [each[:n_best] for each in finished]


def beam_search(
    problem: Problem[S], *, width: int, n_best: int = 1, stop: str = "bound", shrink: bool = True
) -> list[list[Hypothesis]]:
    """What `beam_steps` comes to."""
    return run_through(beam_steps(problem, width=width, n_best=n_best, stop=stop, shrink=shrink))


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


def _finished(
    problem: Problem[S], candidates: tuple[Tensor, Tensor, Tensor], history: Tensor, state: S, cut: list[bool]
) -> list[list[Hypothesis]]:
    """Of each row, the hypotheses that this step finishes: ends among its best K, or all where the limit cuts them.

    `candidates` are log-probabilities, the hypotheses that they go on from, and tokens (B, 2K).
    """
    width, length = history.shape[1], history.shape[2] + 1
    rows = history.tolist()
    extra = problem.bonus(state).view(-1, width).tolist() if problem.bonus else None  # (B, K)
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

    def select(self, rows: Tensor) -> _Grouped[S]:
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

    def step(tokens: Tensor, state: _Grouped[S]) -> tuple[Tensor, _Grouped[S]]:
        if state.position:
            taking.update((s, state.position, token) for s, token in zip(state.sentences, tokens.tolist(), strict=True))
        log_probabilities, inner = problem.step(tokens, state.inner)
        after = _Grouped(inner, state.sentences, state.position + 1)
        if taken:
            counts = torch.zeros(log_probabilities.shape, dtype=log_probabilities.dtype)
            rows: dict[int, list[int]] = {}
            for row, s in enumerate(state.sentences):
                rows.setdefault(s, []).append(row)
            for (s, position, token), count in taken.items():
                if position == after.position and s in rows:
                    counts[rows[s], token] = count
            log_probabilities = log_probabilities - diversity * counts.to(log_probabilities.device)
        return log_probabilities, after

    everything = torch.arange(problem.first.shape[0], device=problem.first.device)
    bonus, choose = problem.bonus, problem.choose
    return Problem(
        step,
        _Grouped(problem.state.select(everything), tuple(everything.tolist())),
        problem.first,
        problem.max_length,
        problem.end,
        problem.penalty,
        (lambda state: bonus(state.inner)) if bonus else None,
        (lambda values, totals, keep, state: choose(values, totals, keep, state.inner)) if choose else None,
    )
