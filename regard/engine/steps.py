"""The compiled decoder's step alone, as PyTorch's tensors, for the searches that are written in Python.

Sizes: of a state N rows, T tokens so far; V vocabulary.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.kernels.build import default_threads

from .decoding import Decoder, Lists

_PANEL = 64
"""Outputs of a matrix come in whole panels; see decoding.cpp."""


@dataclass(frozen=True)
class StepState:
    """What the rows of a search have written: a state as `regard.nn.state.State` describes it."""

    sentences: Tensor
    """(N,)"""
    trail: Tensor
    """(N, T): which row of its step wrote each of a row's positions."""
    blocks: tuple[Tensor, ...] = ()
    """Keys and values of each position (layers, rows of its step, E + F)."""

    def select(self, rows: Tensor) -> StepState:
        """See `State.select`; nothing is copied but numbers."""
        return replace(self, sentences=self.sentences[rows], trail=self.trail[rows])


def start(
    decoder: Decoder, sources: Sequence[Sequence[int]], longest: int, lists: Lists | None = None
) -> tuple[Callable[[Tensor, StepState], tuple[Tensor, StepState]], StepState]:
    """A step function (last tokens (N,), state -> log-probabilities (N, V), next state), and its first state.

    The state has a row for each source (all its ids). `longest` is the most tokens that any will have. Where there
    are lists, what is not in a source's own has log-probability -inf, and the others' sum to one.
    """
    given, kept = decoder.given(sources, longest, lists)
    steps = decoder.made(decoder.library.steps_new(*given, default_threads()))
    shape = decoder.shape
    stored = shape.heads * (shape.key_width + shape.value_width)
    kind = torch.float32 if decoder.precision == "float32" else torch.bfloat16

    def step(tokens: Tensor, state: StepState) -> tuple[Tensor, StepState]:
        rows, length = state.trail.shape
        blocks = (*state.blocks, torch.empty(shape.decoder_layers, rows, stored, dtype=kind))
        padded = -(-shape.vocabulary // _PANEL) * _PANEL
        out = torch.empty(rows, padded) if lists is None else torch.full((rows, padded), float("-inf"))
        small = [x.to(torch.int32).contiguous() for x in (tokens, state.sentences, state.trail)]
        decoder.run(
            "steps_step",
            steps,
            rows,
            *map(_at, small[:2]),
            length,
            (ctypes.c_void_p * len(blocks))(*(block.data_ptr() for block in blocks)),
            (ctypes.c_int64 * len(blocks))(*(block.shape[1] for block in blocks)),
            _at(small[2]),
            _at(out),
        )
        trail = torch.cat((state.trail, torch.arange(rows, dtype=torch.int32)[:, None]), 1)
        return out[:, : shape.vocabulary], StepState(state.sentences, trail, blocks)

    weakref.finalize(step, _freed, decoder, steps, kept)
    count = len(sources)
    return step, StepState(torch.arange(count, dtype=torch.int32), torch.empty(count, 0, dtype=torch.int32))


def _at(x: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(x.data_ptr())


def _freed(decoder: Decoder, steps: ctypes.c_void_p, kept: object) -> None:
    """`decoder` and `kept` are named so that they live as long."""
    decoder.library.steps_free(steps)
