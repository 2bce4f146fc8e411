"""Paragraphs of Office Open XML: runs of text, each with its own looks, translated as one text.

Word and PowerPoint keep a paragraph as runs (w:r, a:r) and what holds them (links, insertions). They become elements of
a marked-up text, whose translation says in which order they stand and what each says.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from copy import deepcopy
from typing import TYPE_CHECKING

from lxml import etree

from .markup import translate_markup

if TYPE_CHECKING:
    from lxml.etree import _Element

    from .formats import Translate

_HOLDERS = frozenset({"hyperlink", "ins", "smartTag", "sdt", "sdtContent", "fldSimple"})
_FIRST = frozenset({"pPr", "sdtPr"})
"""What a paragraph or a holder begins with, and is no text."""
_BREAKS = frozenset({"br", "tab", "cr"})
_SPACE = "{http://www.w3.org/XML/1998/namespace}space"


def translate_paragraphs(parts: Sequence[_Element], translate: Translate) -> None:
    """Translate every paragraph below these elements, in place."""
    found = []
    for paragraph in [node for part in parts for node in part.iter() if _name(node) == "p"]:
        _cut(paragraph)
        _merge(paragraph)
        kept: list[_Element] = []
        marked = _marked(paragraph, kept)
        if any(character.isalnum() for node in kept if _is_text(node) for character in _text(node)):
            found.append((paragraph, marked, kept))
    made = translate_markup([marked for _, marked, _ in found], translate, xml=True, blocks=["br"])
    for (paragraph, _, kept), text in zip(found, made, strict=True):
        _rebuild(paragraph, etree.fromstring(f"<p>{text}</p>"), kept)


def _name(node: _Element) -> str:
    return etree.QName(node).localname if isinstance(node.tag, str) else ""


def _content(run: _Element) -> list[_Element]:
    return [child for child in run if _name(child) != "rPr"]


def _is_text(run: _Element) -> bool:
    return _name(run) == "r" and all(_name(child) == "t" for child in _content(run))


def _is_break(run: _Element) -> bool:
    return (_name(run) == "r" and all(_name(child) in _BREAKS for child in _content(run))) or _name(run) == "br"


def _text(run: _Element) -> str:
    return "".join(child.text or "" for child in _content(run))


def _cut(holder: _Element) -> None:
    """Runs that hold text and breaks become runs that hold one or the other, of the same looks."""
    for node in list(holder):
        if _name(node) in _HOLDERS:
            _cut(node)
        content = _content(node) if _name(node) == "r" else []
        if not {"t"} | _BREAKS >= {_name(child) for child in content} or _is_text(node) or _is_break(node):
            continue
        for child in content[1:]:
            made = deepcopy(node)
            for old in _content(made):
                made.remove(old)
            made.append(child)
            node.addprevious(made)
        first = node.getparent()
        if first is not None:  # the runs were put in front of the first piece, which goes before them
            place = list(first).index(node) - len(content) + 1
            first.remove(node)
            first.insert(place, node)


def _merge(holder: _Element) -> None:
    """Neighbouring runs of the same looks are one: editors cut them where somebody stopped typing."""
    before = None
    for node in list(holder):
        if _name(node) in _HOLDERS:
            _merge(node)
        if before is not None and _is_text(before) and _is_text(node) and _looks(node) == _looks(before):
            _write(before, _text(before) + _text(node))
            holder.remove(node)
        else:
            before = node


def _looks(run: _Element) -> bytes:
    return b"".join(etree.tostring(child, method="c14n") for child in run if _name(child) == "rPr")


def _marked(holder: _Element, kept: list[_Element]) -> str:
    """The holder's content with an element for each run and holder in it, whose numbers `kept` knows."""
    out = []
    for node in holder:
        if _name(node) in _FIRST:
            continue
        kept.append(node)
        number = len(kept) - 1
        if _is_break(node):
            out.append(f'<br n="{number}"/>')
        elif _is_text(node):
            out.append(f'<r n="{number}">{html.escape(_text(node), quote=False)}</r>')
        elif _name(node) in _HOLDERS:
            out.append(f'<h n="{number}">{_marked(node, kept)}</h>')
        else:
            out.append(f'<x n="{number}"/>')
    return "".join(out)


def _rebuild(holder: _Element, marked: _Element, kept: Sequence[_Element]) -> None:
    """Puts the holder's runs in the order of the translation, each with its new text; space between goes to a run."""
    for node in [node for node in holder if _name(node) not in _FIRST]:
        holder.remove(node)
    ahead, last = marked.text or "", None
    for mark in marked:
        node = kept[int(mark.get("n") or 0)]
        if mark.tag == "r":
            _write(node, ahead + (mark.text or ""))
            ahead, last = "", node
        elif mark.tag == "h":
            _rebuild(node, mark, kept)
        holder.append(node)
        if last is node:
            _write(node, _text(node) + (mark.tail or ""))
        else:
            ahead += mark.tail or ""
    if ahead and last is not None:
        _write(last, _text(last) + ahead)


def _write(run: _Element, text: str) -> None:
    """A run's new text."""
    old = _content(run)
    first = old[0] if old else etree.SubElement(run, f"{{{etree.QName(run).namespace}}}t")
    for child in old[1:]:
        run.remove(child)
    first.text = text
    if "wordprocessingml" in (etree.QName(run).namespace or ""):
        first.set(_SPACE, "preserve")
