"""EPUB: a book's chapters are pages of HTML; its contents (NCX) and its title are translated too."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable

from regard.errors import TextError

from .markup import Translate, translate_markup
from .packed import MOST_TEXT, repacked
from .plain import SHOWN, as_text, with_language

_PAGES = (".xhtml", ".html", ".htm")
_OPF_TEXT = re.compile(r"(<dc:(?:title|description|subject)\b[^>]*>)([^<]*)(</dc:)")
_OPF_LANGUAGE = re.compile(r"(<dc:language\b[^>]*>)[^<]*(</dc:language>)")
_NCX_TEXT = re.compile(r"(<(?:\w+:)?text\b[^>]*>)([^<]*)(</(?:\w+:)?text>)")


def epub(data: bytes, translate: Translate, to: str = "") -> bytes:
    """A book of the same parts: pages, contents and title translated, `to` written as its language."""
    texts: dict[str, tuple[str, Callable[[str], bytes]]] = {}
    with zipfile.ZipFile(io.BytesIO(data)) as packed:
        wanted = [part for part in packed.infolist() if part.filename.lower().endswith((*_PAGES, ".ncx", ".opf"))]
        if sum(part.file_size for part in wanted) > MOST_TEXT:
            raise TextError(f"this book has more than {MOST_TEXT:,} bytes of text; cut it into several.")
        for part in wanted:
            texts[part.filename] = as_text(packed.read(part), declares=True)
    pages = {name: text for name, (text, _) in texts.items() if name.lower().endswith(_PAGES)}
    others = {name: text for name, (text, _) in texts.items() if name not in pages}
    pieces = [found[2] for text in others.values() for found in _named(text)]
    # Pages and pieces go together, so that all lines of the book are one batch.
    made = translate_markup([*pages.values(), *(f"<p>{piece}</p>" for piece in pieces)], translate, attributes=SHOWN)
    changed = {name: with_language(page, to) for name, page in zip(pages, made, strict=False)}
    rest = iter(made[len(pages) :])
    for name, text in others.items():
        changed[name] = _with(text, [next(rest).removeprefix("<p>").removesuffix("</p>") for _ in _named(text)], to)
    return repacked(data, {name: texts[name][1](text) for name, text in changed.items()})


def _named(text: str) -> list[re.Match[str]]:
    return sorted([*_OPF_TEXT.finditer(text), *_NCX_TEXT.finditer(text)], key=lambda found: found.start())


def _with(text: str, pieces: list[str], to: str) -> str:
    out, at = list[str](), 0
    for found, piece in zip(_named(text), pieces, strict=True):
        out += [text[at : found.start(2)], piece]
        at = found.end(2)
    made = "".join([*out, text[at:]])
    return _OPF_LANGUAGE.sub(lambda found: f"{found[1]}{to}{found[2]}", made) if to else made
