"""The formats of documents that are translated as they are: `translate_document(data, ".docx", translate)`.

Of a document everything stays but its text; what is bold, linked or a field goes to the words it belongs to. What text
a format has and where it goes is in the other files here: `plain`, `markdown`, `subtitles`, `units`, `packed`, `books`.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from regard.errors import RegardError, TextError, install

from . import plain
from .books import epub
from .markdown import markdown
from .markup import Translate
from .packed import POWERPOINT, WORD, excel, office, opendocument
from .subtitles import subtitles
from .units import gettext, xliff

MOST_BYTES = 200_000_000
"""Of all that a packed document unpacks to."""
MOST_PARTS = 10_000
"""Files in a packed document."""
_DOCTYPE = re.compile(rb"<!DOCTYPE|<\0!\0D\0O\0C|\0<\0!\0D\0O\0C")


@dataclass(frozen=True)
class Format:
    """A kind of document."""

    name: str
    translate: Callable[[bytes, Translate, str], bytes]
    """A document, a translator of lines and the code of the language that it writes ("" if it is not known)."""
    needs: tuple[str, ...] = ()
    """Modules of the extra `documents`."""
    packed: bool = False
    """Whether it is a ZIP of parts, which are looked at before any library reads them."""


def translate_document(data: bytes, suffix: str, translate: Translate, to: str = "") -> bytes:
    """The document with its text translated, all its lines in one call of `translate`.

    Documents that name their language name `to` afterwards, where it is given. Raises TextError for one that cannot be
    read, or is of no known format.
    """
    kind = FORMATS.get(suffix.lower())
    if kind is None:
        raise TextError(f"documents ending in {suffix!r} are not known; these are: {', '.join(FORMATS)}.")
    for module in kind.needs:
        try:
            import_module(module)
        except ModuleNotFoundError:
            raise TextError(f"{kind.name} needs {module}, which is not installed: {install('documents')}.") from None
    if kind.packed:
        _check_packed(data, kind)
    try:
        return kind.translate(data, translate, to)
    except (RegardError, MemoryError):
        raise
    except Exception as error:  # what a library says of a damaged document has no one type
        raise TextError(f"this is not a document of the kind {kind.name}, or a damaged one ({error}).") from error


def _check_packed(data: bytes, kind: Format) -> None:
    """Raises TextError for a packed document that would fill the memory, or that defines entities."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            parts = packed.infolist()
            size = sum(part.file_size for part in parts)
            if size > MOST_BYTES or len(parts) > MOST_PARTS:
                raise TextError(
                    f"this document unpacks to {size:,} bytes in {len(parts):,} parts; the most are {MOST_BYTES:,} in "
                    f"{MOST_PARTS:,}."
                )
            for part in parts:
                if part.filename.endswith((".xml", ".rels")):
                    with packed.open(part) as opened:
                        content = opened.read(MOST_BYTES)
                    if _DOCTYPE.search(content) and kind.name != "EPUB":
                        raise TextError(
                            f"{part.filename} in this document has a DOCTYPE, which no office program writes."
                        )
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError) as error:
        raise TextError(f"this is not a document of the kind {kind.name} ({error}).") from None


FORMATS: dict[str, Format] = {
    ".txt": Format("plain text", plain.text),
    ".html": Format("HTML", plain.web_page),
    ".htm": Format("HTML", plain.web_page),
    ".md": Format("Markdown", markdown, ("translate", "mistletoe")),
    ".srt": Format("SubRip", subtitles(web=False)),
    ".vtt": Format("WebVTT", subtitles(web=True)),
    ".po": Format("gettext", gettext, ("translate",)),
    ".xlf": Format("XLIFF", xliff, ("lxml",)),
    ".xliff": Format("XLIFF", xliff, ("lxml",)),
    ".docx": Format("Word", office(WORD), ("lxml",), packed=True),
    ".pptx": Format("PowerPoint", office(POWERPOINT), ("lxml",), packed=True),
    ".xlsx": Format("Excel", excel, ("lxml",), packed=True),
    ".odt": Format("OpenDocument", opendocument, ("lxml",), packed=True),
    ".epub": Format("EPUB", epub, packed=True),
}
"""Of each ending of a file's name its format. A script may add one."""
