"""Beam search over any step function; no model in sight.

Sizes: B sentences, K width, T tokens so far, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from .hypotheses import Hypothesis, Problem, S, run_through


@dataclass(frozen=True)
class Beams:
    """Where a beam search stands: hypotheses still open, a sentence a row, and those that finished."""

    history: Tensor  # (B, K, T)
    totals: Tensor  # (B, K); -inf where no hypothesis is
    finished: list[list[Hypothesis]]
    """Of every sentence of the problem."""
    sentences: list[int]
    """Of each row, the number of its sentence: those that finished may be gone."""

    def agreed(self) -> list[int]:
        """Of a search for one sentence: the tokens that its best hypothesis begins with, whatever is still to come."""
        rows = [h.ids for h in self.finished[0][:1]]
        rows += [ids for of_one in self.open() for ids in of_one]
        same = 0
        while rows and same < min(map(len, rows)) and len({row[same] for row in rows}) == 1:
            same += 1
        return rows[0][:same] if rows else []

    def open(self) -> list[list[list[int]]]:
        """The ids of each row's open hypotheses."""
        kept = self.totals > float("-inf")
        return [of_one[keep].tolist() for of_one, keep in zip(self.history, kept, strict=True)]


@dataclass(frozen=True)
class _Candidates:
    """The continuations that a step offers, those that go on first in front; 2K a sentence."""

    scores: Tensor  # (B, 2K) log-probabilities in float64
    parents: Tensor  # (B, 2K): the hypothesis that each goes on from
    tokens: Tensor  # (B, 2K)
    is_end: Tensor  # (B, 2K)

    def onward(self, width: int) -> tuple[Tensor, Tensor, Tensor]:
        """Totals, parents and tokens (B, K) of the first K that are no ends; -inf where fewer are left."""
        order = self.is_end.long().argsort(dim=1, stable=True)[:, :width]
        totals = self.scores.masked_fill(self.is_end, float("-inf")).gather(1, order)
        if totals.shape[1] < width:  # a vocabulary smaller than the beam
            short = width - totals.shape[1]
            totals = functional.pad(totals, (0, short), value=float("-inf"))
            order = functional.pad(order, (0, short), value=0)
        return totals, self.parents.gather(1, order), self.tokens.gather(1, order)


def beam_steps(
    problem: Problem[S], *, width: int, n_best: int = 1, stop: str = "bound", shrink: bool = True
) -> Generator[Beams, None, list[list[Hypothesis]]]:
    """The best `n_best` finished hypotheses of each sentence, best first.

    When a sentence stops is named by `stop`. "bound": when `n_best` of its finished ones cannot be overtaken by any
    open one, whatever that goes on to (log-probabilities only fall, so an open one is bounded by its own over the
    largest penalty it can reach). "first": when `n_best` have finished. "beam": when `width` have, as other libraries'
    beams do. "full": at the length limit.
    Finished sentences leave the batch when `shrink`. A sentence of which no hypothesis is possible gets none.

    Stops after every step to show where it stands; what it returns is what `beam_search` does.
    """
    sentences, device = problem.first.shape[0], problem.first.device
    limits: list[int] = problem.max_length.tolist()
    finished: list[list[Hypothesis]] = [[] for _ in range(sentences)]
    alive = list(range(sentences))  # the sentences still in the batch, in order
    done = [False] * sentences
    tokens = problem.first.repeat_interleave(width)  # (B·K,)
    state = problem.state.select(torch.arange(sentences, device=device).repeat_interleave(width))
    history = torch.empty(sentences, width, 0, dtype=torch.long, device=device)
    # Only one copy of the first row counts, or the beam would hold the same hypothesis K times.
    totals = torch.full((sentences, width), float("-inf"), dtype=torch.float64, device=device)
    totals[:, 0] = 0.0
    length = 0
    while alive and not all(done[s] for s in alive):
        length += 1
        log_probabilities, state = problem.step(tokens, state)  # (B·K, V)
        found = _candidates(problem, log_probabilities, totals, state)
        ending = bool(found.is_end.any()) or any(length >= limits[s] for s in alive)
        new = _finished(problem, found, history, state, [length >= limits[s] for s in alive]) if ending else {}
        open_scores = found.scores.masked_fill(found.is_end, float("-inf")).amax(1).tolist()
        for i, (s, best_open) in enumerate(zip(alive, open_scores, strict=True)):
            if done[s]:
                continue
            finished[s] = sorted([*finished[s], *new.get(i, ())], key=lambda h: -h.score)[: max(width, n_best)]
            # Every open hypothesis is bounded by the best one at its most generous penalty.
            most = max(problem.penalty(length + 1), problem.penalty(limits[s]))
            bound = best_open / most if stop == "bound" else float("-inf")
            needed = max(width, n_best) if stop == "beam" else n_best
            enough = stop != "full" and len(finished[s]) >= needed and finished[s][needed - 1].score >= bound
            done[s] = length >= limits[s] or best_open == float("-inf") or enough
        totals, parents, chosen = found.onward(width)
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


beam_search = run_through(beam_steps)
"""`beam_steps` without the stops: its hypotheses."""


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


def _candidates(problem: Problem[S], log_probabilities: Tensor, totals: Tensor, state: S) -> _Candidates:
    """Of 2K candidates at most K are ends, so K open ones are always left."""
    width, vocabulary = totals.shape[1], log_probabilities.shape[-1]
    choose = problem.choose or best
    scores, flat = choose(log_probabilities, totals, min(2 * width, width * vocabulary), state)
    tokens = flat % vocabulary
    return _Candidates(scores, flat // vocabulary, tokens, tokens == problem.end)


def _finished(
    problem: Problem[S], found: _Candidates, history: Tensor, state: S, cut: list[bool]
) -> dict[int, list[Hypothesis]]:
    """Of each row, the hypotheses that this step finishes: ends among its best K, or all where the limit cuts them."""
    width, length = history.shape[1], history.shape[2] + 1
    scores, ends, parents, tokens = (x.tolist() for x in (found.scores, found.is_end, found.parents, found.tokens))
    rows = history.tolist()
    extra = problem.bonus(state).view(-1, width).tolist() if problem.bonus else None  # (B, K)
    new: dict[int, list[Hypothesis]] = {i: [] for i in range(len(cut))}
    for i, cut_off in enumerate(cut):
        for j, score in enumerate(scores[i]):
            if score == float("-inf") or (j >= width and not cut_off):
                break
            if ends[i][j] or cut_off:
                parent = parents[i][j]
                ids = rows[i][parent] + ([] if ends[i][j] else [tokens[i][j]])
                rank = score / problem.penalty(length) + (extra[i][parent] if extra else 0.0)
                new[i].append(Hypothesis(ids, score, rank, bool(ends[i][j])))
    return new
