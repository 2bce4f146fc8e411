"""A Transformer compiled for translating on CPUs (decoding.cpp): weights packed once, one call a step of a whole batch.

`Decoder.search` is the whole search, `Decoder.start` a step function and its state, for searches written elsewhere.

Matrices are multiplied in float32, in bfloat16, or in int8: weights with a scale for each output, rows with a scale and
an offset that each gets as it comes. Norms, softmax and sums are float32. A sentence's translation does not depend on
what else is translated, bit for bit.

Sizes: D width of the model, V vocabulary, P places, N and K outputs and inputs of a matrix; of a state N rows, T tokens
so far.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.kernels.build import built

__all__ = [
    "ACTIVATIONS",
    "PRECISIONS",
    "SOURCE",
    "STOPS",
    "Decoder",
    "Found",
    "Lists",
    "Shape",
    "Words",
    "Written",
    "is_fast",
    "refusal",
]

PRECISIONS = ("float32", "bfloat16", "int8")
ACTIVATIONS = ("relu", "gelu", "silu")
STOPS = ("bound", "first", "beam", "full")
Pair = tuple[Tensor, Tensor | None]
"""A matrix (N, K) and its bias (N,), or a norm's gain and bias (D,); float32."""

SOURCE = Path(__file__).with_name("decoding.cpp")
_PANEL = 64
"""Outputs of a matrix come in whole panels; see decoding.cpp."""


def refusal() -> str | None:
    """None if the decoder can be used here, else why not."""
    return built(SOURCE)[1] or None


def is_fast(precision: str) -> bool:
    """Whether this processor has instructions that make a precision faster than float32."""
    return {
        "float32": True,
        "bfloat16": torch.cpu._is_avx512_bf16_supported(),
        "int8": torch.cpu._is_vnni_supported(),
    }[precision]


@dataclass(frozen=True)
class Shape:
    """Sizes in the order in which decoding.cpp reads them; all widths are multiples of 16."""

    width: int
    heads: int
    key_width: int
    value_width: int
    inner: int
    encoder_layers: int
    decoder_layers: int
    vocabulary: int
    activation: int
    pre_norm: bool


@dataclass(frozen=True)
class Words:
    """Embeddings of one side: table (V, D) times scale, plus places (P, D) if there are any; float32."""

    table: Tensor
    scale: float
    places: Callable[[int], Tensor | None]
    """How many are needed -> at least so many."""
    most: int | None = None
    """How many there are; None: any number."""


Lists = Sequence[NDArray[np.int32]]
"""Of each source, the target tokens that it may become, in order and without repetition; the end is among them."""
Found = tuple[list[int], float, float, bool]
"""Ids, log-probability, the score it was ranked by, and whether it ended by itself."""


@dataclass(frozen=True)
class Written:
    """What the rows of a search have written: a state as `regard.nn.state.State` describes it."""

    sentences: Tensor
    """(N,)"""
    trail: Tensor
    """(N, T): which row of its step wrote each of a row's positions."""
    blocks: tuple[Tensor, ...] = ()
    """Keys and values of each position (layers, rows of its step, E + F)."""

    def select(self, rows: Tensor) -> Written:
        """See `State.select`; nothing is copied but numbers."""
        return replace(self, sentences=self.sentences[rows], trail=self.trail[rows])


