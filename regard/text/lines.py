"""Lines of text from and to files: UTF-8, one segment a line, "\\n" the only separator; gzip is seen by itself."""

from __future__ import annotations

import gzip
import io
import json
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from regard.errors import TextError

__all__ = [
    "MAX_CHARACTERS",
    "holds_both",
    "iter_lines",
    "read_labelled",
    "read_lines",
    "read_pairs",
    "references_of",
    "write_lines",
]

MAX_CHARACTERS = 50_000

Source = str | os.PathLike[str] | BinaryIO


def read_lines(source: Source, *, max_characters: int = MAX_CHARACTERS, allow_empty: bool = False) -> list[str]:
    """All lines of a file or a binary stream, without their separators. See `iter_lines`."""
    return list(iter_lines(source, max_characters=max_characters, allow_empty=allow_empty))


def iter_lines(source: Source, *, max_characters: int = MAX_CHARACTERS, allow_empty: bool = False) -> Iterator[str]:
    """The lines of a file or a binary stream, one at a time, whatever its size.

    Only "\\n" separates lines, so U+2028, U+0085 and form feeds stay inside theirs. One "\\r" before it and a
    byte-order mark at the start are dropped. Raises TextError, naming file and line, for a missing file, bytes that
    are not UTF-8, a NUL, a line over `max_characters`, and a file without any line (unless `allow_empty`).
    """
    name = _name(source)
    number = 0
    with _opened(source, name) as stream, _gzip_errors(name):
        for number, raw in enumerate(_raw_lines(stream, name, 4 * max_characters + 3), start=1):
            yield _decoded(raw, name, number, max_characters)
    if number == 0 and not allow_empty:
        raise TextError(f"{name}: the file is empty; at least one line of text is needed.")


def read_pairs(
    source: Source,
    target: Source | None = None,
    *,
    fields: tuple[str, str] = ("source", "target"),
    max_characters: int = MAX_CHARACTERS,
) -> Iterator[tuple[str, str]]:
    """(source, target) lines of two files of equal length, or of one `.tsv` (two columns) or `.jsonl` (two `fields`).

    In `.jsonl` either may be a list of texts, whose white space counts as spaces: those of a source are the sentences
    of one line, and each of a target makes a pair.

    Pairs come one at a time; unequal line counts show, and raise a TextError with both counts, at the shorter file's
    end.
    """
    if target is not None:
        return _two_files(source, target, max_characters)
    name = _name(source)
    kind = _kind(name)
    if kind == "tsv":
        # Each column may be as long as a line may be elsewhere.
        return _columns(iter_lines(source, max_characters=2 * max_characters + 1), name, max_characters)
    if kind == "jsonl":
        return _records(iter_lines(source, max_characters=12 * max_characters + 1000), name, fields, max_characters)
    raise TextError(
        f"{name}: one file holds both sides only as .tsv or .jsonl (or these with .gz); "
        "rename it, or give the target's file beside the source's."
    )


def holds_both(name: str) -> bool:
    """Whether a file of this name has both sides of its pairs in it: `.tsv` or `.jsonl`, or these with `.gz`."""
    return _kind(name) in ("tsv", "jsonl")


def _kind(name: str) -> str:
    return name.removesuffix(".gz").rpartition(".")[2].lower()


def references_of(pairs: Iterable[tuple[str, str]]) -> tuple[list[str], list[list[str]]]:
    """Sources, and sets of references (set, then line): pairs in a row with one source are its several references.

    A line that has fewer than another has its first one again in the sets behind.
    """
    sources: list[str] = []
    rights: list[list[str]] = []
    for source, target in pairs:
        if not sources or source != sources[-1]:
            sources.append(source)
            rights.append([])
        rights[-1].append(target)
    most = max(map(len, rights), default=0)
    return sources, [[right[number] if number < len(right) else right[0] for right in rights] for number in range(most)]


