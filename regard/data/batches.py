"""A store cut into batches by tokens, in an order that is a pure function of the seed and can be taken up anywhere.

No random generator is kept: every choice is a hash of (seed, epoch, what it is for), so a position is three integers,
and the order does not depend on a library's version.
"""

# B rows of a batch; S, T longest source, target with its end; L all tokens of a side; n lines of the store

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from regard.data.store import Side, Store
from regard.data.windows import Windows
from regard.errors import DataError
from regard.text.tokenizer import BEGIN, END, PAD, Tokenizer

Layout = Literal["padded", "packed"]
Ints = NDArray[np.int64]

# What a hash is for: the same number is never drawn for two purposes.
_ORDER, _TIES, _SHUFFLE, _SOURCE, _TARGET, _VIEW, _OFFSET = range(1, 8)


@dataclass(frozen=True)
class Batch:
    """Pairs of lines as ids: padded to equal length, or packed end to end."""

    lines: Ints  # (B,) store line numbers
    source: Ints  # (B, S) padded or (L,) packed: x1 … xn END
    source_lengths: Ints  # (B,) with END
    target_input: Ints  # (B, T) or (L,): BEGIN y1 … yn
    target_output: Ints  # (B, T) or (L,): y1 … yn END
    target_lengths: Ints  # (B,) with END
    layout: Layout

    def __len__(self) -> int:
        """Rows B."""
        return len(self.lines)

    @property
    def source_tokens(self) -> int:
        """Source tokens with their ends, without padding."""
        return int(self.source_lengths.sum())

    @property
    def target_tokens(self) -> int:
        """Target tokens to predict, the ends among them, without padding and what a view does not ask for (-1)."""
        return int(self.target_lengths.sum()) - int(np.count_nonzero(self.target_output < 0))


View = Callable[[Batch, int], Batch]
"""A batch, and a key for what is drawn, to the batch as an objective wants it."""


@dataclass(frozen=True)
class Sampling:
    """Subword sampling: each epoch every line is cut into other tokens, drawn by seed, epoch and line."""

    alpha: float
    """See `Tokenizer.sample`."""
    source: Tokenizer
    target: Tokenizer
    longest: tuple[int, int] = (0, 0)
    """Most tokens of a source and a target, ends counted: a line drawn longer keeps its tokens of the store; 0: any."""


