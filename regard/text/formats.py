"""Formats of a corpus's files: how rows of text are read from each. One more format is one more entry in `FORMATS`.

    FORMATS["csv"] = Format(("csv",), lambda file, names: csv.reader(open(file)), named_by="")

A row holds the texts that were asked for by their names: source and target of a pair, or one text. gzip and zstd are
no formats: `regard.text.lines.COMPRESSIONS` has them for every format that is made of lines.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from regard.errors import TextError, install
from regard.text.lines import COMPRESSIONS, MAX_CHARACTERS, Source, check_line, iter_lines, name_of

Pair = tuple[str, str]
Row = Sequence[str]

FIELDS = ("source", "target")
_NAME_THEM = "Name those to be read in data.fields."
_BATCH = 1024
"""Rows of a Parquet file that are in memory at a time."""


@dataclass(frozen=True)
class Format:
    """All that the rest of the program needs to know of a format."""

    suffixes: tuple[str, ...]
    """Of the names of its files, without a dot and without that of a compression; none: any other file."""
    read: Callable[[Source, Sequence[str]], Iterable[Row]]
    """A file and the names of the texts that are wanted, to rows of these texts. Raises TextError, naming the place."""
    named_by: Literal["", "fields", "languages"] = ""
    """What names a row's texts: `data.fields`, the codes of the two languages, or nothing but their order."""
    both: bool = True
    """Whether one file holds both sides of its pairs."""


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
    for row in _rows(source, fields if len(fields) == 1 else ("text",), (language,), 1):
        yield row[0]


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


def texts_of(record: Mapping[str, Any], names: Sequence[str], where: str) -> Iterator[Row]:
    """The texts of these names in a record (names with dots lead into records inside it), as rows.

    A text may be a list of texts, whose white space counts as spaces: those of the last name each make a row, so that
    a source can have several references, and those of another are the sentences of one line.
    """
    *firsts, last = (_field(record, name, where) for name in names)
    before = [" ".join(filter(None, texts)) for texts in firsts]
    for text in last:
        yield (*before, text)


def _field(record: Mapping[str, Any], name: str, where: str) -> list[str]:
    """The field's texts: one, or those of its list."""
    value: Any = record
    for part in [name] if name in record else name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            found = ", ".join(sorted(map(str, value))) if isinstance(value, Mapping) else ""
            raise TextError(f"{where} has no field {name!r}; its fields are: {found or 'none'}. {_NAME_THEM}")
        value = value[part]
    if isinstance(value, (list, tuple)) and not value:
        raise TextError(f"{where}, field {name!r} is an empty list; give a text, or leave the line out.")
    many = isinstance(value, (list, tuple))
    texts = [" ".join(text.split()) if isinstance(text, str) else text for text in value] if many else [value]
    for text in texts:
        if not isinstance(text, str):
            raise TextError(
                f"{where}, field {name!r} is {type(text).__name__}, not text; write it as a string, or several in a "
                "list."
            )
        check_line(text, f"{where}, field {name!r}")
    return texts


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
    sources, targets = iter_lines(source), iter_lines(target)
    count = 0
    while True:
        one, other = next(sources, None), next(targets, None)
        if one is None and other is None:
            return
        if one is None or other is None:
            longer = count + 1 + sum(1 for _ in (targets if one is None else sources))
            counts = (count, longer) if one is None else (longer, count)
            raise TextError(
                f"{name_of(source)} has {counts[0]:,} lines but {name_of(target)} has {counts[1]:,}; line n of one "
                "must translate line n of the other: find the first line out of step, or fetch the pair again."
            )
        count += 1
        yield one, other


# -- formats -----------------------------------------------------------------------------------------------------------


def _read_lines(source: Source, names: Sequence[str]) -> Iterator[Row]:
    return ((line,) for line in iter_lines(source))


def _read_tsv(source: Source, names: Sequence[str]) -> Iterator[Row]:
    # Each column may be as long as a line may be elsewhere.
    for number, line in enumerate(iter_lines(source, max_characters=2 * MAX_CHARACTERS + 1), start=1):
        columns = line.split("\t")
        if len(columns) != 2:
            raise TextError(
                f"{name_of(source)}: line {number} has {len(columns)} tab-separated columns; exactly two are read, "
                "source and target: cut the others off (`cut -f1,2`), or use .jsonl for text with tabs in it."
            )
        yield columns


def _read_jsonl(source: Source, names: Sequence[str]) -> Iterator[Row]:
    for number, line in enumerate(iter_lines(source, max_characters=12 * MAX_CHARACTERS + 1000), start=1):
        where = f"{name_of(source)}: line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise TextError(f"{where} is not JSON ({error}); each line must be one object.") from None
        if not isinstance(record, dict):
            raise TextError(f"{where} is a JSON {type(record).__name__}; each line must be one object.")
        yield from texts_of(record, names, where)


def _read_parquet(source: Source, names: Sequence[str]) -> Iterator[Row]:
    name = name_of(source)
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise TextError(f"{name}: reading Parquet files needs the package pyarrow: {install('parquet')}.") from None
    number = 0
    try:
        with parquet.ParquetFile(source) as file:
            there = file.schema_arrow.names
            columns = [wanted if wanted in there else wanted.split(".")[0] for wanted in names]
            for column in columns:
                if column not in there:
                    raise TextError(f"{name} has no field {column!r}; its fields are: {', '.join(there)}. {_NAME_THEM}")
            batches = file.iter_batches(_BATCH, columns=list(dict.fromkeys(columns)))
            for record in (record for batch in batches for record in batch.to_pylist()):
                number += 1
                yield from texts_of(record, names, f"{name}: row {number}")
    except FileNotFoundError:
        raise TextError(f"{name}: there is no such file; check the path.") from None
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise TextError(f"{name}: not a whole Parquet file, behind row {number} ({error}); fetch it again.") from None


def _read_tmx(source: Source, names: Sequence[str]) -> Iterator[Row]:
    from regard.text.tmx import read_tmx

    return read_tmx(source, names)


FORMATS: dict[str, Format] = {
    "lines": Format((), _read_lines, both=False),
    "tsv": Format(("tsv",), _read_tsv),
    "jsonl": Format(("jsonl",), _read_jsonl, named_by="fields"),
    "parquet": Format(("parquet",), _read_parquet, named_by="fields"),
    "tmx": Format(("tmx",), _read_tmx, named_by="languages"),
}
"""By name; a user's own script may add to it."""
