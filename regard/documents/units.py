"""What translators work with: gettext's catalogues and XLIFF. Units without a translation are given one."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from regard.errors import TextError

from .markup import Translate, says, translate_markup
from .plain import translate_lines

if TYPE_CHECKING:
    from lxml.etree import _Element

_CODE = ("bpt", "ept", "it", "ph", "x", "bx", "ex", "sc", "ec", "cp", "sm", "em")
"""XLIFF's elements inside of a text whose content is no text."""
_XML = "http://www.w3.org/XML/1998/namespace"


def gettext(data: bytes, translate: Translate, to: str = "") -> bytes:
    """A catalogue whose messages without a translation have one, marked fuzzy: nobody has looked at it yet.

    What is translated, fuzzy or obsolete stays. Of a message with a plural the first form is made of the singular, and
    all others of the plural; where the language has one form, that of the plural. Lines stay lines.
    """
    from translate.misc.multistring import multistring
    from translate.storage.po import pofile

    store = pofile.parsestring(data)  # type: ignore[no-untyped-call]  # of the toolkit
    units = [
        unit
        for unit in store.units
        if unit.istranslatable() and not unit.isobsolete() and _is_new(unit.source, unit.target)
    ]
    texts = [_forms(unit.source) for unit in units]
    lines = [text.split("\n") for forms in texts for text in forms]
    made = iter(translate_lines([line for each in lines for line in each], translate))
    written = iter(["\n".join(next(made) for _ in each) for each in lines])
    plurals = re.search(r"nplurals\s*=\s*(\d)", str(store.parseheader().get("Plural-Forms", "")))
    count = int(plurals[1]) if plurals else 2
    for unit, forms in zip(units, texts, strict=True):
        new = [next(written) for _ in forms]
        if unit.hasplural():
            new = [new[0]] * (count > 1) + [new[-1]] * max(count - 1, 1)
            unit.target = multistring(new)
        else:
            unit.target = new[0]
        unit.markfuzzy(True)
    if to and units and not store.gettargetlanguage():
        store.settargetlanguage(to)
    return bytes(store)


def _is_new(source: object, target: object) -> bool:
    """Whether a message has a text and no translation, not even an old one."""
    return not any(_forms(target)) and says(str(source))


def _forms(text: object) -> list[str]:
    """A message's singular and its plural, or all that it is."""
    return [str(form) for form in getattr(text, "strings", [text])]


def xliff(data: bytes, translate: Translate, to: str = "") -> bytes:
    """XLIFF 1.2 and 2: units without a target have one, with the source's inline elements, in a state for review.

    What has a target stays, and so does what says translate="no". Nothing else is changed.
    """
    from lxml import etree

    if b"<!DOCTYPE" in data or b"<!ENTITY" in data:
        raise TextError("this XLIFF has a DOCTYPE, whose entities are not expanded; export it without.")
    root = etree.fromstring(data, etree.XMLParser(resolve_entities=False, no_network=True, strip_cdata=False))
    if _name(root) != "xliff":
        raise TextError(f"the first element of this document is {_name(root)!r} and not xliff.")
    sources = [node for node in root.iter() if _name(node) == "source" and _is_open(node)]
    marked = [_inside(source) for source in sources]
    found = translate_markup(marked, translate, xml=True, ignored=_CODE)
    second = str(root.get("version", "1.2")).startswith("2")
    for source, before, made in zip(sources, marked, found, strict=True):
        if not says(re.sub(r"<[^>]*>", "", before)):
            continue
        _answer(source, made, second)
    if to and sources:
        for node in [root] if second else [node for node in root if _name(node) == "file"]:
            key = "trgLang" if second else "target-language"
            node.set(key, node.get(key) or to)
    return bytes(etree.tostring(root.getroottree(), xml_declaration=True, encoding="UTF-8"))


def _name(node: _Element) -> str:
    return str(node.tag).rpartition("}")[2] if isinstance(node.tag, str) else ""


def _is_open(source: _Element) -> bool:
    """Whether a source stands in a unit or a segment, waits for its target, and may be translated."""
    unit = source.getparent()
    if unit is None or _name(unit) not in ("trans-unit", "segment"):
        return False
    if any(above.get("translate") == "no" for above in source.iterancestors()):
        return False
    targets = [node for node in unit if _name(node) == "target"]
    return not any("".join(target.itertext()).strip() or len(target) for target in targets)


def _inside(node: _Element) -> str:
    """What stands in an element, as it is written."""
    from lxml import etree

    parts = [html.escape(node.text or "", quote=False)]
    for child in node:
        written = etree.tostring(child, encoding="unicode", with_tail=False)
        parts += [written, html.escape(child.tail or "", quote=False)]
    return "".join(parts)


def _answer(source: _Element, text: str, second: bool) -> None:
    from lxml import etree

    unit = source.getparent()
    if unit is None:
        return
    for old in [node for node in unit if _name(node) == "target"]:
        unit.remove(old)
    space = etree.QName(source).namespace
    declared = "".join(_declarations(source))
    made = etree.fromstring(f"<target{declared}>{text}</target>")
    made.tag = etree.QName(space, "target")
    if second:
        unit.set("state", "translated")
    else:
        made.set("state", "needs-review-translation")
    if (kept := source.get(f"{{{_XML}}}space")) is not None:
        made.set(f"{{{_XML}}}space", kept)
    behind = source
    for node in unit:
        if _name(node) == "seg-source":
            behind = node
    space_behind = behind.tail
    behind.addnext(made)  # takes the tail along
    behind.tail, made.tail = space_behind, space_behind


def _declarations(node: _Element) -> Iterator[str]:
    for prefix, space in node.nsmap.items():
        name = f":{prefix}" if prefix else ""
        yield f' xmlns{name}="{html.escape(str(space))}"'
