"""Paragraphs of office documents: runs of text, each with its own looks, translated as one text.

A paragraph keeps its text as runs (w:r, a:r) and what holds them (links, insertions). They become elements of a
marked-up text, whose translation says in which order they stand and what each says. What must stay together (a field
from its beginning to its end, a bookmark, the range of a comment) is put into an element of our own meanwhile.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from copy import deepcopy
from typing import TYPE_CHECKING

from lxml import etree

from .markup import Translate, translate_markup
from .tmx import NO_XML

if TYPE_CHECKING:
    from lxml.etree import _Element

_HOLDERS = frozenset({"hyperlink", "ins", "moveTo", "smartTag", "sdt", "sdtContent", "dir", "bdo", "span", "a"})
"""What holds runs. Deleted text, formulas, computed fields and pictures are no holders, and stay as they are."""
_FIRST, _LAST = frozenset({"pPr", "sdtPr", "sdtEndPr", "smartTagPr"}), frozenset({"endParaRPr"})
"""What a paragraph or a holder begins and ends with, and is no text."""
_BREAKS = frozenset({"br", "tab", "cr", "ptab", "line-break"})
_GONE = frozenset({"proofErr", "lastRenderedPageBreak", "softHyphen"})
"""What an editor makes anew, or what belongs to the words of the source."""
_RANGES = {f"{kind}Start": f"{kind}End" for kind in ("bookmark", "commentRange", "permRange", "perm")}
_TOGETHER, _HEAD, _TAIL = "regard-together", "regard-head", "regard-tail"
_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
_HUGE = etree.XMLParser(huge_tree=True)
_SAME_LOOKS = frozenset({"lang", "noProof"})
"""What tells an editor of a run, and no reader."""


def translate_paragraphs(parts: Sequence[_Element], translate: Translate) -> None:
    """Translate every paragraph below these elements, in place: elements named p and h, of any namespace."""
    found = []
    for paragraph in [node for part in parts for node in part.iter() if name_of(node) in ("p", "h")]:
        _cut(paragraph)
        _group(paragraph)
        _merge(paragraph)
        kept: list[_Element] = []
        found.append((paragraph, _marked(paragraph, kept), kept))
    made = translate_markup([marked for _, marked, _ in found], translate, xml=True, blocks=["br"])
    for (paragraph, marked, kept), text in zip(found, made, strict=True):
        if text != marked:
            _rebuild(
                paragraph, etree.fromstring(f"<p>{NO_XML.sub('', text)}</p>", etree.XMLParser(huge_tree=True)), kept
            )
        _ungroup(paragraph)


def name_of(node: _Element) -> str:
    """An element's name without its namespace; empty for a comment."""
    return etree.QName(node).localname if isinstance(node.tag, str) else ""


def _content(run: _Element) -> list[_Element]:
    return [child for child in run if name_of(child) != "rPr"]


def _is_text(run: _Element) -> bool:
    return name_of(run) == "r" and all(name_of(child) == "t" for child in _content(run))


def _is_break(run: _Element) -> bool:
    name = name_of(run)
    return name in _BREAKS or (name == "r" and all(name_of(child) in _BREAKS for child in _content(run)))


def _text(run: _Element) -> str:
    return "".join(child.text or "" for child in _content(run))


# -- before ------------------------------------------------------------------------------------------------------------


def _cut(holder: _Element) -> None:
    """A run that holds text and other things becomes a run for each, of the same looks."""
    for node in list(holder):
        name = name_of(node)
        if name in _GONE:
            holder.remove(node)
        elif name in _HOLDERS:
            _cut(node)
        elif name == "r":
            for child in _content(node):
                if name_of(child) in _GONE:
                    node.remove(child)
                elif name_of(child) == "noBreakHyphen":
                    child.tag = f"{{{etree.QName(child).namespace}}}t"
                    child.text = "\u2011"
            content = _content(node)
            if not _is_text(node):
                looks = [child for child in node if name_of(child) == "rPr"]
                for child in content[:-1]:
                    made = etree.Element(node.tag, dict(node.attrib), node.nsmap)
                    made.extend(deepcopy(look) for look in looks)
                    made.append(child)
                    node.addprevious(made)


def _group(holder: _Element) -> None:
    """What begins and ends among these siblings goes into one element, so that its ends stay around it."""
    nodes, at = list(holder), 0
    for node in nodes:
        if name_of(node) in _HOLDERS:
            _group(node)
    marks = [_field_mark(node) for node in nodes]
    fields, ranges = _fields(marks), _ranges(nodes)
    while at < len(nodes):
        end, head = at, 1
        if at in fields:
            end = fields[at]
            head = _shown_from(nodes[at:end], marks[at:end])
        elif ranges.get(at, at) > at:
            end = ranges[at]
        if end > at:
            _put_together(nodes[at : end + 1], head)
        at = end + 1


def _put_together(nodes: Sequence[_Element], head: int) -> None:
    """Siblings in one element: those before number `head` are what it begins with, the last is what it ends with."""
    together = etree.Element(_TOGETHER)
    nodes[0].addprevious(together)
    before, behind = etree.SubElement(together, _HEAD), etree.Element(_TAIL)
    for number, node in enumerate(nodes):
        (before if number < head else behind if number == len(nodes) - 1 else together).append(node)
    together.append(behind)
    _group(together)


def _fields(marks: Sequence[str]) -> dict[int, int]:
    """Of each field that begins and ends here, by their marks, where: number to number."""
    found, open_ = dict[int, int](), list[int]()
    for number, mark in enumerate(marks):
        if mark == "begin":
            open_.append(number)
        elif mark == "end" and open_:
            found[open_.pop()] = number
    return found


