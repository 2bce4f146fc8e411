"""A shard: one file with some of a store's pairs, ids and raw text of both sides, memory-mapped; and how it is made.

For the source, then for the target: offsets of the ids (int64, lines + 1), offsets of the text (int64, lines + 1), ids
end to end (uint16, or uint32 for large vocabularies), UTF-8 text end to end; each begins at a multiple of 8 bytes.
All is little-endian. How long each is stands in the store's header, beside the shard's number.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from multiprocessing import connection, get_context, resource_tracker
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from regard import errors
from regard.settings import Filters
from regard.text.subwords import Order
from regard.text.tokenizer import Tokenizer

Pair = tuple[str, str]
Ids = NDArray[np.integer[Any]]
Entry = dict[str, Any]  # of a shard, or of a side of it, for the store's header

# Characters of a shard, and one more for each line: some 60,000 pairs at first, so that small corpora are one shard and
# those of a few shards still keep all workers busy. Later an eighth of what came before, at most four times as many:
# a process holds them in a few hundred megabytes, and each shard of an open store is one of its open files.
_SMALL, _LARGE = 1 << 23, 1 << 25
_CHUNK = 8192


@dataclass
class Report:
    """How many pairs were read and kept; for each reason, how many were dropped and the first line it happened on."""

    read: int = 0
    kept: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    examples: dict[str, int] = field(default_factory=dict)

    def count(self, line: int, reason: str | None) -> None:
        """Note that the pair of this line (counted from 1) was kept (None) or dropped."""
        self.read += 1
        if reason is None:
            self.kept += 1
        else:
            self.dropped[reason] = self.dropped.get(reason, 0) + 1
            self.examples.setdefault(reason, line)

    def add(self, later: Report) -> None:
        """Count in what happened to the lines after these."""
        self.read += later.read
        self.kept += later.kept
        for reason, count in later.dropped.items():
            self.dropped[reason] = self.dropped.get(reason, 0) + count
            self.examples.setdefault(reason, later.examples[reason])

    def __str__(self) -> str:
        """One line for people."""
        reasons = (f"{count:,} {reason} (line {self.examples[reason]:,})" for reason, count in self.dropped.items())
        dropped = f"; dropped: {', '.join(reasons)}" if self.dropped else ""
        return f"{self.read:,} pairs read, {self.kept:,} kept{dropped}"


class Repeats:
    """Which pairs of a corpus occurred before; remembers what it has seen."""

    def __init__(self) -> None:
        # A 64-bit hash instead of the text: among 10^8 different pairs, a false alarm has a chance of 3 in 10,000.
        self._seen: set[int] = set()

    def again(self, source: str, target: str) -> bool:
        """Whether this pair, both sides alike, was asked about before."""
        key = int.from_bytes(blake2b(f"{source}\0{target}".encode(), digest_size=8).digest(), "little")
        before = key in self._seen
        self._seen.add(key)
        return before


@dataclass(frozen=True)
class Raw:
    """Pairs to be encoded into one shard, as they were read."""

    numbers: list[int] = field(default_factory=list)  # of the pair in the corpus, counted from 1
    sources: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    repeated: list[bool] = field(default_factory=list)  # whether the pair occurred before, in any shard

    def to_json(self) -> str:
        """Plain ASCII; the inverse is `Raw(**json.loads(text))`."""
        return json.dumps(vars(self))


def cut(pairs: Iterable[Pair | None], repeats: Repeats | None) -> Iterator[Raw]:
    """The pairs in shards, without those that are None; where one ends depends on the pairs alone."""
    raw, size, before = Raw(), 0, 0
    for number, pair in enumerate(pairs, start=1):
        if pair is None:
            continue
        raw.numbers.append(number)
        raw.sources.append(pair[0])
        raw.targets.append(pair[1])
        raw.repeated.append(repeats is not None and repeats.again(*pair))
        size += len(pair[0]) + len(pair[1]) + 2
        if size >= min(max(_SMALL, before // 8), _LARGE):
            yield raw
            raw, size, before = Raw(), 0, before + size
    if raw.numbers:
        yield raw


@dataclass(frozen=True)
class Encoder:
    """What turns pairs into the shards of a directory. One thread, or as many as there are cores (None)."""

    folder: Path
    source: Tokenizer
    target: Tokenizer
    filters: Filters
    threads: int | None = None

    def encode(self, number: int, raw: Raw, advance: Callable[[int], None]) -> Entry:
        """Write shard `number`; returns its entry for the store's header, and its `Report` as a dict under "report".

        `advance` is called with how many more pairs are encoded, every few thousand.
        """
        report, source, target = Report(), _Lines(self.source), _Lines(self.target)
        for start in range(0, len(raw.numbers), _CHUNK):
            rows = slice(start, start + _CHUNK)
            sources, targets = raw.sources[rows], raw.targets[rows]
            source_ids = self.source.encode_lines(sources, threads=self.threads)
            target_ids = self.target.encode_lines(targets, threads=self.threads)
            kept = []
            for row, line in enumerate(raw.numbers[rows]):
                tokens = len(source_ids[row]), len(target_ids[row])
                reason = self.filters.reason(sources[row], targets[row], *tokens, again=raw.repeated[start + row])
                report.count(line, reason)
                if reason is None:
                    kept.append(row)
            source.add([sources[row] for row in kept], [source_ids[row] for row in kept])
            target.add([targets[row] for row in kept], [target_ids[row] for row in kept])
            advance(len(sources))
        with _file(self.folder, number).open("wb") as stream:
            entry = {"lines": report.kept, "source": source.write(stream), "target": target.write(stream)}
        return {**entry, "report": asdict(report)}


class _Lines:
    """One side of a shard as it grows."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._dtype = "<u2" if len(tokenizer) <= 2**16 else "<u4"
        self._ids: list[bytes] = []
        self._texts: list[bytes] = []
        self._lengths: tuple[list[int], list[int]] = ([], [])  # of ids and of text

    def add(self, texts: Sequence[str], ids: Sequence[Sequence[int]]) -> None:
        encoded = [text.encode("utf-8") for text in texts]
        for lengths, lines in zip(self._lengths, (ids, encoded), strict=True):
            lengths += map(len, lines)
        # End to end at once: a few large objects instead of many small ones.
        self._ids.append(np.array([i for line in ids for i in line], self._dtype).tobytes())
        self._texts.append(b"".join(encoded))

    def write(self, stream: BinaryIO) -> Entry:
        """Append the side to a file; returns what `Column` needs to find it there."""
        ends = [np.cumsum([0, *lengths], dtype="<i8") for lengths in self._lengths]
        for parts in ([ends[0].tobytes()], [ends[1].tobytes()], self._ids, self._texts):
            stream.writelines(parts)
            stream.write(bytes(-stream.tell() % 8))
        return {"tokens": int(ends[0][-1]), "bytes": int(ends[1][-1]), "dtype": self._dtype}


