"""A corpus on disk, encoded once: ids and raw text of both sides, memory-mapped, so that it may be larger than memory.

A store is a directory. Each side has four files: ids end to end (uint16, or uint32 for large vocabularies), their
offsets (int64, lines + 1), UTF-8 text end to end, and its offsets. `store.json` says what is in them. The raw text is
kept because subword sampling encodes it anew, and because scores are taken against text, never against pieces.
"""

from __future__ import annotations

import errno
import hashlib
import json
import mmap
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from regard.data.filters import Filter, Filters, Report
from regard.errors import DataError
from regard.text.subwords import Subwords

__all__ = ["FORMAT", "Side", "Store", "fingerprint"]

FORMAT = 1

_FILES = {"ids": ".ids", "offsets": ".ids.offsets", "text": ".text", "text_offsets": ".text.offsets"}
_CHUNK = 8192

Progress = Callable[[str, int], None]
Pair = tuple[str, str]


class Side:
    """One side of a store: a line's ids and text by its number."""

    def __init__(self, path: Path, name: str, lines: int, dtype: str) -> None:
        """Maps the four files `name`.* of the directory `path`."""
        self.offsets: NDArray[np.int64] = _mapped(_file(path, name, "offsets"), "<i8")
        self.ids: NDArray[Any] = _mapped(_file(path, name, "ids"), dtype)
        self.lengths: NDArray[np.int64] = np.diff(self.offsets)
        self._text_offsets: NDArray[np.int64] = _mapped(_file(path, name, "text_offsets"), "<i8")
        self._text = _mapped_bytes(_file(path, name, "text"))
        whole = (
            len(self.offsets) == len(self._text_offsets) == lines + 1
            and int(self.offsets[-1]) == len(self.ids)
            and int(self._text_offsets[-1]) == len(self._text)
        )
        if not whole:
            raise DataError(f"{path}: the store's {name} side is cut short or damaged; delete it and prepare it again.")

    def line_ids(self, line: int) -> NDArray[Any]:
        """Ids of a line (pieces), without begin and end; a view of the file."""
        return self.ids[self.offsets[line] : self.offsets[line + 1]]

    def text(self, line: int) -> str:
        """Raw text of a line."""
        return self._text[self._text_offsets[line] : self._text_offsets[line + 1]].decode("utf-8")


class Store:
    """A corpus ready to be cut into batches; read-only."""

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        """Use `Store.open` or `Store.build`."""
        self.path = path
        self.fingerprint: str = header["fingerprint"]
        self.report = Report(**header["report"])
        self._lines: int = header["lines"]
        self.source = Side(path, "source", self._lines, header["source_dtype"])
        self.target = Side(path, "target", self._lines, header["target_dtype"])

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
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            found = header.get("format") if isinstance(header, dict) else None
            raise DataError(
                f"{path}: the store has format {found}, this version reads {FORMAT}; delete it and prepare it again."
            )
        try:
            return cls(path, header)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}: the store is damaged ({error}); delete it and prepare it again.") from None

    @classmethod
    def build(
        cls,
        path: str | os.PathLike[str],
        pairs: Iterable[Pair],
        source_subwords: Subwords,
        target_subwords: Subwords,
        filters: Filters,
        fingerprint: str,
        *,
        select: Callable[[Pair], bool] | None = None,
        progress: Progress | None = None,
    ) -> Store:
        """Encode `pairs` into a store at `path`, or open the one there if its fingerprint is the same.

        Pairs that `select` turns down are left out before the filters and not counted as read; the report's line
        numbers count all pairs, so they are the file's. Streams: memory does not grow with the corpus. The store
        appears only when whole; one with another fingerprint is replaced. Raises DataError if the filters keep
        nothing or the disk is full, with nothing left behind.
        """
        path = Path(path)
        if (found := cls.matching(path, fingerprint)) is not None:
            return found
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        try:
            header = _write(part, pairs, source_subwords, target_subwords, filters, select, progress)
            header["fingerprint"] = fingerprint
            (part / "store.json").write_text(json.dumps(header, indent=1) + "\n", "utf-8")
            _replace(part, path)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DataError(
                    f"{path}: the disk is full; free some space or set data.cache to a directory with more."
                ) from None
            raise
        finally:
            shutil.rmtree(part, ignore_errors=True)
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

    @property
    def source_lengths(self) -> NDArray[np.int64]:
        """(lines,) pieces of each source line, without begin and end."""
        return self.source.lengths

    @property
    def target_lengths(self) -> NDArray[np.int64]:
        """(lines,) pieces of each target line, without begin and end."""
        return self.target.lengths

    def source_ids(self, line: int) -> NDArray[Any]:
        """Ids of a source line, without begin and end."""
        return self.source.line_ids(line)

    def target_ids(self, line: int) -> NDArray[Any]:
        """Ids of a target line, without begin and end."""
        return self.target.line_ids(line)

    def source_text(self, line: int) -> str:
        """A source line as it was read."""
        return self.source.text(line)

    def target_text(self, line: int) -> str:
        """A target line as it was read."""
        return self.target.text(line)