def read_labelled(source: Source) -> Iterator[tuple[str, str]]:
    """(text, label) of each line "label text"; raises TextError, naming the line, where either is missing."""
    for number, line in enumerate(iter_lines(source), start=1):
        label, space, text = line.partition(" ")
        if not (label and space and text.strip()):
            raise TextError(
                f"{_name(source)}: line {number} ({line[:40]!r}) is not a label, a space and a text; write one so, "
                "or give texts and labels in two files."
            )
        yield text, label


def write_lines(path: str | os.PathLike[str], lines: Iterable[str]) -> int:
    """Write lines as UTF-8, each ended by "\\n"; the file appears only when whole. Returns how many.

    Raises TextError for a line that holds "\\n" itself, since it would be read back as two.
    """
    path = Path(path)
    part = path.with_name(path.name + ".part")
    count = 0
    try:
        with _writer(part, compressed=path.suffix == ".gz") as stream:
            for count, line in enumerate(lines, start=1):
                stream.write(_encoded(line, path, count))
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return count


def _encoded(line: str, path: Path, number: int) -> bytes:
    if "\n" in line:
        raise TextError(
            f"{path}: line {number} contains a line break ({line[:40]!r}); a line is one segment: "
            "replace it with a space."
        )
    try:
        return line.encode("utf-8") + b"\n"
    except UnicodeEncodeError as error:
        raise TextError(
            f"{path}: line {number} contains {line[error.start]!r}, half of a surrogate pair, "
            "which UTF-8 cannot hold; remove it."
        ) from None


@contextmanager
def _writer(path: Path, *, compressed: bool) -> Iterator[Any]:
    with open(path, "wb") as raw:
        if compressed:
            # No time stamp and no name inside: equal lines give equal files.
            with gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as stream:
                yield stream
        else:
            yield raw


def _name(source: Source) -> str:
    if isinstance(source, (str, os.PathLike)):
        return os.fspath(source)
    name = getattr(source, "name", None)
    return name if isinstance(name, str) else "standard input"


@contextmanager
def _opened(source: Source, name: str) -> Iterator[Any]:
    if not isinstance(source, (str, os.PathLike)):
        yield source
        return
    try:
        raw = open(source, "rb")  # noqa: SIM115  (closed below, whichever stream wraps it)
    except FileNotFoundError:
        raise TextError(f"{name}: there is no such file; check the path.") from None
    except IsADirectoryError:
        raise TextError(f"{name}: this is a directory; name a file in it.") from None
    except PermissionError:
        raise TextError(f"{name}: this file may not be read; check its permissions.") from None
    with raw:
        if raw.peek(2)[:2] == b"\x1f\x8b":
            # BufferedReader: line by line straight from GzipFile is many times slower.
            with gzip.GzipFile(fileobj=raw, mode="rb") as unpacked, io.BufferedReader(unpacked, 1 << 18) as stream:
                yield stream
        elif name.endswith(".gz") and raw.peek(1):
            raise TextError(f"{name}: it is named .gz but is not gzip data; rename it or fetch it again.")
        else:
            yield raw


@contextmanager
def _gzip_errors(name: str) -> Iterator[None]:
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise TextError(f"{name}: the gzip data is damaged or cut short ({error}); fetch it again.") from None