class Column:
    """One side of a shard on disk."""

    def __init__(self, content: mmap.mmap, start: int, lines: int, *, tokens: int, bytes: int, dtype: str) -> None:
        """The side that begins at byte `start` of a mapped shard. Raises ValueError if it is not whole."""

        def array(kind: str, count: int) -> Any:
            found = np.frombuffer(content, kind, count, self.end)
            self.end += -(-found.nbytes // 8) * 8
            return found.astype(found.dtype.newbyteorder("="), copy=False)  # a copy on big-endian machines alone

        self.end = start  # and in the end, where the next side begins
        self.offsets: NDArray[np.int64] = array("<i8", lines + 1)
        self._text_offsets: NDArray[np.int64] = array("<i8", lines + 1)
        self.ids: Ids = array(dtype, tokens)
        self._content, self._text = content, self.end
        self.end += -(-bytes // 8) * 8
        if self.end > len(content) or (self.offsets[-1], self._text_offsets[-1]) != (tokens, bytes):
            raise ValueError("it is cut short or has other content than the header says")

    def line_ids(self, line: int) -> Ids:
        """Ids of a line of the shard; a view of the file."""
        return self.ids[self.offsets[line] : self.offsets[line + 1]]

    def text(self, line: int) -> str:
        """Raw text of a line of the shard."""
        start, end = self._text_offsets[line : line + 2].tolist()
        return self._content[self._text + start : self._text + end].decode("utf-8")


def mapped(folder: Path, number: int, entry: Entry) -> tuple[Column, Column]:
    """Source and target of a shard that `Encoder.encode` wrote. Raises ValueError if it is not whole."""
    path = _file(folder, number)
    # Stores that version 0.1 made call their tokens pieces.
    sides = [{"tokens" if k == "pieces" else k: v for k, v in entry[side].items()} for side in ("source", "target")]
    with path.open("rb") as stream:
        try:
            content = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
            source = Column(content, 0, entry["lines"], **sides[0])
            target = Column(content, source.end, entry["lines"], **sides[1])
            if target.end != len(content):
                raise ValueError("it is longer than the header says")
        except ValueError as error:
            raise ValueError(f"{path.name}: {error}") from None
    return source, target


def _file(folder: Path, number: int, kind: str = "shard") -> Path:
    """Where a shard is, or in a file of JSON waits to be encoded."""
    return folder / f"{number:05d}.{kind}"


# -- several processes at once -----------------------------------------------------------------------------------------

# One process reads the corpus, each worker encodes the shards it is given. Text goes to a worker in a file beside the
# shard that it becomes; what is said over the pipe is JSON. Workers end when whoever started them does.

# A worker has the next shard waiting while it encodes one; more would only fill the disk with text.
_WAITING = 2


def cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def encode(encoder: Encoder, raws: Iterable[Raw], workers: int, advance: Callable[[int], None]) -> list[Entry]:
    """What `Encoder.encode` returns for each shard, by at most `workers` processes; DataError if one ends too early."""
    made: dict[int, Entry] = {}
    crew: list[_Worker] = []
    with ExitStack() as ending:
        for number, raw in enumerate(raws):
            _hear(crew, made, advance, 0)
            if len(crew) < workers and all(worker.waiting for worker in crew):
                crew.append(_Worker(encoder))
                ending.callback(crew[-1].end)
            while all(worker.waiting == _WAITING for worker in crew):
                _hear(crew, made, advance, None)
            min(crew, key=lambda worker: worker.waiting).give(number, raw)
        while any(worker.waiting for worker in crew):
            _hear(crew, made, advance, None)
    return [made[number] for number in sorted(made)]


class _Worker:
    """A worker as the one who started it knows it."""

    def __init__(self, encoder: Encoder) -> None:
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.folder = encoder.folder
        self.waiting = 0
        models = (encoder.source.to_bytes(), encoder.target.to_bytes())
        plain = (theirs, str(encoder.folder), *models, encoder.target.order, encoder.filters.model_dump_json())
        self.process = context.Process(target=_work, args=plain, daemon=True)
        resource_tracker.ensure_running()  # it would let Ctrl-C through again if it were started only below
        # Ctrl-C is sent to workers too, but it is ours to end them; what is held back here stays so in them.
        held_back = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held_back)
        theirs.close()

    def give(self, number: int, raw: Raw) -> None:
        _file(self.folder, number, "json").write_text(raw.to_json(), encoding="ascii")
        with suppress(ConnectionError):  # a worker that is gone is noticed when it is listened to
            self.pipe.send_bytes(str(number).encode())
        self.waiting += 1

    def end(self) -> None:
        self.pipe.close()
        self.process.terminate()
        self.process.join()

    def why_it_ended(self) -> errors.DataError:
        self.process.join()
        code = self.process.exitcode or 0
        how = f"was killed by signal {-code}, often for want of memory" if code < 0 else f"ended with code {code}"
        return errors.DataError(f"a worker process {how}, before its lines were encoded; try again with fewer workers.")


def _hear(crew: list[_Worker], made: dict[int, Entry], advance: Callable[[int], None], wait: int | None) -> None:
    """Take in all that workers have said, after waiting at most `wait` seconds (None: for ever) for the first of it."""
    while ready := connection.wait([worker.pipe for worker in crew], wait):
        for worker in (worker for worker in crew if worker.pipe in ready):
            try:
                said = json.loads(worker.pipe.recv_bytes())
            except (EOFError, ConnectionError):
                raise worker.why_it_ended() from None
            if "encoded" in said:
                advance(said["encoded"])
            elif "number" in said:
                made[said["number"]] = said["entry"]
                worker.waiting -= 1
            elif "errno" in said:
                raise OSError(said["errno"], said["strerror"], said["filename"])
            else:
                raise getattr(errors, said["error"])(said["message"])
        wait = 0


def _work(pipe: connection.Connection, folder: str, source: bytes, target: bytes, order: Order, filters: str) -> None:
    """The life of a worker: encodes the shards that it is told the numbers of, until nobody is there to tell."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    learnt = Tokenizer.from_bytes(source)
    other = (learnt if target == source else Tokenizer.from_bytes(target)).in_order(order)
    encoder = Encoder(Path(folder), learnt, other, Filters.model_validate_json(filters), threads=1)

    def say(**what: object) -> None:
        pipe.send_bytes(json.dumps(what).encode())

    with suppress(EOFError, ConnectionError):
        while True:
            number = int(pipe.recv_bytes())
            text = _file(encoder.folder, number, "json")
            try:
                raw = Raw(**json.loads(text.read_text("ascii")))
                text.unlink()
                say(number=number, entry=encoder.encode(number, raw, lambda count: say(encoded=count)))
            except errors.RegardError as error:
                say(error=type(error).__name__, message=str(error))
            except ConnectionError:
                raise
            except OSError as error:
                name = os.fspath(error.filename) if error.filename is not None else None
                say(errno=error.errno, strerror=error.strerror, filename=name)
