"""Searches along single paths: greedy and drawn ones.

Sizes: B sentences, N rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from .arrays import Array, Indices, like, likeliest, log_totals, of_tokens
from .hypotheses import Hypothesis, Problem, S

Steps = Generator[list[list[int]], None, list[Hypothesis]]
_FIRST, _THEN = 64, 512  # a draw looks at so many likeliest tokens, then at so many, then at all


def path_steps(problem: Problem[S], pick: Callable[[Array, int], Indices]) -> Steps:
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
        chosen = pick(log_probabilities, length)
        tokens = like(problem.first, chosen)
        values, picked = of_tokens(log_probabilities, chosen).tolist(), chosen.tolist()
        length += 1
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
    """The most likely token again and again until the end, or until the length limit."""
    return path_steps(problem, lambda log_probabilities, length: likeliest(log_probabilities, 1)[1][:, 0])


@dataclass(frozen=True)
class Draw:
    """How a token is drawn: first the temperature, then the `top_k` likeliest, then of those the fewest that hold
    `top_p` of the probability (Holtzman et al. 2020). The defaults are ancestral sampling.
    """

    seed: int = 1
    temperature: float = 1.0
    top_k: int = 0  # 0: all of them
    top_p: float = 1.0

    def pick(self, log_probabilities: Array, keys: Sequence[tuple[int, int]], position: int) -> Indices:
        """A token of each row (N,) from (N, V); row i's draw is a function of (seed, keys[i], position) alone."""
        uniform = np.array([_uniform(self.seed, *key, position) for key in keys])
        totals = None if self.top_k else log_totals(log_probabilities, self.temperature)
        picked, left, keep = np.zeros(len(keys), np.int64), np.arange(len(keys)), self.top_k or _FIRST
        while len(left):  # those whose draw is not among their likeliest few look at more
            some = log_probabilities if len(left) == len(keys) else log_probabilities[like(log_probabilities, left)]
            values, tokens = likeliest(some, keep)
            values = values / self.temperature
            total = np.logaddexp.reduce(values, axis=-1) if totals is None else totals[left]
            with np.errstate(invalid="ignore"):  # of a row without any chance
                chances = np.nan_to_num(np.exp(values - total[:, None]))
            reached = chances.cumsum(-1)
            kept = np.arange(len(left)), (reached - chances < self.top_p).sum(-1) - 1  # the last that may be drawn
            wanted = uniform[left] * (reached[kept] if self.top_p < 1 else 1.0)
            drawn = np.minimum((reached <= wanted[:, None]).sum(-1), kept[1])
            there = reached[:, -1] > (self.top_p if self.top_p < 1 else wanted)
            there |= totals is None or keep >= some.shape[-1]
            picked[left[there]] = np.take_along_axis(tokens, drawn[:, None], 1)[there, 0]
            left, keep = left[~there], _THEN if keep < _THEN else some.shape[-1]
        return picked


def _uniform(*key: int) -> float:
    """A number in [0, 1) that looks drawn but is a function of the key, so that batches cannot change it."""
    digest = blake2b(" ".join(map(str, key)).encode(), digest_size=8).digest()
    return float((int.from_bytes(digest, "big") >> 11) * 2.0**-53)


def sample_steps(problem: Problem[S], *, draw: Draw, keys: Sequence[tuple[int, int]]) -> Steps:
    """Each token drawn from the model's distribution, or from what `draw` leaves of it.

    keys[i] is row i's (line, number of the sample).
    """
    return path_steps(problem, lambda log_probabilities, length: draw.pick(log_probabilities, keys, length))