class Batches:
    """An endless iterator of batches, epoch after epoch, each line exactly once an epoch.

    The lines of an epoch, in a seeded order, are cut into pools; a pool is sorted by length (ties in seeded order), cut
    into batches of at most `batch_tokens` on either side, ends included (and padding, if padded), and these are put in
    seeded order. A line longer than that is a batch of its own.
    """

    def __init__(
        self,
        store: Store,
        *,
        batch_tokens: int,
        layout: Layout = "padded",
        seed: int = 0,
        pool: int = 50_000,
        sampling: Sampling | None = None,
        context: int = 0,
        view: View | None = None,
    ) -> None:
        """Starts at the first batch of the first epoch; `seek` leads elsewhere.

        With `context` the targets are one stream (`windows.py`), whose windows, cut elsewhere each epoch, are the rows;
        they are never sampled. Every batch is seen through `view`. Raises DataError for a wrong size or layout.
        """
        if batch_tokens < 1 or pool < 1:
            raise DataError(f"batch_tokens ({batch_tokens}) and pool ({pool}) must be at least 1.")
        if layout not in ("padded", "packed"):
            raise DataError(f"layout {layout!r} is unknown; choose 'padded' or 'packed'.")
        self._store = store
        self.batch_tokens = batch_tokens
        self._layout: Layout = layout
        self._seed = seed
        self._windows = Windows(store.target, context) if context else None
        self._rows_in_all = len(store) if self._windows is None else len(self._windows)
        self._pools = -(-self._rows_in_all // pool)
        self._view = view
        self._sampling = sampling
        self._epoch, self._pool, self._batch = 0, 0, 0
        self._plan: _Plan | None = None

    @property
    def epoch(self) -> int:
        """The epoch of the next batch, counted from 0."""
        return self._epoch

    def position(self) -> dict[str, int]:
        """Where the next batch is: epoch, pool, batch. Only means the same with the same store and settings."""
        return {"epoch": self._epoch, "pool": self._pool, "batch": self._batch}

    def seek(self, position: Mapping[str, int]) -> None:
        """Go on from a `position`: the following batches are the same as if never left. Costs one pool.

        Raises DataError, and stays where it is, if there is no such batch.
        """
        try:
            epoch, pool, batch = (position[key] for key in ("epoch", "pool", "batch"))
        except KeyError as error:
            raise DataError(f"position {dict(position)} lacks {error}; it needs epoch, pool and batch.") from None
        if epoch < 0 or not 0 <= pool < self._pools:
            raise DataError(f"position {dict(position)} is outside: there are {self._pools} pools in an epoch.")
        plan = self._planned(epoch, pool)
        if not 0 <= batch < len(plan.cuts):
            raise DataError(
                f"position {dict(position)} is outside: pool {pool} has {len(plan.cuts)} batches. "
                "It was taken with other data or batch settings; go on with those."
            )
        self._epoch, self._pool, self._batch, self._plan = epoch, pool, batch, plan

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        plan = self._plan or self._planned(self._epoch, self._pool)
        batch = self._seen(plan.make(self._batch, self._layout), self._epoch)
        # Moved on at once, so that `position` and `epoch` always tell of the next batch.
        self._plan = plan
        self._batch += 1
        if self._batch == len(plan.cuts):
            self._batch, self._plan = 0, None
            self._pool += 1
            if self._pool == self._pools:
                self._pool = 0
                self._epoch += 1
        return batch

    def one_epoch(self, *, sort: bool = False) -> Iterator[Batch]:
        """Every line once, unshuffled and never sampled, for validation; leaves `position` alone.

        In the store's order, or with `sort` by length within each pool (less padding; `Batch.lines` says which line is
        which).
        """
        for pool in range(self._pools):
            lines = np.arange(*self._bounds(pool), dtype=np.int64)
            source, target = self._sides(lines, None)
            if sort:
                order = _by_length(source.lengths, target.lengths, lines)
                lines, source, target = lines[order], source.take(order), target.take(order)
            plan = self._cut(lines, source, target)
            for index in range(len(plan.cuts)):
                yield self._seen(plan.make(index, self._layout), 0)

    def _bounds(self, pool: int) -> tuple[int, int]:
        """Where a pool begins and ends in the epoch's order: pools are of equal size, to one line."""
        n = self._rows_in_all
        return n * pool // self._pools, n * (pool + 1) // self._pools

    def _planned(self, epoch: int, pool: int) -> _Plan:
        """The plan of a pool: a pure function of the store, the settings and the arguments."""
        lines = np.arange(*self._bounds(pool), dtype=np.int64)
        lines = _permuted(lines, self._rows_in_all, key_of(self._seed, epoch, _ORDER))
        source, target = self._sides(lines, epoch)
        order = _by_length(source.lengths, target.lengths, mixed(lines, key_of(self._seed, epoch, _TIES)))
        plan = self._cut(lines[order], source.take(order), target.take(order))
        batches = np.arange(len(plan.cuts), dtype=np.int64)
        shuffled = np.argsort(mixed(batches, key_of(self._seed, epoch, _SHUFFLE, pool)), kind="stable")
        plan.cuts = [plan.cuts[i] for i in shuffled.tolist()]
        return plan

    def _seen(self, batch: Batch, epoch: int) -> Batch:
        return batch if self._view is None else self._view(batch, key_of(self._seed, epoch, _VIEW))

    def _sides(self, lines: Ints, epoch: int | None) -> tuple[_Rows, _Rows]:
        """Source and target rows; without an epoch, as they are in the store."""
        if self._windows is not None:
            offset = 0 if epoch is None else key_of(self._seed, epoch, _OFFSET) % self._windows.tokens
            read, lengths = partial(self._windows.read, offset=offset), self._windows.lengths_of(lines)
            return _Rows.of([()] * len(lines)), _Rows(read, lines, lengths - 1, framed=True)
        sides, drawing = (self._store.source, self._store.target), self._sampling
        if drawing is None or epoch is None:
            return _Rows.stored(sides[0], lines), _Rows.stored(sides[1], lines)
        tokenizers, uses = (drawing.source, drawing.target), (_SOURCE, _TARGET)
        source, target = (
            _sampled(side, tokenizer, lines, key_of(self._seed, epoch, use), drawing.alpha, longest)
            for side, tokenizer, use, longest in zip(sides, tokenizers, uses, drawing.longest, strict=True)
        )
        return source, target

    def _cut(self, lines: Ints, source: _Rows, target: _Rows) -> _Plan:
        cut = _cut_padded if self._layout == "padded" else _cut_packed
        return _Plan(lines, source, target, cut(source.lengths + 1, target.lengths + 1, self.batch_tokens))


@dataclass
class _Rows:
    """One side's lines: how long they are, and where their ids come from when a batch is made."""

    read: Callable[[Ints], NDArray[Any]]  # numbers of lines -> their ids end to end
    numbers: Ints
    lengths: Ints
    framed: bool = False
    """Whether the ids come with the one before the row and the one behind it, instead of BEGIN and END."""

    @classmethod
    def stored(cls, side: Side, lines: Ints) -> _Rows:
        return cls(side.ids_of, lines, side.lengths_of(lines))

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> _Rows:
        made = [np.array(row, np.int64) for row in rows]
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        return cls(lambda numbers: np.concatenate([made[n] for n in numbers.tolist()]), np.arange(len(rows)), lengths)

    def take(self, rows: Ints | slice) -> _Rows:
        return _Rows(self.read, self.numbers[rows], self.lengths[rows], self.framed)

    def flat(self) -> Ints:
        """(sum of lengths,) the ids of all rows end to end."""
        return self.read(self.numbers).astype(np.int64)

    def padded(self, flat: Ints, *, begin: bool) -> Ints:
        """(rows, longest + 1): each row after BEGIN, or before END."""
        out = np.full((len(self.lengths), int(self.lengths.max()) + 1), PAD, np.int64)
        out[np.arange(out.shape[1]) <= self.lengths[:, None]] = self.packed(flat, begin=begin)
        return out

    def packed(self, flat: Ints, *, begin: bool) -> Ints:
        """(sum of lengths + rows,): each row after BEGIN, or before END, end to end."""
        if self.framed:
            last = np.cumsum(self.lengths + 2) - 1
            return np.delete(flat, last if begin else last - self.lengths - 1)
        ends = np.cumsum(self.lengths + 1) - 1
        special = ends - self.lengths if begin else ends
        out = np.empty(len(flat) + len(ends), np.int64)
        ordinary = np.ones(len(out), np.bool_)
        ordinary[special] = False
        out[ordinary] = flat
        out[special] = BEGIN if begin else END
        return out


@dataclass
class _Plan:
    """A pool ready to be made into batches: batch i holds the rows cuts[i][0] to cuts[i][1]."""

    lines: Ints
    source: _Rows
    target: _Rows
    cuts: list[tuple[int, int]]

    def make(self, index: int, layout: Layout) -> Batch:
        rows = slice(*self.cuts[index])
        source, target = self.source.take(rows), self.target.take(rows)
        shape = _Rows.padded if layout == "padded" else _Rows.packed
        target_flat = target.flat()
        return Batch(
            lines=self.lines[rows],
            source=shape(source, source.flat(), begin=False),
            source_lengths=source.lengths + 1,
            target_input=shape(target, target_flat, begin=True),
            target_output=shape(target, target_flat, begin=False),
            target_lengths=target.lengths + 1,
            layout=layout,
        )


def assembled(batch: Batch, source: Sequence[Sequence[int]], target: Sequence[Sequence[int]]) -> Batch:
    """The batch with these rows of ids, without begin and end, in place of its own."""
    return _Plan(batch.lines, _Rows.of(source), _Rows.of(target), [(0, len(batch))]).make(0, batch.layout)


def _sampled(side: Side, tokenizer: Tokenizer, lines: Ints, key: int, alpha: float, longest: int) -> _Rows:
    """The lines' tokens, drawn anew; those in the store where more are drawn than a sequence may have."""
    rows: list[Sequence[int]] = []
    for line, seed in zip(lines.tolist(), (mixed(lines, key) >> np.uint64(32)).tolist(), strict=True):
        drawn = tokenizer.sample(side.text(line), alpha=alpha, seed=seed)
        rows.append(side.line_ids(line).tolist() if 0 < longest < len(drawn) + 1 else drawn)
    return _Rows.of(rows)


def _by_length(source: Ints, target: Ints, ties: NDArray[Any]) -> Ints:
    """Order by source length; among equals by target length, up and down in turn, so that neighbours are alike."""
    turned = np.where(source % 2 == 0, target, -target)
    return np.lexsort((ties, turned, source)).astype(np.int64)


def _cut_padded(source: Ints, target: Ints, budget: int) -> list[tuple[int, int]]:
    """Runs of rows that, padded to the longest, fit the budget on both sides."""
    cuts, start, longest = [], 0, 0
    for row, length in enumerate(np.maximum(source, target).tolist()):
        # The larger side, padded, has rows x the longest of both sides.
        longest = max(longest, length)
        if row > start and (row + 1 - start) * longest > budget:
            cuts.append((start, row))
            start, longest = row, length
    cuts.append((start, len(source)))
    return cuts


def _cut_packed(source: Ints, target: Ints, budget: int) -> list[tuple[int, int]]:
    """Runs of rows whose lengths add up to at most the budget on both sides."""
    cuts, start, source_sum, target_sum = [], 0, 0, 0
    for row, (one, other) in enumerate(zip(source.tolist(), target.tolist(), strict=True)):
        source_sum += one
        target_sum += other
        if row > start and (source_sum > budget or target_sum > budget):
            cuts.append((start, row))
            start, source_sum, target_sum = row, one, other
    cuts.append((start, len(source)))
    return cuts


def mixed(values: Ints | NDArray[np.uint64], key: int) -> NDArray[np.uint64]:
    """A 64-bit hash of each value under a key (splitmix64: Steele, Lea and Flood 2014)."""
    with np.errstate(over="ignore"):
        x = values.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(key)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def key_of(*parts: int) -> int:
    """A 64-bit hash of some integers."""
    key = 0
    for part in parts:
        key = int(mixed(np.array([part % 2**64], np.uint64), key)[0])
    return key


def _permuted(indices: Ints, n: int, key: int) -> Ints:
    """What a pseudo-random permutation of 0 … n - 1 has at these indices, without ever writing all of it down.

    A Feistel network (Luby and Rackoff 1988) permutes the next power of four; what falls outside goes through again.
    """
    half = max(1, ((n - 1).bit_length() + 1) // 2)
    mask = np.uint64((1 << half) - 1)
    keys = [key_of(key, turn) for turn in range(6)]

    def once(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
        left, right = values >> np.uint64(half), values & mask
        for turn in keys:
            left, right = right, left ^ (mixed(right, turn) & mask)
        return (left << np.uint64(half)) | right

    out = once(indices.astype(np.uint64))
    while (outside := out >= n).any():
        out[outside] = once(out[outside])
    return out.astype(np.int64)
