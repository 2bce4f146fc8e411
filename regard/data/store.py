"""A corpus: the files that are named, encoded once into ids and raw text, memory-mapped: it may be larger than memory.

A store is a directory of shards (`shards.py`), numbered in the corpus's order; `store.json` says what is in them. The
raw text is kept because subword sampling encodes it anew, and because scores are taken against text alone.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import accumulate, chain, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.data.shards import Column, Encoder, Entry, Ids, Pair, Repeats, Report, cut, encode, mapped
from regard.errors import DataError
from regard.machine import alone_in
from regard.settings import DataConfig, Filters
from regard.text.lines import format_of, read_labelled, read_pairs, read_texts, split_tag, tag
from regard.text.tokenizer import END, Tokenizer

FORMAT = 2

Progress = Callable[[str, int], None]  # called with what is being counted and how many so far


def pairs_of(data: DataConfig, *, valid: bool = False) -> Iterator[Pair]:
    """All pairs of the training files, or of those of validation, in order; text of one side has empty sources.

    In a multilingual corpus every source must carry a known tag.
    """
    for _, pairs in _files(data, valid):
        yield from pairs


def line_of(data: DataConfig, wanted: Pair, *, valid: bool = False) -> str:
    """Where this pair is first found, for a message: "train.en: line 7"."""
    for name, pairs in _files(data, valid):
        for number, pair in enumerate(pairs, start=1):
            if pair == wanted:
                return f"{name}: line {number:,}"
    return "a line"


def _files(data: DataConfig, valid: bool) -> Iterator[tuple[str, Iterator[Pair]]]:
    for name in data.valid_texts if valid else data.texts:
        yield name, (("", line) for line in texts_in(name, data))
    targets = data.valid_target_files if valid else data.target_files
    for index, name in enumerate(data.valid_sources if valid else data.sources):
        if data.labels:
            pairs = read_labelled(name)
        else:
            target = targets[index] if targets else None
            pairs = read_pairs(name, target, fields=data.fields, languages=data.languages)
        yield name, _tagged(pairs, name, data.target_languages) if data.target_languages else pairs


def texts_in(name: str, data: DataConfig) -> Iterator[str]:
    """The lines of text of one side in a file."""
    return read_texts(name, fields=data.fields, language=data.source_language or data.target_language)


def _tagged(pairs: Iterator[Pair], name: str, languages: tuple[str, ...]) -> Iterator[Pair]:
    for number, pair in enumerate(pairs, start=1):
        if split_tag(pair[0])[0] not in languages:
            raise DataError(
                f"{name}: line {number} ({pair[0][:40]!r}) does not start with a tag of data.target_languages "
                f"({', '.join(map(tag, languages))}); put one and a space before the text."
            )
        yield pair


def how_read(data: DataConfig) -> list[object]:
    """What of the settings, beside the files and `data.fields`, decides what is read of them."""
    named = {format_of(name).named_by for name in (*data.files, *data.valid_files)}
    return [
        *([data.labels] if data.labels else []),
        *(["text", bool(data.context)] if data.texts else []),
        *(["fields"] if data.texts and "fields" in named else []),
        *([data.languages] if "languages" in named else []),
    ]


def hash_of(pair: Pair, data: DataConfig) -> int:
    """64 bits of a source line (or text) without its tag: all translations of it fall on the same side of a split."""
    line = pair[1] if data.texts else split_tag(pair[0])[1]
    return int.from_bytes(blake2b(line.encode(), digest_size=8).digest(), "big")


def lowest_of(values: Iterable[int], count: int) -> list[int]:
    """The lowest `count` different values in order, in memory of that size."""
    kept: set[int] = set()
    bound = 2**64
    for value in values:
        if value < bound:
            kept.add(value)
            if len(kept) > 4 * count:
                kept = set(sorted(kept)[:count])
                bound = max(kept)
    return sorted(kept)[:count]


class Side:
    """One side of a store: lines' ids and text by their numbers."""

    def __init__(self, columns: Sequence[Column]) -> None:
        """The same side of every shard, in order."""
        self._columns = columns
        self._first = [0, *accumulate(len(column.offsets) - 1 for column in columns)]  # line of each shard

    def _at(self, line: int) -> tuple[Column, int]:
        shard = bisect_right(self._first, line) - 1
        return self._columns[shard], line - self._first[shard]

    def line_ids(self, line: int) -> Ids:
        """Ids of a line (tokens), without begin and end; a view of the file."""
        column, line = self._at(line)
        return column.line_ids(line)

    def text(self, line: int) -> str:
        """A line as it was read."""
        column, line = self._at(line)
        return column.text(line)

    def ids_of(self, lines: NDArray[np.int64]) -> Ids:
        """Ids of one line or more, end to end."""
        return np.concatenate([self.line_ids(line) for line in lines.tolist()])

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """(lines,) tokens of every line, without begin and end: 8 bytes of memory for each, once asked for."""
        return np.concatenate([np.diff(column.offsets) for column in self._columns])

    def counts(self, tokens: int) -> NDArray[np.int64]:
        """(tokens,) how often each id of a vocabulary of so many occurs, the end once a line."""
        found = np.zeros(tokens, np.int64)
        for column in self._columns:
            found += np.bincount(column.ids, minlength=tokens)
        found[END] += len(self.lengths)
        return found


