"""Packed documents of offices: ZIP files of XML parts, of which those with text are changed and all others kept.

Word, PowerPoint and Excel say of each part what it holds (`[Content_Types].xml`); OpenDocument has fixed names. A part
that is not changed comes out with the bytes that it went in with, and all parts in their order.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING

from regard.errors import TextError

from .markup import Translate

if TYPE_CHECKING:
    from lxml.etree import _Element

MOST_TEXT = 100_000_000
"""Bytes of all parts that hold text, which are in memory together."""
_WORD = tuple(
    f"wordprocessingml.{part}+xml"
    for part in ("document.main", "header", "footer", "footnotes", "endnotes", "comments")
)
_DRAWN = ("drawingml.chart+xml", "drawingml.diagramData+xml", "drawingml.diagramDrawing+xml")
WORD = (*_WORD, "ms-word.document.macroEnabled.main+xml", *_DRAWN)
POWERPOINT = ("presentationml.slide+xml", "presentationml.notesSlide+xml", *_DRAWN)
SHEETS = ("spreadsheetml.sharedStrings+xml", "spreadsheetml.worksheet+xml")
"""Ends of the content types of parts that hold text."""
_BREAK = re.compile(r"((?:_x000[dD]_)?\n|_x000[dD]_)")
_TEXT = "urn:oasis:names:tc:opendocument:xmlns:text:1.0"


def office(types: tuple[str, ...]) -> Callable[[bytes, Translate, str], bytes]:
    """How Word's or PowerPoint's documents are translated, whose parts with text have these types."""

    def work(data: bytes, translate: Translate, to: str = "") -> bytes:
        from .runs import translate_paragraphs

        roots = _roots(data, _typed(data, types))
        translate_paragraphs(list(roots.values()), translate)
        return _repacked(data, roots)

    return work


def opendocument(data: bytes, translate: Translate, to: str = "") -> bytes:
    """A text of OpenDocument: its paragraphs and headings, notes, comments, and the heads and feet of its pages."""
    from .runs import translate_paragraphs

    roots = _roots(data, ("content.xml", "styles.xml"))
    inside = [node for root in roots.values() for node in root.iter(f"{{{_TEXT}}}p", f"{{{_TEXT}}}h")]
    inside = [node for node in inside if not any(_is_deleted(above) for above in node.iterancestors())]
    for node in inside:
        _runs_of(node)
    tops = [node for node in inside if not any(above in ("p", "h") for above in _names_above(node))]
    translate_paragraphs(tops, translate)
    for node in inside:
        _text_of_runs(node)
    return _repacked(data, roots)


def excel(data: bytes, translate: Translate, to: str = "") -> bytes:
    """A workbook with the texts of its cells translated: those that are shared, and those that stand in a sheet.

    The names of a table's columns stay, since Excel takes a file for damaged whose table says otherwise than its cells.
    """
    from lxml import etree

    from .runs import name_of, translate_paragraphs

    parts = [name for name in _typed(data, SHEETS) if "sharedstrings" in name.lower() or _has_inline(data, name)]
    roots = _roots(data, parts)
    columns = _columns(data)
    cells = [node for root in roots.values() for node in root.iter() if name_of(node) in ("si", "is")]
    cells = [node for node in cells if _cell_text(node) not in columns]
    made = []
    for cell in cells:
        paragraph = etree.Element("p")
        for node in cell:
            if name_of(node) in ("t", "r"):
                paragraph.extend(_pieces(node))
        made.append(paragraph)
    before = [_said(paragraph) for paragraph in made]
    whole = etree.Element("all")
    whole.extend(made)
    translate_paragraphs([whole], translate)
    for cell, paragraph, old in zip(cells, made, before, strict=True):
        if _said(paragraph) != old:
            _write_cell(cell, paragraph)
    return _repacked(data, roots)


# -- parts -------------------------------------------------------------------------------------------------------------


def _typed(data: bytes, types: tuple[str, ...]) -> list[str]:
    """The names of the parts of these types, in the order of the package."""
    from lxml import etree

    with zipfile.ZipFile(io.BytesIO(data)) as packed:
        names = packed.namelist()
        root = _parsed(packed.read("[Content_Types].xml"))
    wanted = {
        str(node.get("PartName", "")).lstrip("/").lower()
        for node in root
        if isinstance(node.tag, str)
        and etree.QName(node).localname == "Override"
        and str(node.get("ContentType", "")).endswith(types)
    }
    return [name for name in names if name.lower() in wanted]


def _roots(data: bytes, names: Iterable[str]) -> dict[str, _Element]:
    """The parts of these names that there are, as trees. Raises TextError for more text than is taken."""
    with zipfile.ZipFile(io.BytesIO(data)) as packed:
        there = [part for part in packed.infolist() if part.filename in set(names)]
        if sum(part.file_size for part in there) > MOST_TEXT:
            raise TextError(f"this document has more than {MOST_TEXT:,} bytes of text; cut it into several.")
        return {part.filename: _parsed(packed.read(part)) for part in there}


def _parsed(content: bytes) -> _Element:
    from lxml import etree

    return etree.fromstring(content, etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False))


def _repacked(data: bytes, roots: Mapping[str, _Element]) -> bytes:
    from lxml import etree

    changed = {
        name: etree.tostring(root.getroottree(), xml_declaration=True, encoding="UTF-8", standalone=True)
        for name, root in roots.items()
    }
    return repacked(data, changed)


def repacked(data: bytes, changed: Mapping[str, bytes]) -> bytes:
    """A package with these parts in the place of those of their names; all others as they were, in their order."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as packed, zipfile.ZipFile(out, "w") as made:
        for part in packed.infolist():
            content = changed[part.filename] if part.filename in changed else packed.read(part)
            made.writestr(part, content)
        made.comment = packed.comment
    return out.getvalue()


