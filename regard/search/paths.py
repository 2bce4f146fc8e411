"""Searches along single paths: greedy and drawn ones, and, as the yardstick of beams, along every path there is.

Sizes: B sentences, N rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import torch
from torch import Tensor

from .hypotheses import Hypothesis, Problem, S, run_through

Steps = Generator[list[list[int]], None, list[Hypothesis]]


def path_steps(problem: Problem[S], pick: Callable[[Tensor, int], Tensor]) -> Steps:
    """A sequence for each row, each token picked from (N, V) at its position until the end or the length limit.

    Log-probabilities are those of the problem's step, whatever was picked; -inf where no token was possible. Shows
    every row's ids after each step.
    """
    limits: list[int] = problem.max_length.tolist()
    ids: list[list[int]] = [[] for _ in limits]
    totals, lengths, ended = [0.0] * len(ids), [0] * len(ids), [False] * len(ids)
    tokens, state, length = problem.first, problem.state, 0
    open_rows = list(range(len(ids)))
    while open_rows:
        log_probabilities, state = problem.step(tokens, state)  # (N, V)
        tokens = pick(log_probabilities, length)
        values = log_probabilities.gather(-1, tokens[:, None])[:, 0].double().tolist()
        length += 1
        picked = tokens.tolist()
        for i in open_rows:
            totals[i] += values[i]
            lengths[i] = length
            ended[i] = picked[i] == problem.end
            if not ended[i]:
                ids[i].append(picked[i])
        open_rows = [i for i in open_rows if not ended[i] and length < limits[i] and totals[i] > float("-inf")]
        yield ids
    return [Hypothesis(ids[i], totals[i], totals[i] / problem.penalty(lengths[i]), ended[i]) for i in range(len(ids))]


def greedy_steps(problem: Problem[S]) -> Steps:
    """The most likely token at every step."""

    return path_steps(problem, lambda log_probabilities, length: log_probabilities.max(dim=-1).indices)


def greedy_search(problem: Problem[S]) -> list[Hypothesis]:
    """Of each sentence, the best token again and again until the end, or until the length limit."""
    return run_through(greedy_steps(problem))


@dataclass(frozen=True)
class Draw:
    """How a token is drawn: first the temperature, then the `top_k` likeliest, then of those the fewest that hold
    `top_p` of the probability (Holtzman et al. 2020). The defaults are ancestral sampling.
    """

    seed: int = 1
    temperature: float = 1.0
    top_k: int = 0  # 0: all of them
    top_p: float = 1.0

    def pick(self, log_probabilities: Tensor, keys: Sequence[tuple[int, int]], position: int) -> Tensor:
        """A token of each row (N,) from (N, V); row i's draw is a function of (seed, keys[i], position) alone."""
        chances = (log_probabilities.double() / self.temperature).softmax(-1).nan_to_num(0.0)
        chances, candidates = chances.sort(dim=-1, descending=True, stable=True)
        if self.top_k:
            chances[:, self.top_k :] = 0.0
        before = chances.cumsum(-1) - chances
        if self.top_p < 1:
            chances = chances.masked_fill(before >= self.top_p * chances.sum(-1, keepdim=True), 0.0)
        reached = chances.cumsum(-1)
        uniform = torch.tensor([[_uniform(self.seed, *key, position)] for key in keys], dtype=torch.float64)
        wanted = uniform.to(reached.device) * reached[:, -1:]
        drawn = torch.searchsorted(reached, wanted, right=True).clamp(max=reached.shape[-1] - 1)
        return candidates.gather(-1, drawn)[:, 0]


def _uniform(*key: int) -> float:
    """A number in [0, 1) that looks drawn but is a function of the key, so that batches cannot change it."""
    digest = blake2b(" ".join(map(str, key)).encode(), digest_size=8).digest()
    return float((int.from_bytes(digest, "big") >> 11) * 2.0**-53)


def sample_steps(problem: Problem[S], *, draw: Draw, keys: Sequence[tuple[int, int]]) -> Steps:
    """Each token drawn from the model's distribution, or from what `draw` leaves of it.

    keys[i] is row i's (line, number of the sample).
    """
    return path_steps(problem, lambda log_probabilities, length: draw.pick(log_probabilities, keys, length))


def sample_search(problem: Problem[S], *, draw: Draw, keys: Sequence[tuple[int, int]]) -> list[Hypothesis]:
    """What `sample_steps` comes to."""
    return run_through(sample_steps(problem, draw=draw, keys=keys))


def exhaustive_search(problem: Problem[S], *, n_best: int = 1) -> list[Hypothesis]:
    """The best `n_best` of all sequences of a problem of one sentence, small enough in vocabulary and length."""
    found: list[Hypothesis] = []
    [limit] = problem.max_length.tolist()

    def visit(tokens: Tensor, state: S, ids: list[int], total: float) -> None:
        log_probabilities, state = problem.step(tokens, state)
        length = len(ids) + 1
        extra = float(problem.bonus(state)[0]) if problem.bonus else 0.0
        values: list[float] = log_probabilities[0].double().tolist()
        possible = [(token, total + value) for token, value in enumerate(values) if value > float("-inf")]
        for token, score in possible:
            ends = token == problem.end
            if ends or length >= limit:
                rank = score / problem.penalty(length) + extra
                found.append(Hypothesis(ids if ends else [*ids, token], score, rank, ends))
        for token, score in possible if length < limit else []:
            if token != problem.end:
                row = torch.tensor([token], device=tokens.device)
                visit(row, state.select(torch.zeros_like(row)), [*ids, token], score)

    visit(problem.first, problem.state, [], 0.0)
    return sorted(found, key=lambda h: -h.score)[:n_best]
