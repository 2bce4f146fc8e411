"""A store cut into batches by tokens, in an order that is a pure function of the seed and can be taken up anywhere.

No random generator is kept: every choice is a hash of (seed, epoch, what it is for), so a position is three integers,
and the order does not depend on a library's version. Sizes: B rows of a batch; S, T longest source, target with its
end; L all tokens of a side; n lines of the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from queue import Queue
from threading import Event, Thread
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from regard.data.shards import Ids
from regard.data.store import Store, Stream, Windows
from regard.errors import DataError
from regard.text.tokenizer import BEGIN, END, PAD

if TYPE_CHECKING:
    from regard.data.sampling import Sampling

Layout = Literal["padded", "packed"]
Ints = NDArray[np.int64]

# What a hash is for: the same number is never drawn for two purposes.
_ORDER, _TIES, _SHUFFLE, _SOURCE, _TARGET, _VIEW, _OFFSET = range(1, 8)


@dataclass(frozen=True)
class Batch:
    """Pairs of lines as ids: padded to equal length, or packed end to end. Rows are B."""

    lines: Ints  # (B,) store line numbers
    source: Ints  # (B, S) padded or (L,) packed: x1 … xn END
    source_lengths: Ints  # (B,) with END
    target_input: Ints  # (B, T) or (L,): BEGIN y1 … yn
    target_output: Ints  # (B, T) or (L,): y1 … yn END
    target_lengths: Ints  # (B,) with END
    layout: Layout
    continues: bool = False  # each row goes on where the same row of the batch before it ended

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def source_tokens(self) -> int:
        """Source tokens with their ends, without padding."""
        return int(self.source_lengths.sum())

    @property
    def target_tokens(self) -> int:
        """Target tokens to predict, the ends among them, without padding and what a view does not ask for (-1)."""
        return int(self.target_lengths.sum()) - int(np.count_nonzero(self.target_output < 0))

    def part(self, start: int, end: int) -> Batch:
        """The rows from `start` to before `end`, at least one; no wider than their own longest."""

        def cut(x: Ints, lengths: Ints) -> Ints:
            if self.layout == "padded":
                return np.ascontiguousarray(x[start:end, : lengths[start:end].max()])
            return x[lengths[:start].sum() : lengths[:end].sum()]

        return Batch(
            self.lines[start:end],
            cut(self.source, self.source_lengths),
            self.source_lengths[start:end],
            cut(self.target_input, self.target_lengths),
            cut(self.target_output, self.target_lengths),
            self.target_lengths[start:end],
            self.layout,
        )


View = Callable[[Batch, int], Batch]  # a batch, and a key for what is drawn -> the batch as an objective wants it


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
        stream: Stream | None = None,
        view: View | None = None,
    ) -> None:
        """Starts at the first batch; `seek` leads elsewhere. `epoch`, counted from 0, is that of the next batch.

        With `stream` the targets are one text (`Windows`), whose windows, cut elsewhere each epoch, are the rows; they
        are never sampled. Every batch is seen through `view`. Raises DataError for a wrong size or layout.
        """
        if batch_tokens < 1 or pool < 1:
            raise DataError(f"batch_tokens ({batch_tokens}) and pool ({pool}) must be at least 1.")
        if layout not in ("padded", "packed"):
            raise DataError(f"layout {layout!r} is unknown; choose 'padded' or 'packed'.")
        self._store, self._seed, self._sampling, self._view = store, seed, sampling, view
        self.batch_tokens, self._layout = batch_tokens, layout
        stream = stream or Stream()
        self._windows = Windows(store.target, stream.context) if stream.context else None
        self._rows_in_all = len(self._windows or store)
        self._lanes = min(self._rows_in_all, max(1, batch_tokens // stream.context)) if stream.carry else 0
        self._pools = 1 if self._lanes else -(-self._rows_in_all // pool)
        self.epoch, self._pool, self._batch = 0, 0, 0
        self._plan: _Plan | None = None

    @property
    def longest(self) -> tuple[int, int]:
        """Tokens of the longest source and target row as the store has them, ends counted."""
        if self._windows is not None:
            return 1, int(self._windows.lengths_of(np.arange(self._rows_in_all)).max())
        return int(self._store.source.lengths.max()) + 1, int(self._store.target.lengths.max()) + 1

    def position(self) -> dict[str, int]:
        """Where the next batch is; it only means the same with the same store and settings."""
        return {"epoch": self.epoch, "pool": self._pool, "batch": self._batch}

    def seek(self, position: Mapping[str, int]) -> None:
        """Go on from a `position` as if never left. Raises DataError, and stays where it is, if there is none such."""
        if missing := {"epoch", "pool", "batch"} - {*position}:
            raise DataError(f"position {dict(position)} lacks {min(missing)!r}; it needs epoch, pool and batch.")
        epoch, pool, batch = (position[key] for key in ("epoch", "pool", "batch"))
        if epoch < 0 or not 0 <= pool < self._pools:
            raise DataError(f"position {dict(position)} is outside: there are {self._pools} pools in an epoch.")
        plan = self._planned(epoch, pool)
        if not 0 <= batch < len(plan.cuts):
            raise DataError(
                f"position {dict(position)} is outside: pool {pool} has {len(plan.cuts)} batches. "
                "It was taken with other data or batch settings; go on with those."
            )
        self.epoch, self._pool, self._batch, self._plan = epoch, pool, batch, plan

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        plan = self._plan or self._planned(self.epoch, self._pool)
        batch = self._seen(plan.make(self._batch, self._layout), self.epoch)
        # Moved on at once, so that `position` and `epoch` always tell of the next batch.
        self._plan = plan
        self._batch += 1
        if self._batch == len(plan.cuts):
            self._batch, self._plan, self._pool = 0, None, self._pool + 1
            if self._pool == self._pools:
                self._pool, self.epoch = 0, self.epoch + 1
        return batch

    def one_epoch(self, *, sort: bool = False) -> Iterator[Batch]:
        """Every line once, unshuffled and never sampled; with `sort` by length within each pool, to pad less."""
        for pool in range(self._pools):
            lines = self._positions(pool)
            plan = self._in_lanes(None) if self._lanes else self._cut(lines, None, lines if sort else None)
            for index in range(len(plan.cuts)):
                yield self._seen(plan.make(index, self._layout), 0)

    def _positions(self, pool: int) -> Ints:
        """Where a pool lies in the epoch's order: pools are of equal size, to one line."""
        n = self._rows_in_all
        return np.arange(n * pool // self._pools, n * (pool + 1) // self._pools, dtype=np.int64)

    def _planned(self, epoch: int, pool: int) -> _Plan:
        """The plan of a pool: a pure function of the store, the settings and the arguments."""
        if self._lanes:
            return self._in_lanes(epoch)
        lines = _permuted(self._positions(pool), self._rows_in_all, key_of(self._seed, epoch, _ORDER))
        plan = self._cut(lines, epoch, mixed(lines, key_of(self._seed, epoch, _TIES)))
        batches = np.arange(len(plan.cuts), dtype=np.int64)
        shuffled = np.argsort(mixed(batches, key_of(self._seed, epoch, _SHUFFLE, pool)), kind="stable")
        plan.cuts = [plan.cuts[i] for i in shuffled.tolist()]
        return plan

    def _in_lanes(self, epoch: int | None) -> _Plan:
        """The stream cut into as many equal parts as a batch has rows, all read side by side from their beginnings."""
        lengths = self._rows_in_all // self._lanes + (np.arange(self._lanes) < self._rows_in_all % self._lanes)
        steps = np.arange(lengths[0])[:, None]
        there = steps < lengths  # (steps, lanes); in the last step the first lanes alone
        windows = (np.cumsum(lengths) - lengths + steps)[there]
        ends = np.cumsum(there.sum(1)).tolist()
        cuts = list(zip([0, *ends[:-1]], ends, strict=True))
        return _Plan(windows, *self._sides(windows, epoch), cuts, carry=True)

    def _seen(self, batch: Batch, epoch: int) -> Batch:
        return batch if self._view is None else self._view(batch, key_of(self._seed, epoch, _VIEW))

    def _sides(self, lines: Ints, epoch: int | None) -> tuple[_Rows, _Rows]:
        """Source and target rows; without an epoch, as they are in the store."""
        if (windows := self._windows) is not None:
            read = partial(windows.read, offset=0 if epoch is None else key_of(self._seed, epoch, _OFFSET))
            return _Rows.of([()] * len(lines)), _Rows(read, lines, windows.lengths_of(lines) - 1, framed=True)
        sides, drawing = (self._store.source, self._store.target), self._sampling
        if drawing is None or epoch is None:
            source, target = (_Rows(side.ids_of, lines, side.lengths[lines]) for side in sides)
            return source, target
        keys = key_of(self._seed, epoch, _SOURCE), key_of(self._seed, epoch, _TARGET)
        drawn = drawing.rows(sides, lines, keys)
        return _Rows.of(drawn[0]), _Rows.of(drawn[1])

    def _cut(self, lines: Ints, epoch: int | None, ties: Ids | None) -> _Plan:
        """A plan of these lines, in their order or, where it is said how ties are decided, by length.

        That is by the source's; among equals by the target's, up and down in turn, so that neighbours are alike.
        """
        source, target = self._sides(lines, epoch)
        if ties is not None:
            turned = np.where(source.lengths % 2 == 0, target.lengths, -target.lengths)
            order = np.lexsort((ties, turned, source.lengths))
            lines, source, target = lines[order], source.take(order), target.take(order)
        cuts = _cuts(source.lengths + 1, target.lengths + 1, self.batch_tokens, padded=self._layout == "padded")
        return _Plan(lines, source, target, cuts)


@dataclass
class _Rows:
    """One side's lines: how long they are, and where their ids come from when a batch is made."""

    read: Callable[[Ints], Ids]  # numbers of lines -> their ids end to end
    numbers: Ints
    lengths: Ints
    framed: bool = False  # the ids come with the one before the row and the one behind it, instead of BEGIN and END

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> _Rows:
        made = [np.array(row, np.int64) for row in rows]
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        return cls(lambda numbers: np.concatenate([made[n] for n in numbers.tolist()]), np.arange(len(rows)), lengths)

    def take(self, rows: Ints | slice) -> _Rows:
        return _Rows(self.read, self.numbers[rows], self.lengths[rows], self.framed)

    def laid(self, layout: Layout, flat: Ints, *, begin: bool) -> Ints:
        """The ids of all rows, each after BEGIN or before END: (rows, longest + 1), or (sum of lengths + rows,)."""
        ends = np.cumsum(self.lengths)
        if self.framed:
            last = ends + 2 * np.arange(len(ends)) + 1
            packed = np.delete(flat, last if begin else last - self.lengths - 1)
        else:
            packed = np.insert(flat, ends - self.lengths if begin else ends, BEGIN if begin else END)
        if layout == "packed":
            return packed
        out = np.full((len(self.lengths), int(self.lengths.max()) + 1), PAD, np.int64)
        out[np.arange(out.shape[1]) <= self.lengths[:, None]] = packed
        return out


@dataclass
class _Plan:
    """A pool ready to be made into batches: batch i holds the rows cuts[i][0] to cuts[i][1]."""

    lines: Ints
    source: _Rows
    target: _Rows
    cuts: list[tuple[int, int]]
    carry: bool = False  # each batch but the first goes on where the one before it ended

    def make(self, index: int, layout: Layout) -> Batch:
        rows = slice(*self.cuts[index])
        source, target = self.source.take(rows), self.target.take(rows)
        read, written = (side.read(side.numbers).astype(np.int64) for side in (source, target))
        return Batch(
            self.lines[rows],
            source.laid(layout, read, begin=False),
            source.lengths + 1,
            target.laid(layout, written, begin=True),
            target.laid(layout, written, begin=False),
            target.lengths + 1,
            layout,
            continues=self.carry and index > 0,
        )


def assembled(batch: Batch, source: Sequence[Sequence[int]], target: Sequence[Sequence[int]]) -> Batch:
    """The batch with these rows of ids, without begin and end, in place of its own."""
    return _Plan(batch.lines, _Rows.of(source), _Rows.of(target), [(0, len(batch))]).make(0, batch.layout)


def _cuts(source: Ints, target: Ints, budget: int, *, padded: bool) -> list[tuple[int, int]]:
    """Runs of rows that fit the budget on both sides, padded to the longest of either side or end to end."""
    cuts, start, longest, read, written = [], 0, 0, 0, 0
    for row, (one, other) in enumerate(zip(source.tolist(), target.tolist(), strict=True)):
        longest, read, written = max(longest, one, other), read + one, written + other
        if row > start and ((row + 1 - start) * longest if padded else max(read, written)) > budget:
            cuts.append((start, row))
            start, longest, read, written = row, max(one, other), one, other
    return [*cuts, (start, len(source))]


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


_Item = tuple[Batch, dict[str, int]] | BaseException  # a batch with the position of the next, or what went wrong


class Prefetcher:
    """The same batches in the same order, made ready in a thread while those before them are learnt from.

    `position` tells of the next one handed out, not of the thread's. `depth` is how many may wait. The thread starts
    with the first batch and ends with `close` or the process.
    """

    def __init__(self, batches: Batches, depth: int = 16) -> None:
        self._batches, self._depth, self._position = batches, depth, batches.position()
        self._stop: Event | None = None
        self._ready: Queue[_Item] = Queue()

    @property
    def epoch(self) -> int:
        return self._position["epoch"]

    def position(self) -> dict[str, int]:
        """Where the next batch is, as `Batches.position`."""
        return dict(self._position)

    def seek(self, position: Mapping[str, int]) -> None:
        """Go on from a position, as `Batches.seek`."""
        self.close()
        self._batches.seek(position)
        self._position = self._batches.position()

    def close(self) -> None:
        """End the thread; the next batch is still the one that `position` tells of."""
        if self._stop is not None:
            self._stop.set()
            while self._thread.is_alive():
                while not self._ready.empty():
                    self._ready.get_nowait()
                self._thread.join(0.01)
            self._stop = None
            self._batches.seek(self._position)

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if self._stop is None:
            self._stop, self._ready = Event(), Queue(self._depth)
            self._thread = Thread(target=self._make, args=(self._stop, self._ready), daemon=True)
            self._thread.start()
        item = self._ready.get()
        if isinstance(item, BaseException):
            self._stop = None
            raise item
        batch, self._position = item
        return batch

    def _make(self, stop: Event, ready: Queue[_Item]) -> None:
        try:
            while not stop.is_set():
                ready.put((next(self._batches), self._batches.position()))
        except BaseException as error:  # it belongs to whoever waits for the batch
            ready.put(error)
