"""The formats of documents that are translated as they are: `translate_document(data, ".docx", translate)`.

Of a document everything stays but its text; what is bold, linked or a field goes to the words it belongs to. Each
format is read and written by a library of that format; here is only which text is translated, and where it goes.
"""

from __future__ import annotations

import html
import io
import re
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module

from regard.errors import RegardError, TextError, install
from regard.tasks.translation import Translation

from .markup import translate_markup

Translate = Callable[[list[str]], list[Translation]]
"""Translations of lines, with their alignments."""
MOST_BYTES = 200_000_000
"""Of all that a packed document unpacks to."""
MOST_PARTS = 10_000
"""Files in a packed document."""
_DOCTYPE = re.compile(rb"<!DOCTYPE|<\0!\0D\0O\0C|\0<\0!\0D\0O\0C")


@dataclass(frozen=True)
class Format:
    """A kind of document."""

    name: str
    translate: Callable[[bytes, Translate], bytes]
    needs: tuple[str, ...] = ()
    """Modules of the extra `documents`."""
    packed: bool = False
    """Whether it is a ZIP of parts, which are looked at before any library reads them."""


def translate_document(data: bytes, suffix: str, translate: Translate) -> bytes:
    """The document with its text translated. Raises TextError for one that cannot be read, or is of no known format."""
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
        return kind.translate(data, translate)
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


# -- text --------------------------------------------------------------------------------------------------------------


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TextError(f"this document is not UTF-8 (byte {error.start:,}); convert it.") from None


def _plain(lines: Sequence[str], translate: Translate) -> list[str]:
    """Translations of lines; what has no letter or digit stays."""
    wanted = [i for i, line in enumerate(lines) if any(character.isalnum() for character in line)]
    found = list(lines)
    for i, one in zip(wanted, translate([" ".join(lines[i].split()) for i in wanted]), strict=True):
        found[i] = one.text
    return found


def _marked(lines: Sequence[str], translate: Translate, inline: Sequence[str] | None = None) -> list[str]:
    """Translations of marked-up texts: of HTML, or of XML whose inline elements are named."""

    def some(texts: list[str]) -> list[Translation]:
        wanted = [i for i, text in enumerate(texts) if any(character.isalnum() for character in text)]
        found = [Translation(text) for text in texts]
        for i, one in zip(wanted, translate([texts[i] for i in wanted]), strict=True):
            found[i] = one
        return found

    return translate_markup(lines, some, xml=inline is not None, inline=inline)


def _text(data: bytes, translate: Translate) -> bytes:
    lines = _decoded(data).split("\n")
    ends = ["\r" * line.endswith("\r") for line in lines]
    found = _plain([line.removesuffix("\r") for line in lines], translate)
    return "\n".join(map("".join, zip(found, ends, strict=True))).encode()


def _html(data: bytes, translate: Translate) -> bytes:
    return _marked([_decoded(data)], translate)[0].encode()


_INLINE = re.compile(
    r"(?P<code>`+[^`]+`+|\{\d+\}|\\.|<[^>]+>|!\[[^\]]*\]\{\d+\})|(?P<link>\[)|(?P<linked>\](?:\{\d+\}|\([^)]*\)))|(?P<star>\*\*|__|\*|(?<!\w)_|_(?!\w))"
)


def _markdown(data: bytes, translate: Translate) -> bytes:
    from translate.storage.markdown import MarkdownFile

    def read(turn: Callable[[str], str]) -> bytes:
        made = MarkdownFile(io.BytesIO(data), callback=turn, extract_code_blocks=False, extract_frontmatter=False)
        source: str = made.filesrc
        return source.encode()

    units: list[str] = []

    def collected(unit: str) -> str:
        units.append(unit)
        return unit

    read(collected)
    marked = [_tags_of(unit) for unit in units]
    found = _marked([text for text, _ in marked], translate, inline=["m"])
    made = {unit: _untagged(text, kept) for unit, text, (_, kept) in zip(units, found, marked, strict=True)}
    return read(lambda unit: made.get(unit, unit))


def _tags_of(unit: str) -> tuple[str, list[tuple[str, str]]]:
    """A piece of Markdown with its marks as elements `<m n="…">`, and what each was written as, before and behind."""
    out, kept, at = list[str](), list[tuple[str, str]](), 0
    stack: list[tuple[str, int, int]] = []  # the mark, its number, where it stands in `out`
    for found in _INLINE.finditer(unit):
        out.append(html.escape(unit[at : found.start()], quote=False))
        at, mark = found.end(), found[0]
        if found["code"]:
            kept.append((mark, ""))
            out.append(f'<m n="{len(kept) - 1}"/>')
        elif found["link"] or (found["star"] and not any(open_ == mark for open_, _, _ in stack)):
            kept.append((mark, ""))
            stack.append((mark, len(kept) - 1, len(out)))
            out.append(f'<m n="{len(kept) - 1}">')
        else:
            wanted = "[" if found["linked"] else mark
            while stack:
                opened, number, place = stack.pop()
                if opened == wanted:
                    kept[number] = (opened, mark)
                    out.append("</m>")
                    break
                out[place] = f'<m n="{number}"/>'  # it was a sign, and no mark
            else:
                kept.append((mark, ""))
                out.append(f'<m n="{len(kept) - 1}"/>')
    for _, number, place in stack:
        out[place] = f'<m n="{number}"/>'
    return "".join([*out, html.escape(unit[at:], quote=False)]), kept


def _untagged(marked: str, kept: Sequence[tuple[str, str]]) -> str:
    out, stack = [], list[str]()
    for part in re.split(r"(<[^>]*>)", marked):
        if found := re.fullmatch(r'<m n="(\d+)"(/?)>', part):
            before, behind = kept[int(found[1])]
            out.append(before)
            if not found[2]:
                stack.append(behind)
        elif part == "</m>":
            out.append(stack.pop())
        else:
            out.append(html.unescape(part))
    return "".join(out)


