"""TMX, the exchange format of translation memories (LISA 2005, version 1.4b), read as a stream.

A file is read in chunks and a unit is forgotten once it is handed on, so that memory does not grow with the file. What
an XML file could do beyond holding text is refused: entities of its own are not expanded, nothing outside of it is
read, and no tag, attribute or text may be larger than `_LARGEST`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from xml.parsers import expat

from regard.errors import TextError
from regard.text.languages import matches
from regard.text.lines import Source, name_of, open_bytes

_CHUNK = 1 << 16
_LARGEST = 1 << 22
"""Bytes of a tag with its attributes, and characters of a unit."""
_DEEPEST = 100
_CODES = ("bpt", "ept", "it", "ph", "ut")
"""Elements inside of a text that hold mark-up instead of text."""
_BREAK = re.compile(r"\s*[\r\n]\s*")


def read_tmx(source: Source, languages: Sequence[str]) -> Iterator[Sequence[str]]:
    """The texts in these languages of each unit that has all of them; several in the last language make several rows.

    "de" takes "de-AT" too. Raises TextError, naming line and column, for what is no XML or no safe XML, and for a file
    none of whose units has the languages.
    """
    name = name_of(source)
    units = _Units()
    found = False
    with open_bytes(source) as stream:
        while chunk := stream.read(_CHUNK):
            units.feed(chunk, name)
            for row in units.rows(languages):
                found = True
                yield row
        units.feed(b"", name)
    for row in units.rows(languages):
        found = True
        yield row
    if not found:
        raise TextError(
            f"{name}: no unit of this file has text in {' and '.join(languages)}; its languages are: "
            f"{', '.join(sorted(units.languages)) or 'none'}. Name them in data.source_language and target_language."
        )


class _Units:
    """The units of a TMX file as it is fed to the parser."""

    def __init__(self) -> None:
        self.languages: set[str] = set()
        self._done: list[list[tuple[str, str]]] = []  # units that are whole: (language, text) each
        self._unit: list[tuple[str, str]] = []
        self._language = ""
        self._text: list[str] | None = None  # of the <seg> that is being read
        self._hidden = 0  # how many elements of mark-up are open inside of it
        self._size = self._depth = 0
        self._fed = 0
        self._parser = parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.EntityDeclHandler = self._refuse_entity

    def feed(self, chunk: bytes, name: str) -> None:
        """Parse more of the file; an empty chunk ends it."""
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

    def rows(self, languages: Sequence[str]) -> Iterator[Sequence[str]]:
        """What the units that have become whole have in these languages; they are forgotten."""
        done, self._done = self._done, []
        for unit in done:
            *firsts, last = ([text for code, text in unit if matches(code, wanted)] for wanted in languages)
            if all(firsts):
                for text in last:
                    yield (*(texts[0] for texts in firsts), text)

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