# -- cells -------------------------------------------------------------------------------------------------------------


def _has_inline(data: bytes, name: str) -> bool:
    with zipfile.ZipFile(io.BytesIO(data)) as packed:
        return b"<is>" in packed.read(name)


def _columns(data: bytes) -> set[str]:
    """The names of the columns of a workbook's tables and pivot tables."""
    found: set[str] = set()
    for root in _roots(data, _typed(data, ("spreadsheetml.table+xml", "pivotCacheDefinition+xml"))).values():
        nodes = (node for node in root.iter() if isinstance(node.tag, str))
        found |= {_plain(str(n.get("name", ""))) for n in nodes if n.tag.endswith(("}tableColumn", "}cacheField"))}
    return found


def _plain(text: str) -> str:
    return _BREAK.sub("\n", text)


def _cell_text(cell: _Element) -> str:
    from .runs import name_of

    runs = [each for node in cell if name_of(node) in ("t", "r") for each in node.iter()]
    return _plain("".join(each.text or "" for each in runs if name_of(each) == "t"))


def _pieces(node: _Element) -> list[_Element]:
    """A text or a run of a cell as runs without line breaks, and the breaks between them, which keep their signs."""
    from lxml import etree

    from .runs import name_of

    looks = [child for child in node if name_of(child) == "rPr"]
    text = "".join(each.text or "" for each in node.iter() if name_of(each) == "t")
    found = []
    for number, piece in enumerate(_BREAK.split(text)):
        made = etree.Element("br" if number % 2 else "r")
        if number % 2:
            made.set("raw", piece.replace("\n", "n"))
        else:
            made.extend(deepcopy(look) for look in looks)
            etree.SubElement(made, "t").text = piece
        if number % 2 or piece:
            found.append(made)
    return found


def _said(paragraph: _Element) -> list[str]:
    return [_text_of(run) for run in paragraph]


def _text_of(run: _Element) -> str:
    if run.tag == "br":
        return str(run.get("raw", "")).replace("n", "\n")
    return "".join(node.text or "" for node in run.iter("t"))


def _write_cell(cell: _Element, paragraph: _Element) -> None:
    """Puts translated runs into a cell; how the source is pronounced goes."""
    from lxml import etree

    from .runs import name_of

    space = f"{{{etree.QName(cell).namespace}}}"
    rich = any(name_of(node) == "r" for node in cell)
    for node in [node for node in cell if name_of(node) in ("t", "r", "rPh", "phoneticPr")]:
        cell.remove(node)
    texts: list[tuple[list[_Element], str]] = []
    for run in paragraph:
        looks = [child for child in run if name_of(child) == "rPr"]
        if texts and (run.tag == "br" or not rich):
            texts[-1] = texts[-1][0], texts[-1][1] + _text_of(run)
        else:
            texts.append((looks, _text_of(run)))
    for number, (looks, text) in enumerate(texts):
        holder = cell
        if rich:
            holder = etree.Element(f"{space}r")
            cell.insert(number, holder)
            holder.extend(looks)
        node = etree.Element(f"{space}t")
        holder.insert(len(looks) if rich else 0, node)
        node.text = text
        if text != text.strip() or "\n" in text:
            node.set("{http://www.w3.org/XML/1998/namespace}space", "preserve")


# -- OpenDocument ------------------------------------------------------------------------------------------------------


def _is_deleted(node: _Element) -> bool:
    return str(node.tag) == f"{{{_TEXT}}}tracked-changes"


def _names_above(node: _Element) -> list[str]:
    tags = (str(above.tag) for above in node.iterancestors())
    return [tag.rpartition("}")[2] for tag in tags if tag.startswith(f"{{{_TEXT}}}")]


def _runs_of(node: _Element) -> None:
    """A paragraph's own text as runs, which are elements, so that all documents' paragraphs are alike."""
    from lxml import etree

    def run(text: str | None) -> list[_Element]:
        if not text:
            return []
        made = etree.Element("r")
        etree.SubElement(made, "t").text = text
        return [made]

    inner = list(node)
    content = run(node.text)
    node.text = None
    for child in inner:
        node.remove(child)
        tail, child.tail = child.tail, None
        if _is_space(child):
            content += run(" ")
        elif not isinstance(child.tag, str):
            content += run(tail)
            continue
        else:
            if child.tag in (f"{{{_TEXT}}}span", f"{{{_TEXT}}}a"):
                _runs_of(child)
            content.append(child)
        content += run(tail)
    node.extend(content)


def _is_space(node: _Element) -> bool:
    return str(node.tag) in (f"{{{_TEXT}}}s", f"{{{_TEXT}}}soft-page-break")


def _text_of_runs(node: _Element) -> None:
    """The opposite of `_runs_of`."""
    last = None
    for child in list(node):
        if child.tag == "r":
            text = _text_of(child)
            if last is None:
                node.text = (node.text or "") + text
            else:
                last.tail = (last.tail or "") + text
            node.remove(child)
        else:
            if child.tag in (f"{{{_TEXT}}}span", f"{{{_TEXT}}}a"):
                _text_of_runs(child)
            last = child
