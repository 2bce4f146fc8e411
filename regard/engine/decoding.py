"""A Transformer compiled for translating on CPUs (decoding.cpp): weights packed once, one call a step of a whole batch.

`Decoder.search` is the whole search, `Decoder.start` a step function and its state, for searches written elsewhere.

Matrices are multiplied in float32, in bfloat16, or in int8: weights with a scale for each output, rows with a scale and
an offset that each gets as it comes. Norms, softmax and sums are float32. A sentence's translation does not depend on
what else is translated, bit for bit.

Sizes: D width of the model, V vocabulary, P positions, N and K outputs and inputs of a matrix; of a state N rows, T
tokens so far.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import NOT_FINITE, KernelError, ModelError
from regard.kernels.build import built, checked, entry, error_of

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
    return {"float32": True, "bfloat16": torch.cpu._is_avx512_bf16_supported(), "int8": torch.cpu._is_vnni_supported()}[
        precision
    ]


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
class Beam:
    """How `Decoder.search` goes: `batch` sentences at a time; where one is done the next takes its place.

    With width 1, stop "first" and n_best 1 it is a greedy search.
    """

    width: int
    n_best: int
    batch: int
    stop: str
    begin: int
    end: int
    penalty: Callable[[int], float]


@dataclass(frozen=True)
class Embeddings:
    """Embeddings of one side: table (V, D) times scale, plus positions (P, D) if there are any; float32."""

    table: Tensor
    scale: float
    positions: Callable[[int], Tensor | None]
    """How many are needed -> at least so many."""
    most: int | None = None
    """How many there are; None: any number."""


class _Tables(ctypes.Structure):
    """The embeddings of both sides, as decoding.cpp reads them."""

    _fields_ = (
        ("tables", ctypes.c_void_p * 2),
        ("positions", ctypes.c_void_p * 2),
        ("rows", ctypes.c_int64 * 2),
        ("longest", ctypes.c_int64 * 2),
        ("scales", ctypes.c_float * 2),
    )


Lists = Sequence[NDArray[np.int32]]
"""Of each source, the target tokens that it may become, in order and without repetition; the end is among them."""
Found = tuple[list[int], float, float, bool]
"""Ids, log-probability, the score it was ranked by, and whether it ended by itself."""


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


class Decoder:
    """A model's weights in one precision, ready to search."""

    def __init__(
        self,
        shape: Shape,
        precision: str,
        epsilon: float,
        pairs: Iterable[tuple[Pair, bool]],
        words: tuple[Embeddings, Embeddings],
    ) -> None:
        """`pairs` are matrices and norms (True) in the order of the constructor of decoding.cpp's Decoder.

        Each is asked for when the one before is packed, so that they need not be in memory all at once. Raises
        ModelError for weights that are not finite.
        """
        library = built(SOURCE)[0]
        assert library is not None
        for function in (library.decoder_new, library.search_new, library.steps_new):
            function.restype = ctypes.c_void_p
        self.precision, self._words, self._library, self._shape = precision, words, library, shape
        kind, sizes = PRECISIONS.index(precision), (ctypes.c_int64 * 10)(*map(int, astuple(shape)))
        self._model = self._made(library.decoder_new(kind, sizes, ctypes.c_float(epsilon)))
        weakref.finalize(self, library.decoder_free, self._model)
        for side in words:
            _check_finite(side.table)
        self._norms = []  # they are read where they lie, as the tables are
        for pair, is_norm in pairs:
            _check_finite(*pair)
            given = [y for x in pair for y in (_at(x), ctypes.c_int64(0 if x is None else x.numel()))]
            self._run("decoder_add", self._model, *given)
            if is_norm:
                self._norms.append(pair)

    def _run(self, name: str, *arguments: object) -> int:
        """What an entry of the library returns; raises ModelError if it fails."""
        try:
            return checked(self._library, entry(self._library, name)(*arguments))
        except MemoryError:
            raise ModelError(
                "the compiled decoder has not enough memory for this search; lower search.beam or search.batch_size."
            ) from None

    def _made(self, pointer: int | None) -> ctypes.c_void_p:
        """What a constructor of the library returned; raises KernelError if there is nothing."""
        if pointer is None:
            raise KernelError(f"the compiled decoder cannot work with what it was given: {error_of(self._library)}.")
        return ctypes.c_void_p(pointer)

    @property
    def capacity(self) -> int | None:
        """The most tokens that either side may have; None: any number."""
        return min((words.most for words in self._words if words.most is not None), default=None)

    def search(
        self,
        sources: Sequence[Sequence[int]],
        limits: Sequence[int],
        beam: Beam,
        lists: Lists | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> list[list[Found]]:
        """The `n_best` best hypotheses of each source (all its ids), best first, as `beam_search` finds them.

        A hypothesis has at most limits[source] ids, all of them in lists[source] if there are lists. Raises ModelError
        for weights that give no finite scores.
        """
        if not sources:
            return []
        longest = max(limits)
        penalties = [1.0, *(beam.penalty(length) for length in range(1, longest + 2))]
        settings = (beam.width, beam.n_best, beam.batch, STOPS.index(beam.stop), beam.begin, beam.end)
        given, kept = self._given(sources, longest, lists)
        search = self._made(
            self._library.search_new(
                *given,
                (ctypes.c_int32 * len(limits))(*limits),
                (ctypes.c_double * len(penalties))(*penalties),
                len(penalties),
                (ctypes.c_int64 * 7)(*settings, torch.get_num_threads()),
            )
        )
        try:
            done = 0
            while done < len(sources):
                before, done = done, self._run("search_step", search)
                if progress and done > before:
                    progress(done)
            return [self._found(search, i, beam.n_best, longest) for i in range(len(sources))]
        finally:
            self._library.search_free(search)
            del kept

    def start(
        self, sources: Sequence[Sequence[int]], longest: int, lists: Lists | None = None
    ) -> tuple[Callable[[Tensor, StepState], tuple[Tensor, StepState]], StepState]:
        """A step function (last tokens (N,), state -> log-probabilities (N, V), next state), and its first state.

        The state has a row for each source (all its ids). `longest` is the most tokens that any will have. Where there
        are lists, what is not in a source's own has log-probability -inf, and the others' sum to one.
        """
        given, kept = self._given(sources, longest, lists)
        steps = self._made(self._library.steps_new(*given, torch.get_num_threads()))
        shape = self._shape
        stored = shape.heads * (shape.key_width + shape.value_width)
        kind = torch.float32 if self.precision == "float32" else torch.bfloat16

        def step(tokens: Tensor, state: StepState) -> tuple[Tensor, StepState]:
            rows, length = state.trail.shape
            blocks = (*state.blocks, torch.empty(shape.decoder_layers, rows, stored, dtype=kind))
            padded = -(-shape.vocabulary // _PANEL) * _PANEL
            out = torch.empty(rows, padded) if lists is None else torch.full((rows, padded), float("-inf"))
            small = [x.to(torch.int32).contiguous() for x in (tokens, state.sentences, state.trail)]
            self._run(
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

        weakref.finalize(step, _freed, self, steps, kept)
        count = len(sources)
        return step, StepState(torch.arange(count, dtype=torch.int32), torch.empty(count, 0, dtype=torch.int32))

    def _given(self, sources: Sequence[Sequence[int]], longest: int, lists: Lists | None) -> tuple[list[Any], Any]:
        """What a search and a step function are made with, and what must be kept as long as they are used."""
        most = (max(map(len, sources)), longest)
        positions = [words.positions(n) for words, n in zip(self._words, most, strict=True)]
        rows = _joined([np.array(source, dtype=np.int32) for source in sources])
        listed = () if lists is None else _joined(lists)
        arrays = [each.ctypes.data_as(ctypes.c_void_p) for each in (*rows, *listed)]
        tables = _Tables(
            tuple(words.table.data_ptr() for words in self._words),
            tuple(None if each is None else each.data_ptr() for each in positions),
            tuple(len(words.table) for words in self._words),
            tuple(0 if each is None else len(each) for each in positions),
            tuple(words.scale for words in self._words),
        )
        given = [self._model, len(sources), *arrays, *[None] * (4 - len(arrays)), ctypes.byref(tables)]
        return given, (positions, rows, listed, tables)

    def _found(self, search: ctypes.c_void_p, sentence: int, n_best: int, longest: int) -> list[Found]:
        ids, scores, ended = (ctypes.c_int32 * longest)(), (ctypes.c_double * 2)(), ctypes.c_int32()
        found = []
        for rank in range(min(n_best, self._run("search_found", search, sentence))):
            length = self._run("search_get", search, sentence, rank, ids, scores, ctypes.byref(ended))
            found.append((ids[:length], scores[0], scores[1], bool(ended.value)))
        if not found:
            raise ModelError(NOT_FINITE)
        return found


def _check_finite(*tensors: Tensor | None) -> None:
    """Raises ModelError for weights that are infinite or not numbers: some activations would hide them."""
    for x in tensors:
        if x is not None and not all(map(math.isfinite, torch.aminmax(x))):
            raise ModelError(NOT_FINITE)


def _at(x: Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if x is None else x.data_ptr())


def _joined(rows: Sequence[NDArray[np.int32]]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Rows end to end, and where each begins; one more, where the last ends."""
    starts = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return np.concatenate(rows).astype(np.int32), starts


def _freed(decoder: Decoder, steps: ctypes.c_void_p, kept: object) -> None:
    """`decoder` and `kept` are named so that they live as long."""
    decoder._library.steps_free(steps)
