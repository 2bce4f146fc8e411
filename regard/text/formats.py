"""Formats of a corpus's files: how rows of text are read from each. One more format is one more entry in `FORMATS`.

    FORMATS["csv"] = Format(("csv",), lambda file, names: csv.reader(open(file)), named_by="")

A row holds the texts that were asked for by their names: source and target of a pair, or one text. gzip and zstd are
no formats: `regard.text.lines.COMPRESSIONS` has them for every format that is made of lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal
from xml.parsers import expat

from regard.errors import TextError, install
from regard.text.languages import matches
from regard.text.lines import COMPRESSIONS, MAX_CHARACTERS, Source, check_line, iter_lines, name_of, open_bytes

Pair = tuple[str, str]
Row = Sequence[str]

FIELDS = ("source", "target")
_NAME_THEM = "Name those to be read in data.fields."
_BATCH = 1024  # rows of a Parquet file that are in memory at a time


@dataclass(frozen=True)
class Format:
    """All that the rest of the program needs to know of a format."""

    suffixes: tuple[str, ...]  # of its files, without a dot and without that of a compression; none: any other file
    read: Callable[[Source, Sequence[str]], Iterable[Row]]
    """A file and the names of the texts that are wanted, to rows of these texts. Raises TextError, naming the place."""
    named_by: Literal["", "fields", "languages"] = ""
    """What names a row's texts: `data.fields`, the codes of the two languages, or nothing but their order."""
    both: bool = True  # whether one file holds both sides of its pairs


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


def texts_of(record: Mapping[str, object], names: Sequence[str], where: str) -> Iterator[Row]:
    """The texts of these names in a record (names with dots lead into records inside it), as rows.

    A text may be a list of texts, whose white space counts as spaces: those of the last name each make a row, so that
    a source can have several references, and those of another are the sentences of one line.
    """
    *firsts, last = (_field(record, name, where) for name in names)
    before = [" ".join(filter(None, texts)) for texts in firsts]
    for text in last:
        yield (*before, text)


def _field(record: Mapping[str, object], name: str, where: str) -> list[str]:
    """The field's texts: one, or those of its list."""
    value: object = record
    for part in [name] if name in record else name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            found = ", ".join(sorted(map(str, value))) if isinstance(value, Mapping) else ""
            raise TextError(f"{where} has no field {name!r}; its fields are: {found or 'none'}. {_NAME_THEM}")
        value = value[part]
    where = f"{where}, field {name!r}"
    many = isinstance(value, (list, tuple))
    given = list(value) if isinstance(value, (list, tuple)) else [value]
    if not given:
        raise TextError(f"{where} is an empty list; give a text, or leave the line out.")
    texts = []
    for text in given:
        if not isinstance(text, str):
            raise TextError(f"{where} is {type(text).__name__}, not text; write it as a string, or several in a list.")
        texts.append(check_line(" ".join(text.split()) if many else text, where))
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


# -- formats -----------------------------------------------------------------------------------------------------------


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
            if missing := [column for column in columns if column not in there]:
                raise TextError(f"{name} has no field {missing[0]!r}; its fields are: {', '.join(there)}. {_NAME_THEM}")
            batches = file.iter_batches(_BATCH, columns=list(dict.fromkeys(columns)))
            for number, record in enumerate((record for batch in batches for record in batch.to_pylist()), start=1):
                yield from texts_of(record, names, f"{name}: row {number}")
    except FileNotFoundError:
        raise TextError(f"{name}: there is no such file; check the path.") from None
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise TextError(f"{name}: not a whole Parquet file, behind row {number} ({error}); fetch it again.") from None


# -- TMX, the exchange format of translation memories (LISA 2005, version 1.4b) ----------------------------------------
#
# A file is read in chunks and a unit is forgotten once it is handed on, so that memory does not grow with the file.
# What an XML file could do beyond holding text is refused: entities of its own are not expanded, nothing outside of it
# is read, and no tag, attribute or text may be larger than `_LARGEST`.

_CHUNK, _DEEPEST = 1 << 16, 100
_LARGEST = 1 << 22  # bytes of a tag with its attributes, and characters of a unit
_CODES = ("bpt", "ept", "it", "ph", "ut")  # elements inside of a text that hold mark-up instead of text
_BREAK = re.compile(r"\s*[\r\n]\s*")


