"""Formats of a corpus's files that are more than lines: TSV, JSONL, Parquet and TMX.

Importing this adds them to `regard.text.lines.FORMATS`, where a script adds one more in the same way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from xml.parsers import expat

from regard.errors import TextError, install

from .languages import matches
from .lines import FORMATS, MAX_CHARACTERS, Format, Pair, Row, Source, check_line, iter_lines, name_of, open_bytes

_NAME_THEM = "Name those to be read in data.fields."
_BATCH = 1024  # rows of a Parquet file that are in memory at a time


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


# -- formats -----------------------------------------------------------------------------------------------------------


def _read_tsv(source: Source, names: Sequence[str]) -> Iterator[Row]:
    # Each column may be as long as a line may be elsewhere.
    for number, line in enumerate(iter_lines(source, max_characters=2 * MAX_CHARACTERS + 1), start=1):
        columns = line.split("\t")
        if len(columns) != 2:
            raise TextError(
                f"{name_of(source)}: line {number} has {len(columns)} tab-separated columns; exactly two are read, "
                "source and target: leave out lines without a tab, cut off more (`cut -f1,2`), or use .jsonl."
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
            where = f"{name}: line {self._parser.CurrentLineNumber}, column {self._parser.CurrentColumnNumber + 1}"
            what = expat.ErrorString(error.code) if isinstance(error, expat.ExpatError) else str(error)
            raise TextError(f"{where}: not TMX that can be read ({what}); mend it or export it again.") from None
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


FORMATS.update(
    tsv=Format(("tsv",), _read_tsv),
    jsonl=Format(("jsonl",), _read_jsonl, named_by="fields"),
    parquet=Format(("parquet",), _read_parquet, named_by="fields"),
    tmx=Format(("tmx",), _read_tmx, named_by="languages"),
)