def _raw_lines(stream: Any, name: str, limit: int) -> Iterator[bytes]:
    """Lines as bytes, read with a limit so that one endless line cannot fill the memory."""
    number = 0
    while raw := stream.readline(limit):
        number += 1
        if len(raw) == limit and not raw.endswith(b"\n"):
            raise _too_long(name, number, f"more than {limit // 4:,} characters", limit // 4)
        yield raw


def _too_long(name: str, number: int, found: str, limit: int) -> TextError:
    return TextError(
        f"{name}: line {number} has {found}; at most {limit:,} are allowed in one line: "
        "split it into sentences, one a line, or remove it."
    )


def _decoded(raw: bytes, name: str, number: int, max_characters: int) -> str:
    if number == 1:
        if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise TextError(
                f"{name}: line 1 starts with the byte-order mark of UTF-16 (0x{raw[0]:02X} 0x{raw[1]:02X}); "
                "only UTF-8 is read: convert it with `iconv -f UTF-16 -t UTF-8`."
            )
        raw = raw.removeprefix(b"\xef\xbb\xbf")
    raw = raw.removesuffix(b"\n").removesuffix(b"\r")
    try:
        line = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TextError(
            f"{name}: line {number} is not UTF-8: byte 0x{raw[error.start]:02X} at position {error.start + 1} "
            "of the line; convert the file, for example with `iconv -f WINDOWS-1252 -t UTF-8`."
        ) from None
    return _checked(line, name, number, max_characters)


def _checked(line: str, name: str, number: int, max_characters: int) -> str:
    if "\0" in line:
        raise TextError(
            f"{name}: line {number} contains a NUL (U+0000) at character {line.index(chr(0)) + 1}; "
            "text has none: is it a binary file, or UTF-16? Remove it or convert the file."
        )
    if len(line) > max_characters:
        raise _too_long(name, number, f"{len(line):,} characters", max_characters)
    return line


def _two_files(source: Source, target: Source, max_characters: int) -> Iterator[tuple[str, str]]:
    sources = iter_lines(source, max_characters=max_characters)
    targets = iter_lines(target, max_characters=max_characters)
    count = 0
    while True:
        one, other = next(sources, None), next(targets, None)
        if one is None and other is None:
            return
        if one is None or other is None:
            longer = count + 1 + sum(1 for _ in (targets if one is None else sources))
            counts = (count, longer) if one is None else (longer, count)
            raise TextError(
                f"{_name(source)} has {counts[0]:,} lines but {_name(target)} has {counts[1]:,}; line n of one "
                "must translate line n of the other: find the first line out of step, or fetch the pair again."
            )
        count += 1
        yield one, other


def _columns(lines: Iterator[str], name: str, max_characters: int) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(lines, start=1):
        columns = line.split("\t")
        if len(columns) != 2:
            raise TextError(
                f"{name}: line {number} has {len(columns)} tab-separated columns; exactly two are read, "
                "source and target: cut the others off (`cut -f1,2`), or use .jsonl for text with tabs in it."
            )
        yield _checked(columns[0], name, number, max_characters), _checked(columns[1], name, number, max_characters)


def _records(
    lines: Iterator[str], name: str, fields: tuple[str, str], max_characters: int
) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            raise TextError(f"{name}: line {number} is not JSON ({error}); each line must be one object.") from None
        if not isinstance(record, dict):
            raise TextError(f"{name}: line {number} is a JSON {type(record).__name__}; each line must be one object.")
        source, targets = (_field(record, field, name, number, max_characters) for field in fields)
        for target in targets:
            yield " ".join(filter(None, source)), target


def _field(record: dict[str, Any], field: str, name: str, number: int, max_characters: int) -> list[str]:
    """The field's texts: one, or those of its list."""
    if field not in record:
        found = ", ".join(sorted(record)) or "none"
        raise TextError(f"{name}: line {number} has no field {field!r}; its fields are: {found}.")
    value = record[field]
    if value == []:
        raise TextError(f"{name}: line {number}, field {field!r} is an empty list; give a text, or leave the line out.")
    texts = [" ".join(v.split()) if isinstance(v, str) else v for v in value] if isinstance(value, list) else [value]
    for text in texts:
        if not isinstance(text, str):
            raise TextError(
                f"{name}: line {number}, field {field!r} is {type(text).__name__}, not text; write it as a string, or "
                "several in a list."
            )
        if "\n" in text:
            raise TextError(
                f"{name}: line {number}, field {field!r} contains a line break; a line is one segment: "
                "replace it with a space."
            )
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise TextError(f"{name}: line {number}, field {field!r} holds half of a surrogate pair; remove it.")
        _checked(text, name, number, max_characters)
    return texts