def _shown_from(nodes: Sequence[_Element], marks: Sequence[str]) -> int:
    """Where the text of a field begins that is the writer's, a link's; behind all of it where Word computes it."""
    depth, code = 0, ""
    for number, (node, mark) in enumerate(zip(nodes, marks, strict=True)):
        depth += (mark == "begin") - (mark == "end")
        if depth == 1 and mark == "separate":
            return number + 1 if code.split()[:1] == ["HYPERLINK"] else len(nodes)
        code += "".join(child.text or "" for child in node if name_of(child) == "instrText")
    return len(nodes)


def _ranges(nodes: Sequence[_Element]) -> dict[int, int]:
    """Of each bookmark or range that begins here, where it ends, if it does so here."""
    ends = {(name_of(node), _identity(node)): number for number, node in enumerate(nodes)}
    starts = ((number, _RANGES.get(name_of(node)), node) for number, node in enumerate(nodes))
    found = {number: ends.get((end, _identity(node))) for number, end, node in starts if end}
    return {number: end for number, end in found.items() if end is not None}


def _field_mark(node: _Element) -> str:
    for child in node if name_of(node) == "r" else ():
        if name_of(child) == "fldChar":
            return next((value for key, value in child.attrib.items() if key.endswith("fldCharType")), "")
    return ""


def _identity(node: _Element) -> str:
    return next((value for key, value in node.attrib.items() if etree.QName(key).localname == "id"), "")


def _merge(holder: _Element) -> None:
    """Neighbouring runs of the same looks are one: editors cut them where somebody stopped typing."""
    first, looks, texts = None, b"", list[str]()
    for node in list(holder):
        if _holds(node):
            _merge(node)
        is_text = _is_text(node)
        own = _looks(node) if is_text else b""
        if first is not None and is_text and own == looks:
            texts.append(_text(node))
            holder.remove(node)
            continue
        if first is not None and len(texts) > 1:
            write(first, "".join(texts))
        first, looks, texts = (node, own, [_text(node)]) if is_text else (None, b"", [])
    if first is not None and len(texts) > 1:
        write(first, "".join(texts))


def _looks(run: _Element) -> bytes:
    kept = (look for child in run if name_of(child) == "rPr" for look in child if name_of(look) not in _SAME_LOOKS)
    named = (f"{key}={value}" for child in run if name_of(child) == "rPr" for key, value in child.attrib.items())
    plain = sorted(each for each in named if not each.startswith(("lang=", "altLang=", "dirty=", "err=")))
    return b"".join(etree.tostring(look, method="c14n") for look in kept) + "".join(plain).encode()


def _holds(node: _Element) -> bool:
    return name_of(node) in _HOLDERS or node.tag == _TOGETHER


def _is_fixed(node: _Element) -> bool:
    return name_of(node) in _FIRST or name_of(node) in _LAST or node.tag in (_HEAD, _TAIL)


def _marked(holder: _Element, kept: list[_Element]) -> str:
    """The holder's content with an element for each run and holder in it, whose numbers `kept` knows."""
    out = []
    for node in holder:
        if _is_fixed(node):
            continue
        kept.append(node)
        number = len(kept) - 1
        if _is_break(node):
            out.append(f'<br n="{number}"/>')
        elif _is_text(node):
            out.append(f'<r n="{number}">{html.escape(_text(node), quote=False)}</r>')
        elif _holds(node):
            out.append(f'<h n="{number}">{_marked(node, kept)}</h>')
        else:
            out.append(f'<x n="{number}"/>')
    return "".join(out)


# -- behind ------------------------------------------------------------------------------------------------------------


def _rebuild(holder: _Element, marked: _Element, kept: Sequence[_Element]) -> None:
    """Puts the holder's runs in the order of the translation, each with its new text; space between goes to a run."""
    last_of_all = [node for node in holder if name_of(node) in _LAST or node.tag == _TAIL]
    for node in [node for node in holder if name_of(node) not in _FIRST and node.tag != _HEAD]:
        holder.remove(node)
    ahead, last = marked.text or "", None
    for mark in marked:
        node = kept[int(mark.get("n") or 0)]
        if mark.tag == "r":
            write(node, ahead + (mark.text or ""))
            ahead, last = "", node
        elif mark.tag == "h":
            _rebuild(node, mark, kept)
        holder.append(node)
        if last is node:
            write(node, _text(node) + (mark.tail or ""))
        else:
            ahead += mark.tail or ""
    if ahead and last is not None:
        write(last, _text(last) + ahead)
    elif ahead:
        _say(holder, ahead)
    holder.extend(last_of_all)


def _say(holder: _Element, text: str) -> None:
    """A text that none of the holder's own runs says goes to the nearest run below it."""
    inner = [node for node in holder.iter() if node is not holder and _is_text(node)]
    if inner:
        write(inner[-1], _text(inner[-1]) + text)


def _ungroup(paragraph: _Element) -> None:
    for tag in (_TOGETHER, _HEAD, _TAIL):
        for made in list(paragraph.iter(tag)):
            for child in list(made):
                made.addprevious(child)
            parent = made.getparent()
            if parent is not None:
                parent.remove(made)


def write(run: _Element, text: str) -> None:
    """A run's new text."""
    old = _content(run)
    if not old and not text:
        return
    first = old[0] if old else etree.SubElement(run, etree.QName(etree.QName(run).namespace, "t"))
    for child in old[1:]:
        run.remove(child)
    first.text = text
    if "wordprocessingml" in (etree.QName(run).namespace or ""):
        first.set(_SPACE, "preserve")
