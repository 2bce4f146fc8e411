"""Lines of text from and to files: UTF-8, one segment a line, "\\n" the only separator; and a tag before a line.

What is compressed by gzip or zstd is seen by its first bytes.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import groupby, zip_longest
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

from regard.errors import TextError, install

MAX_CHARACTERS = 50_000

Source = str | os.PathLike[str] | BinaryIO
"""A file's path, or a binary stream."""

REFUSED: dict[type[OSError], tuple[str, str]] = {  # what is wrong with a file, and the way out
    FileNotFoundError: ("there is no such file", "check the path"),
    IsADirectoryError: ("this is a directory", "name a file in it"),
    PermissionError: ("this file may not be read", "check its permissions"),
}
_NOT_IN_A_LINE = {
    "\0": ("a NUL (U+0000)", "text has none: is it a binary file, or UTF-16? Remove it or convert the file."),
    "\n": ("a line break", "a line is one segment of text: remove it, or split the line there."),
}


def read_lines(source: Source, *, max_characters: int = MAX_CHARACTERS, allow_empty: bool = False) -> list[str]:
    """All lines of a file or a binary stream, without their separators. See `iter_lines`."""
    return list(iter_lines(source, max_characters=max_characters, allow_empty=allow_empty))


def iter_lines(source: Source, *, max_characters: int = MAX_CHARACTERS, allow_empty: bool = False) -> Iterator[str]:
    """The lines of a file or a binary stream, one at a time, whatever its size.

    Only "\\n" separates lines, so U+2028, U+0085 and form feeds stay inside theirs. One "\\r" before it and a
    byte-order mark at the start are dropped. Raises TextError, naming file and line, for a missing file, bytes that
    are not UTF-8, a NUL, a line over `max_characters`, and a file without any line (unless `allow_empty`).
    """
    name = name_of(source)
    number = 0
    limit = 4 * max_characters + 3  # so that one endless line cannot fill the memory
    with open_bytes(source) as stream:
        for number, raw in enumerate(iter(lambda: stream.readline(limit), b""), start=1):
            try:
                if len(raw) == limit and not raw.endswith(b"\n"):
                    raise _too_long(f"more than {max_characters:,}", max_characters)
                line = _usable(_decoded(raw, number), max_characters)
            except TextError as error:
                raise TextError(f"{name}: line {number} {error}") from None
            yield line
    if number == 0 and not allow_empty:
        raise TextError(f"{name}: the file is empty; at least one line of text is needed.")


def check_line(line: str, where: str, max_characters: int = MAX_CHARACTERS) -> str:
    """The line itself, if it can be used as one segment of text; `where` names it in the error, like "line 7".

    Raises TextError for a NUL, a line break, half of a surrogate pair and more than `max_characters`.
    """
    try:
        if not line.isascii():
            line.encode("utf-8")
        return _usable(line, max_characters)
    except UnicodeEncodeError as error:
        raise TextError(
            f"{where} contains {line[error.start]!r} at character {error.start + 1}, half of a surrogate pair, "
            "which is no character; remove it."
        ) from None
    except TextError as error:
        raise TextError(f"{where} {error}") from None


def _usable(line: str, max_characters: int) -> str:
    if "\0" in line or "\n" in line:
        for character, (what, way_out) in _NOT_IN_A_LINE.items():
            if character in line:
                raise TextError(f"contains {what} at character {line.index(character) + 1}; {way_out}")
    if len(line) > max_characters:
        raise _too_long(f"{len(line):,}", max_characters)
    return line


def _too_long(found: str, limit: int) -> TextError:
    return TextError(
        f"has {found} characters; at most {limit:,} are allowed in one line: "
        "split it into sentences, one a line, or remove it."
    )


def _decoded(raw: bytes, number: int) -> str:
    if number == 1:
        if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise TextError(
                f"starts with the byte-order mark of UTF-16 (0x{raw[0]:02X} 0x{raw[1]:02X}); "
                "only UTF-8 is read: convert it with `iconv -f UTF-16 -t UTF-8`."
            )
        raw = raw.removeprefix(b"\xef\xbb\xbf")
    try:
        return raw.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        raise TextError(
            f"is not UTF-8: byte 0x{raw[error.start]:02X} at position {error.start + 1} "
            "of the line; convert the file, for example with `iconv -f WINDOWS-1252 -t UTF-8`."
        ) from None


def references_of(pairs: Iterable[tuple[str, str]]) -> tuple[list[str], list[list[str]]]:
    """Sources, and sets of references (set, then line): pairs in a row with one source are its several references.

    A line that has fewer than another has its first one again in the sets behind.
    """
    grouped = [(source, [target for _, target in group]) for source, group in groupby(pairs, key=lambda pair: pair[0])]
    rights = [right for _, right in grouped]
    most = max(map(len, rights), default=0)
    sets = [[right[number] if number < len(right) else right[0] for right in rights] for number in range(most)]
    return [source for source, _ in grouped], sets


