"""A shard: one file with some of a store's pairs, ids and raw text of both sides, memory-mapped.

For the source, then for the target: offsets of the ids (int64, lines + 1), offsets of the text (int64, lines + 1), ids
end to end (uint16, or uint32 for large vocabularies), UTF-8 text end to end; each begins at a multiple of 8 bytes.
All is little-endian. How long each is stands in the store's header, beside the shard's number.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from regard.data.filters import Repeats, Report
from regard.settings.data import Filters
from regard.text.tokenizer import Tokenizer

Pair = tuple[str, str]

# Characters of a shard, and one more for each line: some 60,000 pairs at first, so that small corpora are one shard and
# those of a few shards still keep all workers busy. Later an eighth of what came before, at most four times as many:
# a process holds them in a few hundred megabytes, and each shard of an open store is one of its open files.
_SMALL, _LARGE = 1 << 23, 1 << 25
_CHUNK = 8192


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

    def encode(self, number: int, raw: Raw, advance: Callable[[int], None]) -> dict[str, Any]:
        """Write shard `number`; returns its entry for the store's header, and its `Report` as a dict under "report".

        `advance` is called with how many more pairs are encoded, every few thousand.
        """
        report = Report()
        source, target = _Lines(_dtype_of(self.source)), _Lines(_dtype_of(self.target))
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
        return {**entry, "report": report.to_dict()}


def _dtype_of(tokenizer: Tokenizer) -> str:
    return "<u2" if len(tokenizer) <= 2**16 else "<u4"


class _Lines:
    """One side of a shard as it grows."""

    def __init__(self, dtype: str) -> None:
        self._dtype = dtype
        self._ids: list[bytes] = []
        self._texts: list[bytes] = []
        self._lengths: list[int] = []
        self._text_lengths: list[int] = []

    def add(self, texts: Sequence[str], ids: Sequence[Sequence[int]]) -> None:
        encoded = [text.encode("utf-8") for text in texts]
        self._lengths += map(len, ids)
        self._text_lengths += map(len, encoded)
        # End to end at once: a few large objects instead of many small ones.
        self._ids.append(np.array([i for line in ids for i in line], self._dtype).tobytes())
        self._texts.append(b"".join(encoded))

    def write(self, stream: BinaryIO) -> dict[str, Any]:
        """Append the side to a file; returns what `Column` needs to find it there."""
        ends = [np.cumsum([0, *lengths], dtype="<i8") for lengths in (self._lengths, self._text_lengths)]
        for parts in ([ends[0].tobytes()], [ends[1].tobytes()], self._ids, self._texts):
            stream.writelines(parts)
            stream.write(bytes(-stream.tell() % 8))
        return {"tokens": int(ends[0][-1]), "bytes": int(ends[1][-1]), "dtype": self._dtype}


class Column:
    """One side of a shard on disk."""

    def __init__(self, content: mmap.mmap, start: int, lines: int, *, tokens: int, bytes: int, dtype: str) -> None:
        """The side that begins at byte `start` of a mapped shard. Raises ValueError if it is not whole."""

        def array(kind: str, count: int) -> NDArray[Any]:
            found = np.frombuffer(content, kind, count, self.end)
            self.end += -(-found.nbytes // 8) * 8
            return found.astype(found.dtype.newbyteorder("="), copy=False)  # a copy on big-endian machines alone

        self.end = start  # and in the end, where the next side begins
        self.offsets: NDArray[np.int64] = array("<i8", lines + 1)
        self._text_offsets: NDArray[np.int64] = array("<i8", lines + 1)
        self.ids = array(dtype, tokens)
        self._content, self._text = content, self.end
        self.end += -(-bytes // 8) * 8
        if self.end > len(content) or (self.offsets[-1], self._text_offsets[-1]) != (tokens, bytes):
            raise ValueError("it is cut short or has other content than the header says")

    def line_ids(self, line: int) -> NDArray[Any]:
        """Ids of a line of the shard; a view of the file."""
        return self.ids[self.offsets[line] : self.offsets[line + 1]]

    def text(self, line: int) -> str:
        """Raw text of a line of the shard."""
        start, end = self._text_offsets[line : line + 2].tolist()
        return self._content[self._text + start : self._text + end].decode("utf-8")


def mapped(folder: Path, number: int, entry: dict[str, Any]) -> tuple[Column, Column]:
    """Source and target of a shard that `Encoder.encode` wrote. Raises ValueError if it is not whole."""
    path = _file(folder, number)
    with path.open("rb") as stream:
        try:
            content = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
            source = Column(content, 0, entry["lines"], **_side(entry["source"]))
            target = Column(content, source.end, entry["lines"], **_side(entry["target"]))
        except ValueError as error:
            raise ValueError(f"{path.name}: {error}") from None
    if target.end != len(content):
        raise ValueError(f"{path.name}: it is longer than the header says")
    return source, target


def _side(entry: dict[str, Any]) -> dict[str, Any]:
    """A side's entry; stores that version 0.1 made call its tokens pieces."""
    return {"tokens" if key == "pieces" else key: value for key, value in entry.items()}


def _file(folder: Path, number: int) -> Path:
    return folder / f"{number:05d}.shard"
