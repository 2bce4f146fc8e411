"""Documents that are text: their encoding, plain lines, and HTML."""

from __future__ import annotations

import codecs
import html
import re
from collections.abc import Callable, Sequence

from regard.errors import TextError

from .markup import Translate, says, translate_markup

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_DECLARED = re.compile(
    rb"""\A\s*<\?xml[^>]*?encoding\s*=\s*["']([\w.:-]+)|<meta\s[^>]*?charset\s*=\s*["']?([\w.:-]+)""", re.IGNORECASE
)
_LANGUAGE = re.compile(r"""(\s(?:xml:)?lang\s*=\s*)("[^"]*"|'[^']*')""")
SHOWN = ("alt", "title", "placeholder", "aria-label", "aria-description", "label", "summary")
"""HTML's attributes that people read."""


def as_text(data: bytes, *, declares: bool = False) -> tuple[str, Callable[[str], bytes]]:
    """The document's text, and what turns a text into the same encoding again, its byte-order mark included.

    It is UTF-8, or what its byte-order mark says; with `declares` also what the document says itself. Raises TextError
    for anything else.
    """
    mark, encoding = next(((mark, name) for mark, name in _MARKS if data.startswith(mark)), (b"", "utf-8"))
    found = _DECLARED.search(data[:2048]) if declares and not mark else None
    if found:
        encoding = (found[1] or found[2]).decode("ascii")
    try:
        text = data[len(mark) :].decode(encoding)
    except LookupError:
        raise TextError(f"this document says that it is {encoding!r}, which nobody knows; convert it.") from None
    except UnicodeDecodeError as error:
        raise TextError(
            f"this document is not {encoding.upper()} (byte {error.start + len(mark):,}); convert it to UTF-8."
        ) from None
    if "\0" in text:
        raise TextError("this document has NULs, which no text has: is it UTF-16 without a mark, or no text?")
    errors = "xmlcharrefreplace" if declares else "strict"  # a mark-up has a way to write what an encoding lacks
    return text, lambda made: mark + made.encode(encoding, errors)


def translate_lines(lines: Sequence[str], translate: Translate) -> list[str]:
    """Translations of lines; what says nothing stays, and so does the space around a line."""
    wanted = [i for i, line in enumerate(lines) if says(line)]
    found = list(lines)
    for i, one in zip(wanted, translate([" ".join(lines[i].split()) for i in wanted]), strict=True):
        line = lines[i]
        ahead, behind = line[: len(line) - len(line.lstrip())], line[len(line.rstrip()) :]
        found[i] = f"{ahead}{one.text}{behind}"
    return found


def text(data: bytes, translate: Translate, to: str = "") -> bytes:
    """Plain text: each line is one text, and its end stays."""
    content, encoded = as_text(data)
    return encoded("\n".join(translate_lines(content.split("\n"), translate)))


def web_page(data: bytes, translate: Translate, to: str = "") -> bytes:
    """HTML: what stands between tags, and the attributes that people read; `to` becomes the page's language."""
    content, encoded = as_text(data, declares=True)
    [made] = translate_markup([content], translate, attributes=SHOWN)
    return encoded(with_language(made, to))


def with_language(page: str, to: str) -> str:
    """The page with the language that its first element names changed to this one, if it names any."""
    found = re.search(r"<html\b[^>]*>", page, re.IGNORECASE)
    if not found or not to:
        return page
    head = _LANGUAGE.sub(lambda each: f'{each[1]}"{html.escape(to)}"', found[0])
    return page[: found.start()] + head + page[found.end() :]