def fingerprint(*parts: object) -> str:
    """SHA-256, in hex, of plain values: hashes of files, of vocabularies, settings."""
    return hashlib.sha256(json.dumps([FORMAT, *parts], sort_keys=True).encode()).hexdigest()


def _write(
    path: Path,
    pairs: Iterable[Pair],
    source_subwords: Subwords,
    target_subwords: Subwords,
    filters: Filters,
    select: Callable[[Pair], bool] | None,
    progress: Progress | None,
) -> dict[str, Any]:
    report, chosen = Report(), Filter(filters)
    with ExitStack() as stack:
        source = _SideWriter(stack, path, "source", source_subwords)
        target = _SideWriter(stack, path, "target", target_subwords)
        numbered = enumerate(pairs, start=1)
        for chunk in _chunks(numbered if select is None else ((n, pair) for n, pair in numbered if select(pair))):
            encoded = zip(
                chunk,
                source_subwords.encode_lines([pair[0] for _, pair in chunk]),
                target_subwords.encode_lines([pair[1] for _, pair in chunk]),
                strict=True,
            )
            for (number, pair), source_ids, target_ids in encoded:
                reason = chosen.reason(*pair, len(source_ids), len(target_ids))
                report.count(number, reason)
                if reason is None:
                    source.add(pair[0], source_ids)
                    target.add(pair[1], target_ids)
            source.flush()
            target.flush()
            if progress is not None:
                progress("pairs encoded", report.read)
    if not report.kept:
        raise DataError(f"no pair is left to learn from: {report}. Loosen data.filters or check the files.")
    return {
        "format": FORMAT,
        "lines": report.kept,
        "source_dtype": source.dtype,
        "target_dtype": target.dtype,
        "source_pieces": source.total,
        "target_pieces": target.total,
        "report": report.to_dict(),
    }


def _chunks(pairs: Iterable[tuple[int, Pair]]) -> Iterator[list[tuple[int, Pair]]]:
    iterator = iter(pairs)
    while chunk := list(islice(iterator, _CHUNK)):
        yield chunk


class _SideWriter:
    """Collects a chunk of lines of one side, then appends it to the four files."""

    def __init__(self, stack: ExitStack, path: Path, name: str, subwords: Subwords) -> None:
        self.dtype = "<u2" if len(subwords) <= 2**16 else "<u4"
        self.total = 0
        self._text_total = 0
        self._ids: list[int] = []
        self._texts: list[bytes] = []
        self._lengths: list[int] = []
        self._files: dict[str, BinaryIO] = {
            kind: stack.enter_context(_file(path, name, kind).open("wb")) for kind in _FILES
        }
        for kind in ("offsets", "text_offsets"):
            self._files[kind].write(np.zeros(1, "<i8").tobytes())

    def add(self, text: str, ids: Sequence[int]) -> None:
        self._ids.extend(ids)
        self._lengths.append(len(ids))
        self._texts.append(text.encode("utf-8"))

    def flush(self) -> None:
        self._files["ids"].write(np.asarray(self._ids, self.dtype).tobytes())
        self._files["text"].write(b"".join(self._texts))
        self.total = self._offsets("offsets", self._lengths, self.total)
        self._text_total = self._offsets("text_offsets", [len(text) for text in self._texts], self._text_total)
        self._ids, self._texts, self._lengths = [], [], []

    def _offsets(self, kind: str, lengths: Sequence[int], total: int) -> int:
        """Append the ends of lines of these lengths after `total`; returns the last."""
        ends = total + np.cumsum(np.asarray(lengths, "<i8"))
        self._files[kind].write(ends.astype("<i8").tobytes())
        return int(ends[-1]) if len(ends) else total


def _file(path: Path, name: str, kind: str) -> Path:
    return path / f"{name}{_FILES[kind]}"


def _mapped(path: Path, dtype: str) -> NDArray[Any]:
    # A file without a byte (every line empty) cannot be mapped.
    array = np.memmap(path, dtype, mode="r") if path.stat().st_size else np.zeros(0, dtype)
    array = np.asarray(array)  # a plain view of the mapping: slicing a memmap object is several times slower
    return array if sys.byteorder == "little" else array.astype(array.dtype.newbyteorder("="))


def _mapped_bytes(path: Path) -> mmap.mmap | bytes:
    if not path.stat().st_size:
        return b""
    with open(path, "rb") as stream:
        return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)


def _replace(part: Path, path: Path) -> None:
    """Put the directory `part` at `path`. What was there is gone only once the new one stands."""
    old = part.with_suffix(".old")
    if path.exists():
        os.rename(path, old)
    os.rename(part, path)
    shutil.rmtree(old, ignore_errors=True)
