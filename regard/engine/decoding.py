"""A Transformer compiled for translating on CPUs (decoding.cpp): weights packed once, one call a step of a whole batch.

`Decoder.search` is the whole search, `Decoder.forced` what the model makes of given targets; `steps.py` has the step
alone, for searches written elsewhere. No PyTorch here.

Matrices are multiplied in float32, in bfloat16, or in int8: weights with a scale for each output, rows with a scale and
an offset that each gets as it comes. Norms, softmax and sums are float32. A sentence's translation does not depend on
what else is translated, bit for bit.

Sizes: D width of the model, V vocabulary, P positions, N and K outputs and inputs of a matrix; of forced decoding L
layers, H heads, S source tokens, T target tokens.
"""

from __future__ import annotations

import copy
import ctypes
import math
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.errors import NOT_FINITE, KernelError, ModelError
from regard.kernels.build import built, checked, default_threads, error_of, threads_here
from regard.machine import is_busy

PRECISIONS = ("float32", "bfloat16", "int8")
STOPS = ("bound", "first", "beam", "full")
_SMALL = 64 << 20
"""Bytes of weights that threads may read each for itself: more is read once, by all together."""
_NO_MEMORY = "the compiled decoder has not enough memory for this search; lower search.beam or search.batch_size."
Array = NDArray[np.float32]
Whole = NDArray[np.int8]
Numbers = NDArray[Any]


class Tensors(NamedTuple):
    """A matrix (N, K) and its bias (N,), or a norm's gain and bias (D,)."""

    weight: Array | Whole
    bias: Array | None = None
    scale: Array | None = None
    """(N,) of each row, where the matrix is in whole numbers."""

    def each(self, change: Callable[[Numbers], Numbers]) -> Tensors:
        """What `change` makes of each of them."""
        return Tensors(change(self.weight), *[None if x is None else change(x) for x in self[1:]])

    def over(self, below: Tensors) -> Tensors:
        """The outputs of both, these first; both have a bias, and are in the same kind of number."""
        rest = iter([x for x in below if x is not None])
        return self.each(lambda x: np.concatenate((x, next(rest))))

    def times(self, factor: np.float32) -> Tensors:
        """All outputs times a factor."""
        bias = None if self.bias is None else self.bias * factor
        if self.scale is None:
            return Tensors(self.weight * factor, bias)
        return Tensors(self.weight, bias, self.scale * factor)


Part = tuple[Tensors, bool]
"""A matrix, or a norm (True)."""
SOURCE = Path(__file__).with_name("decoding.cpp")


def refusal() -> str | None:
    """None if the decoder can be used here, else why not."""
    return built(SOURCE)[1] or None


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
    features: int  # of the width, without the zeros that fill it up
    turned: bool  # whether positions turn queries and keys, and are not added to embeddings
    each: tuple[int, ...]
    """Heads of each encoder layer, of each decoder layer (0: an SSRU), and of what looks at the source in each."""


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
    min_length: int = 0
    no_repeat_ngram_size: int = 0


@dataclass(frozen=True)
class Embeddings:
    """Embeddings of one side: table (V, D), None if it is the output matrix, times scale, plus positions (P, D)."""

    table: Array | Whole | None
    rows: int
    scale: float
    positions: Callable[[int], Array | None]
    """How many are needed -> at least so many; if they turn, cosines and signed sines (P, 2 key_width)."""
    most: int | None = None
    """How many there are; None: any number."""
    row_scales: Array | None = None
    """(V,) of each row, where the table is in whole numbers."""


class _Tables(ctypes.Structure):
    """The embeddings of both sides, as decoding.cpp reads them."""

    _fields_ = (
        ("tables", ctypes.c_void_p * 2),
        ("row_scales", ctypes.c_void_p * 2),
        ("positions", ctypes.c_void_p * 2),
        ("rows", ctypes.c_int64 * 2),
        ("longest", ctypes.c_int64 * 2),
        ("scales", ctypes.c_float * 2),
    )


Lists = Sequence[NDArray[np.int32]]
"""Of each source, the target tokens that it may become, in order and without repetition; the end is among them."""
Found = tuple[list[int], float, float, bool]
"""Ids, log-probability, the score it was ranked by, and whether it ended by itself."""


