"""A Transformer compiled for translating on CPUs (decoding.cpp): weights packed once, one call a step of a whole batch.

Matrices are multiplied in float32, in bfloat16, or in int8: weights with a scale for each output, rows with a scale and
an offset that each gets as it comes. Norms, softmax and sums are float32. A sentence's translation does not depend on
what else is translated, bit for bit.

Sizes: D width of the model, V vocabulary, P places, N and K outputs and inputs of a matrix.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

import torch
from torch import Tensor

from . import native

__all__ = ["ACTIVATIONS", "PRECISIONS", "STOPS", "Decoder", "Found", "Shape", "Words", "is_fast", "refusal"]

PRECISIONS = ("float32", "bfloat16", "int8")
ACTIVATIONS = ("relu", "gelu", "silu")
STOPS = ("bound", "first", "beam", "full")
Pair = tuple[Tensor, Tensor | None]
"""A matrix (N, K) and its bias (N,), or a norm's gain and bias (D,); float32."""

_SOURCE = Path(__file__).with_name("decoding.cpp")


def refusal() -> str | None:
    """None if the decoder can be used here, else why not."""
    return native.refusal() or native.built(_SOURCE)[1] or None


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


Found = tuple[list[int], float, float, bool]
"""Ids, log-probability, the score it was ranked by, and whether it ended by itself."""


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
        library = native.built(_SOURCE)[0]
        assert library is not None
        library.decoder_new.restype = library.search_new.restype = ctypes.c_void_p
        self.precision, self._words, self._library = precision, words, library
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
        progress: Callable[[int], None] | None = None,
    ) -> list[list[Found]]:
        """The `n_best` best hypotheses of each source (all its ids), best first, as `beam_search` finds them.

        A hypothesis has at most limits[source] ids. `batch` sentences are decoded at a time; where one is done the next
        takes its place. With width 1, stop "first" and n_best 1 it is a greedy search.
        """
        if not sources:
            return []
        longest = max(limits)
        places = [
            words.places(most) for words, most in zip(self._words, (max(map(len, sources)), longest), strict=True)
        ]
        starts = [0]
        for source in sources:
            starts.append(starts[-1] + len(source))
        penalties = [penalty(length) for length in range(1, longest + 2)]
        settings = (width, n_best, batch, STOPS.index(stop), begin, end, torch.get_num_threads())
        search = ctypes.c_void_p(
            self._library.search_new(
                self._model,
                len(sources),
                (ctypes.c_int32 * starts[-1])(*(i for source in sources for i in source)),
                (ctypes.c_int64 * len(starts))(*starts),
                (ctypes.c_int32 * len(limits))(*limits),
                (ctypes.c_double * (len(penalties) + 1))(1.0, *penalties),
                len(penalties) + 1,
                (ctypes.c_int64 * len(settings))(*settings),
                (ctypes.c_void_p * 2)(*(words.table.data_ptr() for words in self._words)),
                (ctypes.c_float * 2)(*(words.scale for words in self._words)),
                (ctypes.c_void_p * 2)(*(None if table is None else table.data_ptr() for table in places)),
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

    def _found(self, search: ctypes.c_void_p, sentence: int, n_best: int, longest: int) -> list[Found]:
        ids, scores, ended = (ctypes.c_int32 * longest)(), (ctypes.c_double * 2)(), ctypes.c_int32()
        found = []
        for rank in range(min(n_best, self._library.search_found(search, sentence))):
            length = self._library.search_get(search, sentence, rank, ids, scores, ctypes.byref(ended))
            found.append((ids[:length], scores[0], scores[1], bool(ended.value)))
        return found
