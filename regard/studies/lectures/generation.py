"""Writing a sequence: its probability, the greedy way, all ways, beams, lengths.

Sizes: N rows, V vocabulary, T length.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from regard.pictures import bars, curves
from regard.search.beam import beam_search
from regard.search.hypotheses import Hypothesis, Problem, run_through
from regard.search.paths import Draw, greedy_steps, sample_steps
from regard.search.table import penalty_of

from .exhaustive import exhaustive_search
from .page import Lecture, Value, heat

WORDS = ("A", "B", "C", "<eos>")
END = 3
TABLE = ((0.5, 0.2, 0.2, 0.1), (0.1, 0.4, 0.3, 0.2), (0.2, 0.2, 0.4, 0.2), (0.0, 0.2, 0.2, 0.6))
"""The lecture's table, a step a row: what comes after the greedy words."""
AFTER_AC = ((0.1, 0.6, 0.2, 0.1), (0.1, 0.2, 0.1, 0.6))
"""Steps 3 and 4 after A, C, which the lecture uses (0.6 and 0.6) and does not print; the rest is chosen here."""


@dataclass(frozen=True)
class Written:
    """What each row has written so far: the state of a model that is a table."""

    rows: tuple[tuple[int, ...], ...]

    def select(self, rows: Tensor) -> Written:
        return Written(tuple(self.rows[i] for i in rows.tolist()))


def step(tokens: Tensor, state: Written) -> tuple[Tensor, Written]:
    """The lecture's model as a step function: a row of a table by what was written; -1 begins."""
    rows = tuple((*row, t) if t >= 0 else row for row, t in zip(state.rows, tokens.tolist(), strict=True))
    after = [AFTER_AC if row[:2] == (0, 2) else TABLE[2:] for row in rows]
    found = [TABLE[len(r)] if len(r) < 2 else a[min(len(r), 3) - 2] for r, a in zip(rows, after, strict=True)]
    return torch.tensor(found, dtype=torch.float64).log(), Written(rows)


_BEGIN = Written(((),))
_FIRST = torch.tensor([-1])
_LONGEST = 4


def _spelt(found: Hypothesis) -> str:
    return " ".join([WORDS[i] for i in found.ids] + (["<eos>"] if found.ended else []))


def _problem(penalty: str, alpha: float, longest: int = _LONGEST) -> Problem[Written]:
    return Problem(step, _BEGIN, _FIRST, torch.tensor([longest]), END, penalty_of(penalty, alpha))


def _greedy() -> Hypothesis:
    return run_through(greedy_steps(_problem("none", 0.0)))[0]


def _all(alpha: float, many: int = 1000) -> list[Hypothesis]:
    return exhaustive_search(_problem("power", alpha), n_best=many)


def _beam(width: int, alpha: float) -> Hypothesis:
    return beam_search(_problem("power", alpha), width=width, stop="full")[0][0]


def chain_rule() -> Lecture:
    """p(x_1, …, x_T) is a product of conditionals, from the front or from the back alike."""
    joint = torch.rand(3, 3, 3, dtype=torch.float64)
    joint /= joint.sum()
    forward = torch.ones_like(joint)
    backward = torch.ones_like(joint)
    for t in range(3):
        upto, before = (joint.sum(tuple(range(n, 3)), keepdim=True) if n < 3 else joint for n in (t + 1, t))
        forward = forward * (upto / before if t else upto)
        last, behind = (joint.sum(tuple(range(3 - n)), keepdim=True) if n < 3 else joint for n in (t + 1, t))
        backward = backward * (last / behind if t else last)
    total = sum(math.exp(h.log_probability) for h in exhaustive_search(_problem("none", 0.0, longest=2), n_best=1000))
    return Lecture(
        {
            "product from the front, largest difference": float((forward - joint).abs().max()),
            "product from the back, largest difference": float((backward - joint).abs().max()),
            "sum over all sequences of at most two words": total,
            "sequences of length 10 over 10,000 words, as a power of ten": 10 * math.log10(10_000),
        },
        (heat("p(x2 | x1)", joint.sum(2) / joint.sum((1, 2))[:, None], axes="x1/x2"),),
    )


def greedy_or_not() -> Lecture:
    """The best word each time: 0.5 · 0.4 · 0.4 · 0.6 = 0.048; a second best once: 0.5 · 0.3 · 0.6 · 0.6 = 0.054."""
    greedy = _greedy()
    every = _all(0.0)
    four = [h for h in every if h.ended and len(h.ids) == 3]
    better = next(h for h in every if h.ids == [0, 2, 1] and h.ended)
    alone = max(math.prod(TABLE[t][w] for t, w in enumerate(words)) for words in product(range(3), repeat=3))
    return Lecture(
        {
            "greedy": _spelt(greedy),
            "probability of greedy": math.exp(greedy.log_probability),
            "the other": _spelt(better),
            "probability of the other": math.exp(better.log_probability),
            "best of four words": _spelt(max(four, key=lambda h: h.log_probability)),
            "best of all": _spelt(every[0]),
            "probability of the best of all": math.exp(every[0].log_probability),
            "best of four words by the printed table alone": alone * TABLE[3][END],
        },
        (
            heat("The printed table", torch.tensor(TABLE).T, WORDS, [str(t) for t in range(1, 5)]),
            bars(
                "Probabilities of the likeliest",
                [_spelt(h) for h in every[:3]] + [_spelt(greedy)],
                {"p": [math.exp(h.log_probability) for h in [*every[:3], greedy]]},
            ),
        ),
    )