class Decoder:
    """A model's weights in one precision, ready to search."""

    def __init__(
        self, shape: Shape, precision: str, epsilon: float, tensors: Iterable[Part], words: Sequence[Embeddings]
    ) -> None:
        """`tensors` come in the order of the constructor of decoding.cpp's Decoder.

        Each is asked for when the one before is packed, so that they need not be in memory all at once. Raises
        ModelError for weights that are not finite.
        """
        library = built(SOURCE)[0]
        assert library is not None
        for function in (library.decoder_new, library.decoder_with, library.search_new, library.steps_new):
            function.restype = ctypes.c_void_p
        self.precision, self.shape, self.library, self.words = precision, shape, library, words
        kind, sizes = PRECISIONS.index(precision), (ctypes.c_int64 * 12)(*map(int, astuple(shape)[:12]))
        heads = (ctypes.c_int64 * len(shape.each))(*shape.each)
        self._model = self.made(library.decoder_new(kind, sizes, heads, ctypes.c_float(epsilon)))
        weakref.finalize(self, library.decoder_free, self._model)
        for side in words:
            _check_finite(side.table, side.row_scales)
        self._bytes = 0
        self._norms = []  # they are read where they lie, as the tables are
        for each, is_norm in tensors:
            self.run("decoder_add", self._model, *pointers(each))
            self._bytes += each.weight.size * (4, 2, 1)[kind]
            if is_norm:
                self._norms.append(each)

    def with_matrix(self, number: int, tensors: Tensors) -> Decoder:
        """A decoder with another matrix as number `number` of its tensors, -1 the last and 0, the output, none."""
        found = self.library.decoder_with(self._model, ctypes.c_int64(number), *pointers(tensors))
        made = copy.copy(self)
        made._model = self.made(found)
        weakref.finalize(made, self.library.decoder_free, made._model)
        return made

    def run(self, name: str, *arguments: object) -> int:
        """What an entry of the library returns; raises ModelError if it fails."""
        try:
            return checked(self.library, getattr(self.library, name)(*arguments))
        except MemoryError:
            raise ModelError(_NO_MEMORY) from None

    def made(self, pointer: int | None) -> ctypes.c_void_p:
        """What a constructor of the library returned; raises KernelError if there is nothing."""
        if pointer is None:
            raise KernelError(f"the compiled decoder cannot work with what it was given: {error_of(self.library)}.")
        return ctypes.c_void_p(pointer)

    @property
    def capacity(self) -> int | None:
        """The most tokens that either side may have; None: any number."""
        return min((words.most for words in self.words if words.most is not None), default=None)

    def search(
        self,
        sources: Sequence[Sequence[int]],
        limits: Sequence[int],
        beam: Beam,
        lists: Lists | None = None,
        progress: Callable[[int], None] | None = None,
        *,
        apart: bool | None = None,
    ) -> list[list[Found]]:
        """The `n_best` best hypotheses of each source (all its ids), best first, as `beam_search` finds them.

        A hypothesis has at most limits[source] ids, all of them in lists[source] if there are lists; a source has none
        where its rules allow none. `progress` is told how many are done. Raises ModelError for scores not finite.

        Threads work on the same sources together, or each searches for some of its own (`apart`). That is the default
        where there is more than a batch, so that no thread waits for another, unless the weights are large; and where
        other programs want the processors: who waits for a thread that was put aside would lose its time too.
        """
        if not sources:
            return []
        threads = min(threads_here(), len(sources))
        if apart is None:
            apart = threads > 1 and ((len(sources) > beam.batch and self._bytes <= _SMALL) or is_busy())
        if threads < 2 or not apart:
            return self._searched(Search(self, sources, limits, beam, lists), sources, beam, progress)
        done, stopped = [0] * threads, threading.Event()
        part = replace(beam, batch=-(-beam.batch // threads))

        def some(first: int) -> list[list[Found]]:
            def tell(count: int) -> None:
                done[first] = count
                if stopped.is_set():
                    raise KeyboardInterrupt
                if progress:
                    progress(sum(done))

            rows = slice(first, None, threads)
            search = Search(self, sources[rows], limits[rows], part, lists and lists[rows], threads=1)
            return self._searched(search, sources[rows], beam, tell)

        found: list[list[Found]] = [[]] * len(sources)
        with ThreadPoolExecutor(threads) as pool:
            try:
                try:
                    parts = pool.map(some, range(threads))
                except RuntimeError as error:  # a thread cannot be started
                    raise ModelError(_NO_MEMORY) from error
                for first, made in enumerate(parts):
                    found[first::threads] = made
            finally:
                stopped.set()
        return found

    def _searched(
        self, search: Search, sources: Sequence[object], beam: Beam, progress: Callable[[int], None] | None
    ) -> list[list[Found]]:
        done = 0
        while done < len(sources):
            before, done = done, search.go_on()
            if progress and done > before:
                progress(done)
        found = [search.found(i) for i in range(len(sources))]
        if not (beam.min_length or beam.no_repeat_ngram_size) and not all(found):
            raise ModelError(NOT_FINITE)
        return found

    def forced(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        ends: tuple[int, int],
        *,
        temperature: float = 1.0,
        scores: bool = True,
        layers: Sequence[int] = (),
    ) -> list[tuple[list[float], list[Array]]]:
        """What the model makes of each target after its source (all its ids): how likely its tokens are, and its end.

        Natural log-probabilities (T,), of logits divided by `temperature`; and the cross-attention weights (H, T, S) of
        each of these decoder layers, from 0. `ends` are what a target begins and ends with, which its ids leave out.
        Raises ModelError for weights that give no finite scores.
        """
        given, kept = self.given(sources, max(map(len, targets)) + 1, None)
        read, starts = _joined([np.array([ends[0], *target], dtype=np.int32) for target in targets])
        wanted, _ = _joined([np.array([*target, ends[1]], dtype=np.int32) for target in targets])
        chosen, heads = np.array(layers, dtype=np.int32), self.shape.heads
        shapes = [(len(layers), heads, len(t) + 1, len(s)) for t, s in zip(targets, sources, strict=True)]
        places = np.cumsum([math.prod(shape) for shape in shapes])
        likely, weights = np.zeros(len(read)), np.empty(places[-1], np.float32)
        asked = at(read), at(wanted), at(starts), ctypes.c_double(temperature), at(likely if scores else None)
        self.run("decoder_force", *given, *asked, at(chosen), len(layers), at(weights), threads_here())
        del kept
        if not np.isfinite(likely).all():
            raise ModelError(NOT_FINITE)
        each = zip(np.split(likely, starts[1:-1]), np.split(weights, places[:-1]), shapes, strict=True)
        looks = [self.shape.each[-self.shape.decoder_layers :][layer] for layer in layers]
        return [
            (row.tolist() if scores else [], [y[:n] for y, n in zip(x.reshape(shape), looks, strict=True)])
            for row, x, shape in each
        ]

    def given(self, sources: Sequence[Sequence[int]], longest: int, lists: Lists | None) -> tuple[list[object], object]:
        """What a search and a step function are made with, and what must be kept as long as they are used."""
        most = (max(map(len, sources)), longest)
        positions = [words.positions(n) for words, n in zip(self.words, most, strict=True)]
        rows = _joined([np.array(source, dtype=np.int32) for source in sources])
        listed = () if lists is None else _joined(lists)
        arrays = [each.ctypes.data_as(ctypes.c_void_p) for each in (*rows, *listed)]
        sides = [
            (at(w.table).value, at(w.row_scales).value, at(x).value, w.rows, 0 if x is None else len(x), w.scale)
            for w, x in zip(self.words, positions, strict=True)
        ]
        tables = _Tables(*zip(*sides, strict=True))
        given = [self._model, len(sources), *arrays, *[None] * (4 - len(arrays)), ctypes.byref(tables)]
        return given, (positions, rows, listed, tables)


class Search:
    """A search that goes on for a moment at a time; freed when it is forgotten."""

    def __init__(
        self,
        decoder: Decoder,
        sources: Sequence[Sequence[int]],
        limits: Sequence[int],
        beam: Beam,
        lists: Lists | None = None,
        threads: int | None = None,
    ) -> None:
        """See `Decoder.search`; `threads` work on it, by default all that may."""
        self._decoder, self._n_best, self._longest = decoder, beam.n_best, max(limits)
        penalties = [1.0, *(beam.penalty(length) for length in range(1, self._longest + 2))]
        settings = (beam.width, beam.n_best, beam.batch, STOPS.index(beam.stop), beam.begin, beam.end)
        shares, rules = default_threads(), (beam.min_length, beam.no_repeat_ngram_size)
        numbers = (ctypes.c_int64 * 10)(*settings, shares, threads or threads_here(), *rules)
        given, self._kept = decoder.given(sources, self._longest, lists)
        limited = ((ctypes.c_int32 * len(limits))(*limits), (ctypes.c_double * len(penalties))(*penalties))
        self._search = decoder.made(decoder.library.search_new(*given, *limited, len(penalties), numbers))
        weakref.finalize(self, decoder.library.search_free, self._search)

    def go_on(self) -> int:
        """Writes tokens of each hypothesis, one at least, for about 20 ms; how many sources are done."""
        return self._decoder.run("search_go_on", self._search)

    def found(self, source: int) -> list[Found]:
        """The best hypotheses of a source that is done, best first."""
        count = self._decoder.run("search_found", self._search, source)
        ids, scores, ended = (ctypes.c_int32 * self._longest)(), (ctypes.c_double * 2)(), ctypes.c_int32()
        found = []
        for rank in range(min(self._n_best, count)):
            length = self._decoder.run("search_get", self._search, source, rank, ids, scores, ctypes.byref(ended))
            found.append((ids[:length], scores[0], scores[1], bool(ended.value)))
        return found


def pointers(tensors: Tensors) -> list[object]:
    """Where each of them lies, and its size; raises ModelError for what is not finite."""
    _check_finite(*tensors)
    return [y for x in tensors for y in (at(x), ctypes.c_int64(0 if x is None else x.size))]


def _check_finite(*arrays: Array | Whole | None) -> None:
    """Raises ModelError for weights that are infinite or not numbers: some activations would hide them."""
    for x in arrays:
        if x is not None and x.dtype != np.int8 and not np.isfinite([x.min(), x.max()]).all():
            raise ModelError(NOT_FINITE)


def at(x: NDArray[np.generic] | None) -> ctypes.c_void_p:
    """Where an array lies."""
    return ctypes.c_void_p(None if x is None else x.ctypes.data)


def _joined(rows: Sequence[NDArray[np.int32]]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Rows end to end, and where each begins; one more, where the last ends."""
    return np.concatenate(rows).astype(np.int32), np.cumsum([0, *map(len, rows)], dtype=np.int64)