@dataclass(frozen=True)
class Stream:
    """Lines read as one text, in windows of so many tokens; with `carry` each row of a batch goes on where the same row
    of the batch before ended."""

    context: int = 0  # tokens of a window; 0: line by line
    carry: bool = False


class Windows:
    """A side as one stream, every line with its end, cut into windows of `size` tokens n, the last one shorter.

    A stream is a ring: a window may begin anywhere, and the first line follows the last end. So each epoch can be cut
    elsewhere, every token being predicted once, and the token before the first one is an end. A line costs 8 bytes.
    """

    def __init__(self, side: Side, size: int) -> None:
        self._side, self._size = side, size
        self._ends: NDArray[np.int64] = np.cumsum(side.lengths + 1)  # (lines,) the position behind each line's end
        self.tokens = int(self._ends[-1])

    def __len__(self) -> int:
        return -(-self.tokens // self._size)

    def lengths_of(self, windows: NDArray[np.int64]) -> NDArray[np.int64]:
        """(windows,) tokens to predict in each."""
        return np.minimum(self._size, self.tokens - windows * self._size)

    def read(self, windows: NDArray[np.int64], offset: int = 0) -> NDArray[np.int64]:
        """Ids of the windows end to end, each after the token before it: n + 1 a window; window 0 is at `offset`."""
        starts = windows * self._size + offset % self.tokens
        ends = starts + self.lengths_of(windows)
        return np.concatenate([self._ring(start - 1, end) for start, end in np.stack([starts, ends], 1).tolist()])

    def _ring(self, start: int, end: int) -> NDArray[np.int64]:
        """The ids of the ring from `start` to before `end`, which is less than a whole round further."""
        length, start = end - start, start % self.tokens
        found = self._between(start, min(start + length, self.tokens))
        return found if len(found) == length else np.concatenate([found, self._between(0, length - len(found))])

    def _between(self, start: int, end: int) -> NDArray[np.int64]:
        first, last = np.searchsorted(self._ends, [start, end - 1], side="right").tolist()
        lines = [np.append(self._side.line_ids(line), END) for line in range(first, last + 1)]
        before = int(self._ends[first - 1]) if first else 0
        return np.concatenate(lines)[start - before : end - before].astype(np.int64)


class Store:
    """A corpus ready to be cut into batches; read-only."""

    def __init__(self, path: Path, header: Entry) -> None:
        """Use `Store.open` or `Store.build`."""
        self.path = path
        self.fingerprint: str = header["fingerprint"]
        self.report = Report(**header["report"])
        self._lines: int = header["lines"]
        columns = [mapped(path, number, entry) for number, entry in enumerate(header["shards"])]
        self.source, self.target = (Side([column[side] for column in columns]) for side in (0, 1))

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Store:
        """Map a store into memory. Raises DataError if it is missing, damaged or of another format."""
        path = Path(path)
        try:
            header = json.loads((path / "store.json").read_text("utf-8"))
        except FileNotFoundError:
            raise DataError(f"{path}: there is no token store here; prepare it first.") from None
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: the store cannot be read ({error}); delete it and prepare it again.") from None
        found = header.get("format") if isinstance(header, dict) else None
        if found != FORMAT:
            raise DataError(
                f"{path}: the store has format {found}, this version reads {FORMAT}; delete it and prepare it again."
            )
        try:
            return cls(path, header)
        except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}: the store is damaged ({error}); delete it and prepare it again.") from None

    @classmethod
    def build(
        cls,
        path: str | os.PathLike[str],
        pairs: Iterable[Pair | None],
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        filters: Filters,
        fingerprint: str,
        *,
        workers: int = 1,
        progress: Progress | None = None,
    ) -> Store:
        """Encode `pairs` into a store at `path`, or open the one there if its fingerprint is the same.

        A pair that is None is left out before the filters and not counted as read; the report's line numbers count it
        all the same, so they are the file's. Streams: memory does not grow with the corpus, but for 64 bits
        a pair where duplicates are dropped. A corpus of more than one shard is encoded by as many processes as there
        are `workers`, if more than one; the files are the same, however many. The store appears only when whole; one
        with another fingerprint is replaced. Of several processes that build it at once, one does and the others wait.
        Raises DataError if the filters keep nothing or the disk is full, with nothing left behind.
        """
        path = Path(path)
        if (found := cls.matching(path, fingerprint)) is not None:
            return found
        path.parent.mkdir(parents=True, exist_ok=True)
        with alone_in(path.parent) as alone:
            if (found := cls.matching(path, fingerprint)) is not None:
                return found
            if alone:
                _remove_leftovers(path)
            with _part_of(path) as part:
                encoder = Encoder(part, source_tokenizer, target_tokenizer, filters)
                header = {"fingerprint": fingerprint, **_encode(encoder, pairs, workers, progress)}
                (part / "store.json").write_text(json.dumps(header, indent=1) + "\n", "utf-8")
                _replace(part, path)
        return cls.open(path)

    @classmethod
    def matching(cls, path: str | os.PathLike[str], fingerprint: str) -> Store | None:
        """The store at `path` if it is whole and has this fingerprint, else None."""
        try:
            store = cls.open(path)
        except DataError:
            return None
        return store if store.fingerprint == fingerprint else None

    def __len__(self) -> int:
        """Pairs in the store."""
        return self._lines

    def pair(self, line: int) -> Pair:
        """Both sides of a line as they were read."""
        return self.source.text(line), self.target.text(line)

    @property
    def longest(self) -> int:
        """Tokens of the longest line of either side, its end counted."""
        return 1 + int(max(self.source.lengths.max(), self.target.lengths.max()))