def search_cost() -> Lecture:
    """All sequences are n^T = 10^40; a beam looks at k n T = 5 · 10^5."""
    n, length, width = 10_000, 10, 5
    lengths = range(1, 11)
    return Lecture(
        {
            "n^T": float(n**length),
            "k n T": width * n * length,
            "sequences of the table's model that exhaustive search found": len(_all(0.0)),
        },
        (
            curves(
                "Sequences looked at, n = 10,000",
                list(lengths),
                {"all": [float(n**t) for t in lengths], "beam of 5": [float(width * n * t) for t in lengths]},
                x="T",
                logarithmic="y",
            ),
        ),
    )


def beams() -> Lecture:
    """Beams of 1, 2 and 3 on the lecture's model, ranked by log-probability / L^0.75: from two on, the best."""
    best = _all(0.75)[0]
    found = {width: _beam(width, 0.75) for width in (1, 2, 3)}
    return Lecture(
        {f"beam of {width}": _spelt(h) for width, h in found.items()}
        | {f"score of a beam of {width}": h.score for width, h in found.items()}
        | {"exhaustive": _spelt(best), "score of exhaustive search": best.score},
        (
            bars(
                "Score, 1 / L^0.75",
                [str(width) for width in found],
                {"log p / L^0.75": [h.score for h in found.values()]},
            ),
        ),
    )


def length_normalisation() -> Lecture:
    """Each word lowers the probability, so the shortest wins unless log p is divided by L^α, usually α = 0.75."""
    alphas: Sequence[float] = [0.0, 0.25, 0.5, 0.75, 1.0]
    best = {alpha: _all(alpha)[0] for alpha in alphas}
    some = {_spelt(h): h for h in _all(0.0) if h.ended and h.ids in ([], [0], [0, 1, 2], [0, 2, 1])}
    rank = {
        name: [h.log_probability / penalty_of("power", a)(len(h.ids) + 1) for a in alphas] for name, h in some.items()
    }
    return Lecture(
        {f"best at α = {alpha:g}": _spelt(h) for alpha, h in best.items()}
        | {f"score of {name} at α = 0.75": values[3] for name, values in rank.items()},
        (curves("log p / L^α", alphas, rank, x="α"),),
    )


def exhaustive() -> Lecture:
    """Every sequence of the lecture's model of at most four words, by its probability: they are few enough to list,
    their probabilities sum to 1 if those that were cut off count, and the best of them is the yardstick of beams.
    """
    every = _all(0.0)
    p = [math.exp(h.log_probability) for h in every]
    ended = sum(share for h, share in zip(every, p, strict=True) if h.ended)
    counted = [sum(len(h.ids) + h.ended == n for h in every) for n in range(1, _LONGEST + 1)]
    shown = every[:5]
    numbers: dict[str, Value] = {
        "sequences": len(every),
        "of 1, 2, 3, 4 words, the end counted": [float(n) for n in counted],
        "3^4 of four words": 3**4,
        "sum of the probabilities": sum(p),
        "of those that have ended": ended,
        "of those that were cut off": sum(p) - ended,
    }
    numbers |= {f"number {n + 1}": f"{_spelt(h)}: {p[n]:.4g}" for n, h in enumerate(shown)}
    numbers["place of the greedy one"] = [h.ids for h in every].index(_greedy().ids) + 1
    return Lecture(numbers, (bars("The likeliest five", [_spelt(h) for h in shown], {"p": p[: len(shown)]}),))


def sampling() -> Lecture:
    """x̂_t drawn from p(x | x̂_1:(t-1)): of 5,000 draws of the lecture's model the first word is A in half of them, and a
    whole sequence comes as often as its probability says. With the likeliest word alone (top-k of 1) it is greedy.
    """
    count = 5000
    keys = [(0, n) for n in range(count)]
    many = Problem(
        step, Written(((),) * count), _FIRST.expand(count), torch.full((count,), _LONGEST), END, penalty_of("none", 0.0)
    )
    drawn = run_through(sample_steps(many, draw=Draw(), keys=keys))
    first = [sum((h.ids or [END])[0] == word for h in drawn) / count for word in range(len(WORDS))]
    greedy = _greedy()
    seen = sum(h.ids == greedy.ids and h.ended for h in drawn) / count
    one = Problem(step, _BEGIN, _FIRST, torch.tensor([_LONGEST]), END, penalty_of("none", 0.0))
    top = run_through(sample_steps(one, draw=Draw(top_k=1), keys=[(0, 0)]))[0]
    return Lecture(
        {
            "first word drawn: A, B, C, <eos>": first,
            "as the table has it": list(TABLE[0]),
            f"share of {_spelt(greedy)}": seen,
            "its probability": math.exp(greedy.log_probability),
            "different sequences": len({(tuple(h.ids), h.ended) for h in drawn}),
            "with top-k of 1": _spelt(top),
        },
        (bars("The first word", list(WORDS), {"drawn": first, "table": list(TABLE[0])}),),
    )
