"""The compiled decoder's step alone, for the searches that are written in Python. PyTorch is not needed.

Sizes: of a state N rows, T tokens so far; V vocabulary; S tokens of the longest source.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.kernels.build import threads_here

from .decoding import Decoder, Lists, at

_PANEL = 64  # outputs of a matrix come in whole panels; see decoding.cpp


@dataclass(frozen=True)
class StepState:
    """What the rows of a search have written: a state as `regard.nn.state.State` describes it."""

    sentences: NDArray[np.int32]  # (N,)
    trail: NDArray[np.int32]  # (N, T): which row of its step wrote each of a row's positions
    blocks: tuple[NDArray[np.generic], ...] = ()  # what is kept of each position (layers, rows of its step, E + F or D)

    def select(self, rows: NDArray[np.int64]) -> StepState:
        """See `State.select`; nothing is copied but numbers."""
        return replace(self, sentences=self.sentences[rows], trail=self.trail[rows])


def start(
    decoder: Decoder, sources: Sequence[Sequence[int]], longest: int, lists: Lists | None = None, *, looks: bool = False
) -> tuple[Callable[[NDArray[np.int64], StepState], Any], StepState]:
    """A step function (last tokens (N,), state -> log-probabilities (N, V), next state), and its first state.

    The state has a row for each source (all its ids). `longest` is the most tokens that any will have. Where there
    are lists, what is not in a source's own has log-probability -inf, and the others' sum to one. If it `looks`, the
    function also returns where it looked: the last layer's weights, the mean of its heads (N, S).
    """
    given, kept = decoder.given(sources, longest, lists)
    steps = decoder.made(decoder.library.steps_new(*given, threads_here()))
    shape, width = decoder.shape, max(map(len, sources))
    stored = max(shape.heads * (shape.key_width + shape.value_width), shape.width)
    kind = np.dtype(np.float32 if decoder.precision == "float32" else np.uint16)  # two bytes hold a bfloat16

    def step(tokens: NDArray[np.int64], state: StepState) -> Any:
        rows, length = state.trail.shape
        blocks = (*state.blocks, np.empty((shape.decoder_layers, rows, stored), kind))
        padded = -(-shape.vocabulary // _PANEL) * _PANEL
        out = np.empty((rows, padded), np.float32) if lists is None else np.full((rows, padded), -np.inf, np.float32)
        looked = np.zeros((rows, width), np.float32) if looks else None
        small = [np.ascontiguousarray(x, dtype=np.int32) for x in (tokens, state.sentences, state.trail)]
        places = (ctypes.c_void_p * len(blocks))(*(block.ctypes.data for block in blocks))
        sizes = (ctypes.c_int64 * len(blocks))(*(block.shape[1] for block in blocks))
        given = [*map(at, small[:2]), length, places, sizes, *map(at, (small[2], out, looked)), ctypes.c_int64(width)]
        decoder.run("steps_step", steps, rows, *given)
        trail = np.concatenate((state.trail, np.arange(rows, dtype=np.int32)[:, None]), 1)
        after = StepState(state.sentences, trail, blocks)
        values = out[:, : shape.vocabulary]
        return (values, after) if looked is None else (values, after, looked)

    weakref.finalize(step, lambda kept: decoder.library.steps_free(steps), kept)  # what is kept lives as long
    return step, StepState(np.arange(len(sources), dtype=np.int32), np.empty((len(sources), 0), np.int32))
