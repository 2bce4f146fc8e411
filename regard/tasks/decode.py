"""A model and a search put together: source ids -> hypotheses, in batches that give back the order they were given.

Batch-independent mode: a sentence's result does not depend on its neighbours, bit for bit. Two things would make it
depend: padding, which changes the shape of every sum over source positions; and the number of rows, since matrix
libraries have other kernels for the last few rows of a product. So sentences are batched with those of exactly their
own length, a batch is filled up with copies to a multiple of eight, and nobody leaves it early.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from regard.models.interface import EncoderDecoder, device_of, layout_of
from regard.search import Hypothesis, SearchConfig, beam_search, greedy_search, penalty_of
from regard.text import BEGIN, END, PAD
from regard.train import mixed

__all__ = ["decode", "step_of"]

_ROWS = 8

State = Any
Ids = Sequence[int]


def step_of(model: EncoderDecoder, bfloat16: bool = False) -> Callable[[Tensor, State], tuple[Tensor, State]]:
    """The model as a step function: last pieces (N,) and a state -> log-probabilities (N, V) in float32, next state."""

    def step(tokens: Tensor, state: State) -> tuple[Tensor, State]:
        with mixed(tokens.device, bfloat16):
            hidden, state = model.decode(tokens[:, None], state)
            return model.project(hidden[:, -1]).float().log_softmax(-1), state

    return step


@torch.inference_mode()
def decode(
    model: EncoderDecoder,
    sources: Sequence[Ids],
    search: SearchConfig,
    *,
    n_best: int = 1,
    batch_independent: bool = True,
    bfloat16: bool = False,
    progress: Callable[[int], None] | None = None,
) -> list[list[Hypothesis]]:
    """The `n_best` best hypotheses of each source (ids without end), best first; `progress` hears how many are done."""
    device = device_of(model)  # type: ignore[arg-type]
    step = step_of(model, bfloat16)
    penalty = penalty_of(search.penalty, search.alpha)
    found: list[list[Hypothesis]] = [[] for _ in sources]
    done = 0
    for batch in _batches([len(s) for s in sources], search.batch_size, batch_independent):
        rows = [[*sources[i], END] for i in batch]
        if batch_independent:
            rows += [rows[-1]] * (-len(rows) % _ROWS)
        lengths = torch.tensor([len(r) for r in rows], device=device)
        longest = int(lengths.max())
        ids = torch.tensor([r + [PAD] * (longest - len(r)) for r in rows], device=device)
        layout = layout_of("padded", lengths, longest)
        with mixed(device, bfloat16):
            state = model.start(model.encode(ids, layout), layout)
        first = torch.full((len(rows),), BEGIN, device=device)
        limit = lengths - 1 + search.extra_length
        if search.beam == 1 and n_best == 1:
            greedy = greedy_search(step, state, first, max_length=limit, end=END, penalty=penalty)
            hypotheses = [[h] for h in greedy]
        else:
            hypotheses = beam_search(
                step,
                state,
                first,
                width=max(search.beam, n_best),
                max_length=limit,
                end=END,
                penalty=penalty,
                n_best=n_best,
                shrink=not batch_independent,
            )
        for i, h in zip(batch, hypotheses, strict=False):  # the copies at the end are left out
            found[i] = h
        done += len(batch)
        if progress:
            progress(done)
    return found


def _batches(lengths: Sequence[int], size: int, same_length: bool) -> Iterator[list[int]]:
    """Indices in batches of at most `size`, of near or exactly the same length; the longest first, so memory shows early."""
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if batch and (len(batch) == size or (same_length and lengths[batch[0]] != lengths[i])):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch
