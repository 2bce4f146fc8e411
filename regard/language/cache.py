"""A language model that looks back: attention to where a text stood when its words came last, with nothing to train.

Grave, Joulin and Usunier 2017, "Improving neural language models with a continuous cache": each of the last positions
is kept, its hidden state as key and the word that came next as value. A state that is like an earlier one expects that
word again: p(w) = (1 - share) p_model(w) + share Σ_i a_i [w_i = w], with a = softmax_i(flatness h · h_i). It helps most
where a rare word, once said, is said again.

Sizes: T positions of a window, N of the cache, D features.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import ModelError
from regard.models.blocks import device_of
from regard.models.interface import LanguageModel
from regard.tasks.lines import pad

Row = tuple[Sequence[int], Sequence[int], int]
"""The ids that are read, the id to predict at each position, and the first position that is scored."""

SHARPNESS = (2.0, 4.0, 8.0, 12.0, 16.0, 24.0)
"""What `chosen` tries: the score of a state with itself. Divided by the mean of h · h it is the flatness."""
SHARES = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4)
MOST = 20_000
"""Positions of a cache: a window is compared with all of them at once."""
_PART = 256  # positions of a window that are computed together: a line may be as long as it likes


@dataclass(frozen=True)
class Cache:
    """How a model looks back; `chosen` finds what is best for a text."""

    size: int
    """Positions that are kept: the paper has 500 for the Penn Treebank, 2,000 for WikiText."""
    flatness: float
    """What scores are multiplied by: 0 attends to all of the cache alike."""
    share: float
    """How much of the probability is the cache's, from 0 to 1."""

    def __post_init__(self) -> None:
        if not 1 <= self.size <= MOST or not 0 <= self.share < 1 or not 0 <= self.flatness < math.inf:
            raise ModelError(
                f"the cache has size {self.size}, flatness {self.flatness:g} and share {self.share:g}; it has from 1 "
                f"to {MOST:,} positions, a flatness of at least 0, and a share from 0 to below 1."
            )


@dataclass(frozen=True)
class _Window:
    """What a model makes of a window of the text."""

    hidden: Tensor  # (T, D), float64
    targets: Tensor  # (T,)
    probability: Tensor  # (T,): of each target, float64


def _windows(model: LanguageModel, rows: Iterable[Row], carry: bool) -> Iterator[_Window]:
    """Window after window, as the text has them, long ones in parts; with `carry` the state goes on from each."""
    state = None
    for read, targets, first in rows:
        ids, layout = pad([read], device_of(model))
        hidden, state = model.decode(ids, state if carry and state is not None else model.start(), layout)
        wanted = torch.tensor(targets[first:], device=ids.device)
        for h, t in zip(hidden[0, first : len(read)].split(_PART), wanted.split(_PART), strict=True):
            probability = model.project(h).double().softmax(-1).gather(-1, t[:, None])[:, 0]
            yield _Window(h.double(), t, probability)


def recalled(window: _Window, keys: Tensor, words: Tensor, size: int, flatnesses: Iterable[float]) -> list[Tensor]:
    """For each flatness the probability (T,) of each target by the cache alone; nan where it is still empty.

    `keys` (N, D) and `words` (N,) are of the positions before; a position looks at `size` of them and of its window's.
    """
    known, after = torch.cat((keys, window.hidden)), torch.cat((words, window.targets))
    here = torch.arange(len(keys), len(known), device=known.device)[:, None]
    behind = here - torch.arange(len(known), device=known.device)
    scores, out = window.hidden @ known.t(), (behind < 1) | (behind > size)
    again = after == window.targets[:, None]
    weights = ((flatness * scores).masked_fill(out, -math.inf).softmax(-1) for flatness in flatnesses)
    return [(each * again).sum(-1) for each in weights]


def _mixed(window: _Window, found: Tensor, share: float) -> float:
    """The log-probability of a window's targets; where there is nothing to look back to it is the model's own."""
    both = (1 - share) * window.probability + share * found
    return float(torch.where(found.isnan(), window.probability, both).log().sum())


@torch.inference_mode()
def log_probabilities(
    model: LanguageModel, rows: Iterable[Row], size: int, settings: Sequence[tuple[float, float]], carry: bool
) -> tuple[list[float], int]:
    """The summed natural log-probability of the scored tokens with each (flatness, share), and their number.

    Rows are read in order, and the cache goes from one to the next.
    """
    flatnesses = [*dict.fromkeys(flatness for flatness, _ in settings)]
    totals, count = [0.0] * len(settings), 0
    keys = words = None
    for window in _windows(model, rows, carry):
        if keys is None or words is None:
            keys, words = window.hidden[:0], window.targets[:0]
        found = dict(zip(flatnesses, recalled(window, keys, words, size, flatnesses), strict=True))
        for i, (flatness, share) in enumerate(settings):
            totals[i] += _mixed(window, found[flatness], share)
        keys = torch.cat((keys, window.hidden))[-size:]
        words = torch.cat((words, window.targets))[-size:]
        count += len(window.targets)
    return totals, count


@torch.inference_mode()
def chosen(model: LanguageModel, rows: Sequence[Row], size: int, carry: bool) -> Cache:
    """The cache of so many positions under which these rows, a text of its own, are likeliest."""
    Cache(size, 0.0, 0.0)  # refuses a size that cannot be
    length = count = 0.0
    for window in itertools.islice(_windows(model, rows, carry), 100):
        length, count = length + float((window.hidden**2).sum()), count + len(window.hidden)
    settings = [(sharp * count / length, share) for sharp in SHARPNESS for share in SHARES]
    totals, _ = log_probabilities(model, rows, size, settings, carry)
    return Cache(size, *settings[totals.index(max(totals))])
