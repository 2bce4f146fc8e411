"""Translation memories in TMX (LISA 2005, version 1.4b): pairs of a text and its translation, read and written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from xml.sax.saxutils import escape, quoteattr

from regard.errors import TextError
from regard.text.languages import matches
from regard.text.lines import FORMATS, Source, check_line, name_of

Pair = tuple[str, str]
"""A text and its translation."""
NO_XML = re.compile(r"[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML file may have."""


def read_tmx(path: Source, source: str, target: str) -> Iterator[Pair]:
    """The pairs of these two languages in a TMX file or a binary stream of one, in order, one at a time.

    "de" takes "de-AT" too; a unit with several translations gives several pairs; inline tags are left out, their text
    is kept; a pair with an empty side is passed over. Memory does not grow with the file. Raises TextError, naming the
    place, for what is no TMX, for entities of its own, a unit of more than 4 million characters or a side of more than
    a line may have, and for a file without a unit in both languages.
    """
    if not (source and target) or matches(source, target):
        raise TextError(f"a memory is read from one language into another, not from {source!r} into {target!r}.")
    for number, (one, other) in enumerate(FORMATS["tmx"].read(path, (source, target)), start=1):
        pair = " ".join(one.split()), " ".join(other.split())
        if all(pair):
            for text in pair:
                check_line(text, f"{name_of(path)}: pair {number}")
            yield pair


def tmx_lines(pairs: Iterable[Pair], source: str, target: str) -> Iterator[str]:
    """The lines of a TMX file of these pairs, for `write_lines`; one pair is in memory at a time.

    Languages are codes such as en or de-AT; "und" stands for one that is not known. Characters that XML cannot hold
    become U+FFFD.
    """
    source, target, program = source or "und", target or "und", quoteattr(version("regard"))
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield '<!DOCTYPE tmx SYSTEM "tmx14.dtd">'
    yield '<tmx version="1.4">'
    yield (
        f'<header creationtool="regard" creationtoolversion={program} segtype="sentence" '
        f'o-tmf="regard" adminlang="en" srclang={quoteattr(source)} datatype="plaintext" '
        f'creationdate="{datetime.now(UTC):%Y%m%dT%H%M%SZ}"/>'
    )
    yield "<body>"
    for one, other in pairs:
        yield f"<tu>{_variant(source, one)}{_variant(target, other)}</tu>"
    yield "</body>"
    yield "</tmx>"


def _variant(language: str, text: str) -> str:
    return f"<tuv xml:lang={quoteattr(language)}><seg>{escape(NO_XML.sub('�', ' '.join(text.split())))}</seg></tuv>"
