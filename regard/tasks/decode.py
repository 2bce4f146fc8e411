"""A model and a search put together: source ids -> hypotheses, in batches that give back the order they were given.

Batch-independent mode: a sentence's output does not depend on its neighbours. In float32 it can: matrix libraries take
other kernels for other numbers of rows and other alignments, so the last bits of a score change with the batch, and now
and then two hypotheses change places. In this mode the float32 weights are multiplied in float64. What is left of the
differences is about 1e-15 of a score, where hypotheses that close do not occur in practice.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from regard.models.interface import EncoderDecoder, device_of, layout_of
from regard.search import Hypothesis, SearchConfig, beam_search, greedy_search, penalty_of
from regard.text import BEGIN, END, PAD
from regard.train import mixed

__all__ = ["decode", "independent", "step_of"]

State = Any
Ids = Sequence[int]


def step_of(model: EncoderDecoder, bfloat16: bool = False) -> Callable[[Tensor, State], tuple[Tensor, State]]:
    """The model as a step function: last pieces (N,) and a state -> log-probabilities (N, V), next state."""

    def step(tokens: Tensor, state: State) -> tuple[Tensor, State]:
        with mixed(tokens.device, bfloat16):
            hidden, state = model.decode(tokens[:, None], state)
            logits = model.project(hidden[:, -1])
            return (logits.float() if logits.dtype == torch.bfloat16 else logits).log_softmax(-1), state

    return step


def independent(model: EncoderDecoder) -> EncoderDecoder:
    """The model for batch-independent mode: a copy that computes in float64 (itself, if it does already)."""
    if next(iter(model.named_parameters()))[1].dtype == torch.float64:
        return model
    return copy.deepcopy(model).double()  # type: ignore[attr-defined, no-any-return]


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
    """The `n_best` best hypotheses of each source (ids without end), best first; `progress` hears how many are done.

    Batch-independent mode makes a float64 copy of the model; who calls often hands in `independent(model)` instead.
    """
    if batch_independent:
        model, bfloat16 = independent(model), False
    device = device_of(model)  # type: ignore[arg-type]
    step = step_of(model, bfloat16)
    penalty = penalty_of(search.penalty, search.alpha)
    found: list[list[Hypothesis]] = [[] for _ in sources]
    done = 0
    for batch in _batches([len(s) for s in sources], search.batch_size):
        rows = [[*sources[i], END] for i in batch]
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
            )
        for i, h in zip(batch, hypotheses, strict=True):
            found[i] = h
        done += len(batch)
        if progress:
            progress(done)
    return found


def _batches(lengths: Sequence[int], size: int) -> Iterator[list[int]]:
    """Indices in batches of at most `size`, of near the same length; the longest first, so that memory shows early."""
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    for start in range(0, len(order), size):
        yield order[start : start + size]