def write_lines(path: str | os.PathLike[str], lines: Iterable[str]) -> int:
    """Write lines as UTF-8, each ended by "\\n"; the file appears only when whole. Returns how many.

    What a link points to is replaced, not the link; what is no regular file (a device, a pipe) is written into.
    A name that ends in a suffix of `COMPRESSIONS` is compressed so. Raises TextError for a line that holds "\\n"
    itself, since it would be read back as two.
    """
    path = Path(path)
    real = None if path.exists() and not path.is_file() else Path(os.path.realpath(path))
    part = real.with_name(real.name + ".part") if real else path
    known, count = COMPRESSIONS.get(path.suffix), 0
    try:
        with open(part, "wb") as raw, known.open(raw, "wb", str(path)) if known else nullcontext(raw) as stream:
            for count, line in enumerate(lines, start=1):
                stream.write(check_line(line, f"{path}: line {count}", sys.maxsize).encode() + b"\n")
        if real:
            os.replace(part, real)
    finally:
        if real:
            part.unlink(missing_ok=True)
    return count


# -- files and compression ---------------------------------------------------------------------------------------------


@contextmanager
def _gzip(raw: BinaryIO, mode: str, name: str) -> Iterator[BinaryIO]:
    try:
        # No time stamp and no name inside: equal lines give equal files.
        with gzip.GzipFile(filename="", fileobj=raw, mode=mode, mtime=0) as stream:
            yield stream  # type: ignore[misc]  # typeshed's GzipFile is no BinaryIO, though it has all of its methods
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise TextError(f"{name}: the gzip data is damaged or cut short ({error}); fetch it again.") from None


@contextmanager
def _zstd(raw: BinaryIO, mode: str, name: str) -> Iterator[BinaryIO]:
    try:
        from compression import zstd  # Python 3.14
    except ImportError:
        try:
            from backports import zstd
        except ImportError:
            raise TextError(f"{name}: reading zstd needs the package backports.zstd: {install('zstd')}.") from None
    try:
        with zstd.ZstdFile(raw, mode) as stream:
            yield stream
    except (zstd.ZstdError, EOFError) as error:
        raise TextError(f"{name}: the zstd data is damaged or cut short ({error}); fetch it again.") from None


class Compression(NamedTuple):
    """A way of compressing files."""

    name: str
    magic: bytes
    """With which such a file begins, whatever it is called."""
    open: Callable[[BinaryIO, str, str], AbstractContextManager[BinaryIO]]
    """A file, "rb" or "wb" and the file's name for messages -> its uncompressed stream."""


COMPRESSIONS = {".gz": Compression("gzip", b"\x1f\x8b", _gzip), ".zst": Compression("zstd", b"\x28\xb5\x2f\xfd", _zstd)}
"""By the suffix that is written so."""


def name_of(source: Source) -> str:
    """How messages call a file or a stream."""
    if isinstance(source, (str, os.PathLike)):
        return os.fspath(source)
    name = getattr(source, "name", None)
    return name if isinstance(name, str) else "standard input"


@contextmanager
def open_bytes(source: Source) -> Iterator[BinaryIO]:
    """The bytes of a file, uncompressed; a stream as it is. Raises TextError for a file that cannot be read."""
    if not isinstance(source, (str, os.PathLike)):
        yield source
        return
    name, suffix = name_of(source), Path(source).suffix
    try:
        raw = open(source, "rb")  # noqa: SIM115  (closed below, whichever stream wraps it)
    except tuple(REFUSED) as error:
        raise TextError(f"{name}: {'; '.join(REFUSED[type(error)])}.") from None
    with raw:
        start = raw.peek(4)
        if found := next((known for known in COMPRESSIONS.values() if start.startswith(known.magic)), None):
            # BufferedReader: line by line straight from GzipFile is many times slower.
            with found.open(raw, "rb", name) as unpacked:
                yield io.BufferedReader(unpacked, 1 << 18)  # type: ignore[type-var]  # it has all that is read with
        elif start and (named := COMPRESSIONS.get(suffix)):
            raise TextError(f"{name}: it is named {suffix} but is not {named.name} data; rename it or fetch it again.")
        else:
            yield raw


# -- formats of a corpus's files ---------------------------------------------------------------------------------------

Pair = tuple[str, str]
Row = Sequence[str]
"""The texts that were asked for by their names: source and target of a pair, or one text."""
FIELDS = ("source", "target")


@dataclass(frozen=True)
class Format:
    """All that the rest of the program needs to know of a format."""

    suffixes: tuple[str, ...]  # of its files, without a dot and without that of a compression; none: any other file
    read: Callable[[Source, Sequence[str]], Iterable[Row]]
    """A file and the names of the texts that are wanted, to rows of these texts. Raises TextError, naming the place."""
    named_by: Literal["", "fields", "languages"] = ""
    """What names a row's texts: `data.fields`, the codes of the two languages, or nothing but their order."""
    both: bool = True  # whether one file holds both sides of its pairs