def fingerprint(*parts: object) -> str:
    """SHA-256, in hex, of plain values: hashes of files, of vocabularies, settings."""
    return hashlib.sha256(json.dumps([FORMAT, *parts], sort_keys=True).encode()).hexdigest()


def _encode(encoder: Encoder, pairs: Iterable[Pair | None], workers: int, progress: Progress | None) -> Entry:
    """Write the shards; returns the header, but for the fingerprint."""
    done = 0

    def advance(more: int) -> None:
        nonlocal done
        done += more
        if progress is not None:
            progress("pairs encoded", done)

    raws = cut(pairs, Repeats() if encoder.filters.drop_duplicates else None)
    first = list(islice(raws, 2)) if workers > 1 else []
    raws = chain(first, raws)
    if len(first) > 1:
        shards = encode(encoder, raws, workers, advance)
    else:
        shards = [encoder.encode(number, raw, advance) for number, raw in enumerate(raws)]
    report = Report()
    for shard in shards:
        report.add(Report(**shard.pop("report")))
    if not report.kept:
        raise DataError(f"no pair is left to learn from: {report}. Loosen data.filters or check the files.")
    return {"format": FORMAT, "lines": report.kept, "report": asdict(report), "shards": shards}


def _remove_leftovers(path: Path) -> None:
    """What killed builds of a store left beside it: nobody else builds now, so nothing half-written is in use."""
    for found in path.parent.iterdir():
        if found.name.startswith(f".{path.name}.") and found.suffix in (".part", ".old"):
            shutil.rmtree(found, ignore_errors=True)


@contextmanager
def _part_of(path: Path) -> Iterator[Path]:
    """A directory beside `path` to build a store in, gone afterwards."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        part.mkdir()
        yield part
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DataError(
                f"{path}: the disk is full; free some space or set data.cache to a directory with more."
            ) from None
        raise
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _replace(part: Path, path: Path) -> None:
    """Put the directory `part` at `path`. What was there is gone only once the new one stands."""
    old = part.with_suffix(".old")
    if path.exists():
        os.rename(path, old)
    os.rename(part, path)
    shutil.rmtree(old, ignore_errors=True)