# -- subtitles, and what translators work with -------------------------------------------------------------------------


def _subtitles(kind: str) -> Callable[[bytes, Translate], bytes]:
    def work(data: bytes, translate: Translate) -> bytes:
        """A subtitle's lines are one text, which is given as many lines again."""
        import pysubs2

        found = pysubs2.SSAFile.from_string(_decoded(data), format_=kind)
        texts = [event.plaintext.split("\n") for event in found]
        for event, lines, text in zip(found, texts, _plain([" ".join(t) for t in texts], translate), strict=True):
            event.plaintext = "\n".join(_in_lines(text, len(lines)))
        made: str = found.to_string(kind)
        return made.encode()

    return work


def _in_lines(text: str, count: int) -> list[str]:
    """A text in about equally long lines, at most so many."""
    words = text.split(" ")
    count = min(count, len(words))
    lines: list[str] = []
    for number in range(count, 0, -1):
        room = len(" ".join(words)) / number
        line = words.pop(0)
        while len(words) >= number and (number == 1 or len(line) + 1 + len(words[0]) / 2 <= room):
            line += f" {words.pop(0)}"
        lines.append(line)
    return lines


def _units(module: str, name: str) -> Callable[[bytes, Translate], bytes]:
    def work(data: bytes, translate: Translate) -> bytes:
        """Units that have no translation yet are given one, and are marked as not yet looked at by anybody."""
        store = getattr(import_module(f"translate.storage.{module}"), name).parsestring(data)
        units = [unit for unit in store.units if unit.istranslatable() and not unit.istranslated() and str(unit.source)]
        made = _plain([str(unit.source) for unit in units], translate)
        for unit, text in zip(units, made, strict=True):
            unit.target = text
            unit.markfuzzy(True)
        return bytes(store)

    return work


# -- offices and books -------------------------------------------------------------------------------------------------


def _docx(data: bytes, translate: Translate) -> bytes:
    import docx

    from .runs import translate_paragraphs

    document = docx.Document(io.BytesIO(data))
    parts = [document.element.body]
    for section in document.sections:
        for each in (section.header, section.footer, section.first_page_header, section.first_page_footer):
            if not each.is_linked_to_previous:
                parts.append(each._element)
    translate_paragraphs(parts, translate)
    return _saved(document)


def _pptx(data: bytes, translate: Translate) -> bytes:
    import pptx

    from .runs import translate_paragraphs

    document = pptx.Presentation(io.BytesIO(data))
    parts = [slide.element for slide in document.slides]
    parts += [slide.notes_slide.element for slide in document.slides if slide.has_notes_slide]
    translate_paragraphs(parts, translate)
    return _saved(document)


def _xlsx(data: bytes, translate: Translate) -> bytes:
    import openpyxl

    book = openpyxl.load_workbook(io.BytesIO(data), rich_text=False)
    cells = [
        cell
        for sheet in book.worksheets
        for row in sheet.iter_rows()
        for cell in row
        if isinstance(cell.value, str) and cell.data_type == "s"
    ]
    lines = [str(cell.value).split("\n") for cell in cells]
    made = iter(_plain([line for each in lines for line in each], translate))
    for cell, each in zip(cells, lines, strict=True):
        cell.value = "\n".join(next(made) for _ in each)
    return _saved(book)


def _saved(document: object) -> bytes:
    out = io.BytesIO()
    document.save(out)  # type: ignore[attr-defined]  # of all three libraries
    return out.getvalue()


def _packed(ends: tuple[str, ...], inline: Sequence[str] | None = None) -> Callable[[bytes, Translate], bytes]:
    """A document whose parts with these ends are marked-up texts, of HTML or of XML whose inline elements are named.

    The others stay as they are, and so does the order of all.
    """

    def work(data: bytes, translate: Translate) -> bytes:
        out = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(data)) as packed, zipfile.ZipFile(out, "w") as made:
            for part in packed.infolist():
                content = packed.read(part)
                if part.filename.lower().endswith(ends):
                    content = _marked([_decoded(content)], translate, inline=inline)[0].encode()
                made.writestr(part, content)
        return out.getvalue()

    return work


_ODF_INLINE = [f"text:{name}" for name in ("span", "a", "s", "tab", "bookmark", "reference-mark", "soft-page-break")]
"""What stands inside of a sentence of OpenDocument; everything else ends one."""


FORMATS: dict[str, Format] = {
    ".txt": Format("plain text", _text),
    ".html": Format("HTML", _html),
    ".htm": Format("HTML", _html),
    ".md": Format("Markdown", _markdown, ("translate", "mistletoe")),
    ".srt": Format("SubRip", _subtitles("srt"), ("pysubs2",)),
    ".vtt": Format("WebVTT", _subtitles("vtt"), ("pysubs2",)),
    ".po": Format("gettext", _units("po", "pofile"), ("translate",)),
    ".xlf": Format("XLIFF", _units("xliff", "xlifffile"), ("translate", "lxml")),
    ".xliff": Format("XLIFF", _units("xliff", "xlifffile"), ("translate", "lxml")),
    ".docx": Format("Word", _docx, ("docx",), packed=True),
    ".pptx": Format("PowerPoint", _pptx, ("pptx",), packed=True),
    ".xlsx": Format("Excel", _xlsx, ("openpyxl",), packed=True),
    ".odt": Format("OpenDocument", _packed(("content.xml",), _ODF_INLINE), packed=True),
    ".epub": Format("EPUB", _packed((".xhtml", ".html", ".htm")), packed=True),
}
"""Of each ending of a file's name its format. A script may add one."""