FORMATS: dict[str, Format] = {
    "lines": Format((), lambda source, names: ((line,) for line in iter_lines(source)), both=False)
}
"""By name; `regard.text.formats` adds all but lines, and a user's own script may add to it, such as
`FORMATS["csv"] = Format(("csv",), lambda file, names: csv.reader(open(file)))`."""


def read_pairs(
    source: Source, target: Source | None = None, *, fields: Sequence[str] = FIELDS, languages: Sequence[str] = ("", "")
) -> Iterator[Pair]:
    """(source, target) lines of two files of equal length, or of one file that holds both; one pair at a time.

    `fields` names the two in formats with named fields, `languages` in those that tell texts by their language.
    Unequal line counts show, and raise a TextError with both counts, at the shorter file's end.
    """
    if target is not None:
        yield from _two_files(source, target)
        return
    name = name_of(source)
    if not holds_both(name):
        known = ", ".join(f".{suffix}" for kind in FORMATS.values() if kind.both for suffix in kind.suffixes)
        raise TextError(
            f"{name}: one file holds both sides only as {known} (of those made of lines with "
            f"{' or '.join(COMPRESSIONS)} too); rename it, or give the target's file beside the source's."
        )
    for row in _rows(source, fields, languages, 2):
        yield row[0], row[1]


def read_texts(source: Source, *, fields: Sequence[str] = ("text",), language: str = "") -> Iterator[str]:
    """The texts of one side in a file of any format: of one named field, or of one language."""
    if format_of(name_of(source)).named_by == "":
        yield from iter_lines(source)
        return
    for [text] in _rows(source, fields if len(fields) == 1 else ("text",), (language,), 1):
        yield text


def read_labelled(source: Source) -> Iterator[Pair]:
    """(text, label) of each line "label text"; raises TextError, naming the line, where either is missing."""
    for number, line in enumerate(iter_lines(source), start=1):
        label, space, text = line.partition(" ")
        if not (label and space and text.strip()):
            raise TextError(
                f"{name_of(source)}: line {number} ({line[:40]!r}) is not a label, a space and a text; write one so, "
                "or give texts and labels in two files."
            )
        yield text, label


def format_of(name: str) -> Format:
    """The format of a file of this name: by its suffix, lines if no format has it."""
    for suffix in COMPRESSIONS:
        name = name.removesuffix(suffix)
    suffix = name.rpartition(".")[2].lower()
    return next((known for known in FORMATS.values() if suffix in known.suffixes), FORMATS["lines"])


def holds_both(name: str) -> bool:
    """Whether a file of this name has both sides of its pairs in it."""
    return format_of(name).both


def _rows(source: Source, fields: Sequence[str], languages: Sequence[str], count: int) -> Iterator[Row]:
    """The rows of a file with one name or two names of texts, each text checked."""
    name = name_of(source)
    known = format_of(name)
    wanted = languages if known.named_by == "languages" else fields
    if known.named_by and (len(wanted) != count or not all(wanted)):
        key = "data.source_language and data.target_language" if known.named_by == "languages" else "data.fields"
        raise TextError(f"{name}: which of its texts are to be read is not said; name {count} of them by {key}.")
    for number, row in enumerate(known.read(source, wanted), start=1):
        if len(row) != count or not all(isinstance(text, str) for text in row):
            raise TextError(f"{name}: row {number} is {row!r:.60}, and {count} texts are read of each row.")
        for text in row:
            check_line(text, f"{name}: row {number}")
        yield row


def _two_files(source: Source, target: Source) -> Iterator[Pair]:
    sides = iter_lines(source), iter_lines(target)
    for number, (one, other) in enumerate(zip_longest(*sides)):
        if one is None or other is None:
            longer = number + 1 + sum(1 for side in sides for _ in side)
            counts = (number, longer) if one is None else (longer, number)
            raise TextError(
                f"{name_of(source)} has {counts[0]:,} lines but {name_of(target)} has {counts[1]:,}; line n of one "
                "must translate line n of the other: find the first line out of step, or fetch the pair again."
            )
        yield one, other


# -- the tag that tells a multilingual model which language to write: `<2de> Good morning.` ----------------------------

_ANY_CODE = re.compile(r"[A-Za-z]{2,8}(?:[-_][A-Za-z0-9]{1,8})*")
_CODE = re.compile(r"[a-z]{2,3}(?:-[A-Za-z0-9]{2,8})*")
_TAG = re.compile(rf"<2({_CODE.pattern})> ?")


def is_code(code: str) -> bool:
    """Whether this has the form of a language code: letters, and parts behind hyphens."""
    return _ANY_CODE.fullmatch(code) is not None


def tag(code: str) -> str:
    """The tag that asks for a target language: "de" gives "<2de>". Raises TextError for what is no language code."""
    if not _CODE.fullmatch(code):
        raise TextError(f"{code!r} is not a language code; use one like 'de', 'zh' or 'zh-Hant'.")
    return f"<2{code}>"


def split_tag(line: str) -> tuple[str | None, str]:
    """(code, rest) of a tagged line, without the space after the tag; (None, line) of any other line."""
    found = _TAG.match(line)
    return (found.group(1), line[found.end() :]) if found else (None, line)