def _read_tmx(source: Source, languages: Sequence[str]) -> Iterator[Row]:
    """The texts in these languages of each unit that has all of them; several in the last language make several rows.

    "de" takes "de-AT" too. Raises TextError, naming line and column, for what is no XML or no safe XML, and for a file
    none of whose units has the languages.
    """
    name = name_of(source)
    units = _Units()
    found = False
    with open_bytes(source) as stream:
        more = True
        while more:
            chunk = stream.read(_CHUNK)
            more = bool(chunk)
            for unit in units.feed(chunk, name):
                *firsts, last = ([text for code, text in unit if matches(code, wanted)] for wanted in languages)
                for text in last if all(firsts) else []:
                    found = True
                    yield (*(texts[0] for texts in firsts), text)
    if not found:
        raise TextError(
            f"{name}: no unit of this file has text in {' and '.join(languages)}; its languages are: "
            f"{', '.join(sorted(units.languages)) or 'none'}. Name them in data.source_language and target_language."
        )


class _Units:
    """The units of a TMX file as it is fed to the parser, each a list of (language, text)."""

    def __init__(self) -> None:
        self.languages: set[str] = set()
        self._done: list[list[Pair]] = []
        self._unit: list[Pair] = []
        self._language = ""
        self._text: list[str] | None = None  # of the <seg> that is being read
        self._hidden = 0  # how many elements of mark-up are open inside of it
        self._size = self._depth = self._fed = 0
        self._parser = parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.EntityDeclHandler = self._refuse_entity

    def feed(self, chunk: bytes, name: str) -> list[list[Pair]]:
        """The units that more of the file makes whole; an empty chunk ends it."""
        try:
            self._parser.Parse(chunk, not chunk)
            self._fed += len(chunk)
            if self._fed - max(self._parser.CurrentByteIndex, 0) > _LARGEST:
                raise ValueError("a tag is larger than 4 MB")
        except (expat.ExpatError, ValueError) as error:
            where = f"line {self._parser.CurrentLineNumber}, column {self._parser.CurrentColumnNumber + 1}"
            what = expat.ErrorString(error.code) if isinstance(error, expat.ExpatError) else str(error)
            raise TextError(
                f"{name}: {where}: not TMX that can be read ({what}); mend it or export it again."
            ) from None
        done, self._done = self._done, []
        return done

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ValueError(f"more than {_DEEPEST} elements are nested")
        if self._text is not None:
            self._hidden += tag in _CODES or self._hidden > 0
        elif tag == "tu":
            self._unit, self._size = [], 0
        elif tag == "tuv":
            self._language = attributes.get("xml:lang", attributes.get("lang", ""))
            if len(self.languages) < 1000:
                self.languages.add(self._language)
        elif tag == "seg":
            self._text = []

    def _end(self, tag: str) -> None:
        self._depth -= 1
        self._size += 1
        if self._text is not None and tag == "seg" and not self._hidden:
            text = "".join(self._text)
            if "\n" in text or "\r" in text:
                text = _BREAK.sub(" ", text).strip()
            self._unit.append((self._language, text))
            self._text = None
        elif self._text is not None:
            self._hidden -= self._hidden > 0
        elif tag == "tu":
            self._done.append(self._unit)

    def _characters(self, text: str) -> None:
        if self._text is not None and not self._hidden:
            self._size += len(text)
            if self._size > _LARGEST:
                raise ValueError("a unit has more than 4 million characters")
            self._text.append(text)

    def _refuse_entity(self, name: str, *_: object) -> None:
        raise ValueError(f"it declares the entity {name!r}, and entities are not expanded")


FORMATS: dict[str, Format] = {
    "lines": Format((), lambda source, names: ((line,) for line in iter_lines(source)), both=False),
    "tsv": Format(("tsv",), _read_tsv),
    "jsonl": Format(("jsonl",), _read_jsonl, named_by="fields"),
    "parquet": Format(("parquet",), _read_parquet, named_by="fields"),
    "tmx": Format(("tmx",), _read_tmx, named_by="languages"),
}
"""By name; a user's own script may add to it."""