class Decoder:
    """A model's weights in one precision, ready to search."""

    def __init__(
        self,
        shape: Shape,
        precision: str,
        epsilon: float,
        pairs: Iterable[tuple[Pair, bool]],
        words: tuple[Words, Words],
    ) -> None:
        """`pairs` are matrices and norms (True) in the order of the constructor of decoding.cpp's Decoder.

        Each is asked for when the one before is packed, so that they need not be in memory all at once.
        """
        library = built(SOURCE)[0]
        assert library is not None
        for function in (library.decoder_new, library.search_new, library.steps_new):
            function.restype = ctypes.c_void_p
        self.precision, self._words, self._library, self._shape = precision, words, library, shape
        kind, sizes = PRECISIONS.index(precision), (ctypes.c_int64 * 10)(*map(int, astuple(shape)))
        self._model = ctypes.c_void_p(library.decoder_new(kind, sizes, ctypes.c_float(epsilon)))
        self._norms = []  # they are read where they lie, as the tables are
        for pair, is_norm in pairs:
            library.decoder_add(
                self._model, *(ctypes.c_void_p(None if tensor is None else tensor.data_ptr()) for tensor in pair)
            )
            if is_norm:
                self._norms.append(pair)
        weakref.finalize(self, library.decoder_free, self._model)

    @property
    def capacity(self) -> int | None:
        """The most tokens that either side may have; None: any number."""
        return min((words.most for words in self._words if words.most is not None), default=None)

    def search(
        self,
        sources: Sequence[Sequence[int]],
        limits: Sequence[int],
        *,
        width: int,
        n_best: int,
        batch: int,
        stop: str,
        begin: int,
        end: int,
        penalty: Callable[[int], float],
        lists: Lists | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> list[list[Found]]:
        """The `n_best` best hypotheses of each source (all its ids), best first, as `beam_search` finds them.

        A hypothesis has at most limits[source] ids, all of them in lists[source] if there are lists. `batch` sentences
        are decoded at a time; where one is done the next takes its place. With width 1, stop "first" and n_best 1 it is
        a greedy search.
        """
        if not sources:
            return []
        longest = max(limits)
        penalties = [penalty(length) for length in range(1, longest + 2)]
        settings = (width, n_best, batch, STOPS.index(stop), begin, end, torch.get_num_threads())
        given, kept = self._given(sources, longest, lists)
        search = ctypes.c_void_p(
            self._library.search_new(
                *given,
                (ctypes.c_int32 * len(limits))(*limits),
                (ctypes.c_double * (len(penalties) + 1))(1.0, *penalties),
                len(penalties) + 1,
                (ctypes.c_int64 * len(settings))(*settings),
            )
        )
        try:
            done = 0
            while done < len(sources):
                before, done = done, self._library.search_step(search)
                if progress and done > before:
                    progress(done)
            return [self._found(search, i, n_best, longest) for i in range(len(sources))]
        finally:
            self._library.search_free(search)
            del kept

    def start(
        self, sources: Sequence[Sequence[int]], longest: int, lists: Lists | None = None
    ) -> tuple[Callable[[Tensor, Written], tuple[Tensor, Written]], Written]:
        """A step function (last tokens (N,), state -> log-probabilities (N, V), next state), and its first state.

        The state has a row for each source (all its ids). `longest` is the most tokens that any will have. Where there
        are lists, what is not in a source's own has log-probability -inf, and the others' sum to one.
        """
        given, kept = self._given(sources, longest, lists)
        steps = ctypes.c_void_p(self._library.steps_new(*given, torch.get_num_threads()))
        shape = self._shape
        stored = shape.heads * (shape.key_width + shape.value_width)
        kind = torch.float32 if self.precision == "float32" else torch.bfloat16

        def step(tokens: Tensor, state: Written) -> tuple[Tensor, Written]:
            rows, length = state.trail.shape
            blocks = (*state.blocks, torch.empty(shape.decoder_layers, rows, stored, dtype=kind))
            padded = -(-shape.vocabulary // _PANEL) * _PANEL
            out = torch.empty(rows, padded) if lists is None else torch.full((rows, padded), float("-inf"))
            small = [x.to(torch.int32).contiguous() for x in (tokens, state.sentences, state.trail)]
            self._library.steps_step(
                steps,
                rows,
                *(ctypes.c_void_p(x.data_ptr()) for x in small[:2]),
                length,
                (ctypes.c_void_p * len(blocks))(*(block.data_ptr() for block in blocks)),
                (ctypes.c_int64 * len(blocks))(*(block.shape[1] for block in blocks)),
                *(ctypes.c_void_p(x.data_ptr()) for x in (small[2], out)),
            )
            trail = torch.cat((state.trail, torch.arange(rows, dtype=torch.int32)[:, None]), 1)
            return out[:, : shape.vocabulary], Written(state.sentences, trail, blocks)

        weakref.finalize(step, _freed, self, steps, kept)
        count = len(sources)
        return step, Written(torch.arange(count, dtype=torch.int32), torch.empty(count, 0, dtype=torch.int32))

    def _given(self, sources: Sequence[Sequence[int]], longest: int, lists: Lists | None) -> tuple[list[Any], Any]:
        """What a search and a step function are made with, and what must be kept as long as they are used."""
        places = [
            words.places(most) for words, most in zip(self._words, (max(map(len, sources)), longest), strict=True)
        ]
        ids, starts = _joined([np.array(source, dtype=np.int32) for source in sources])
        given = [self._model, len(sources), ids.ctypes.data_as(ctypes.c_void_p), starts.ctypes.data_as(ctypes.c_void_p)]
        kept: list[Any] = [places, ids, starts]
        if lists is None:
            given += [ctypes.c_void_p(None)] * 2
        else:
            joined = _joined(lists)
            given += [each.ctypes.data_as(ctypes.c_void_p) for each in joined]
            kept += joined
        given += [
            (ctypes.c_void_p * 2)(*(words.table.data_ptr() for words in self._words)),
            (ctypes.c_float * 2)(*(words.scale for words in self._words)),
            (ctypes.c_void_p * 2)(*(None if table is None else table.data_ptr() for table in places)),
        ]
        return given, kept

    def _found(self, search: ctypes.c_void_p, sentence: int, n_best: int, longest: int) -> list[Found]:
        ids, scores, ended = (ctypes.c_int32 * longest)(), (ctypes.c_double * 2)(), ctypes.c_int32()
        found = []
        for rank in range(min(n_best, self._library.search_found(search, sentence))):
            length = self._library.search_get(search, sentence, rank, ids, scores, ctypes.byref(ended))
            found.append((ids[:length], scores[0], scores[1], bool(ended.value)))
        return found


def _joined(rows: Sequence[NDArray[np.int32]]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Rows end to end, and where each begins; one more, where the last ends."""
    starts = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return np.concatenate(rows).astype(np.int32), starts


def _freed(decoder: Decoder, steps: ctypes.c_void_p, kept: object) -> None:
    """`decoder` and `kept` are named so that they live as long."""
    decoder._library.steps_free(steps)
