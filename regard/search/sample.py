"""Sampling: each token is drawn from the model's distribution, or from what is left of it.

Sizes: N rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import torch
from torch import Tensor

from .hypotheses import Hypothesis, Problem, S, run_through


@dataclass(frozen=True)
class Draw:
    """How a token is drawn: first the temperature, then the `top_k` likeliest, then of those the fewest that hold
    `top_p` of the probability (Holtzman et al. 2020). The defaults are ancestral sampling.
    """

    seed: int = 1
    temperature: float = 1.0
    top_k: int = 0
    """0: all of them."""
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


def sample_steps(
    problem: Problem[S], *, draw: Draw, keys: Sequence[tuple[int, int]]
) -> Generator[list[list[int]], None, list[Hypothesis]]:
    """A sequence for each row of the problem, drawn until the end or until the length limit.

    keys[i] is (line, number of the sample). Log-probabilities are those of the problem's step, whatever the draw did to
    them; -inf where no token was possible.

    Shows every row's ids after each step; what it returns is what `sample_search` does.
    """
    limits: list[int] = problem.max_length.tolist()
    ids: list[list[int]] = [[] for _ in limits]
    totals, lengths, ended = [0.0] * len(ids), [0] * len(ids), [False] * len(ids)
    tokens, state, length = problem.first, problem.state, 0
    open_rows = set(range(len(ids)))
    while open_rows:
        log_probabilities, state = problem.step(tokens, state)  # (N, V)
        tokens = draw.pick(log_probabilities, keys, length)
        values = log_probabilities.gather(-1, tokens[:, None])[:, 0].double().tolist()
        length += 1
        drawn = tokens.tolist()
        for i in sorted(open_rows):
            totals[i] += values[i]
            lengths[i] = length
            ended[i] = drawn[i] == problem.end
            if not ended[i]:
                ids[i].append(drawn[i])
            if ended[i] or length >= limits[i] or totals[i] == float("-inf"):
                open_rows.remove(i)
        yield ids
    return [Hypothesis(ids[i], totals[i], totals[i] / problem.penalty(lengths[i]), ended[i]) for i in range(len(ids))]


sample_search = run_through(sample_steps)
"""`sample_steps` without the stops: its hypotheses."""
