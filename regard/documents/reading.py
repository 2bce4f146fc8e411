"""Marked-up text into segments: text that is translated as a whole, with the elements in it; and what is between."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

VOID = frozenset("area base br col embed hr img input link meta param source track wbr".split())  # noqa: SIM905
"""HTML's elements that have no end."""
BLOCKS = frozenset(
    "address article aside blockquote body br caption center dd details dialog div dl dt fieldset figcaption figure "  # noqa: SIM905
    "footer form h1 h2 h3 h4 h5 h6 head header hr html legend li main menu nav ol optgroup option p section select "
    "summary table tbody td textarea tfoot th thead title tr ul".split()
)
"""HTML's elements that no sentence goes across."""
RAW = frozenset("script style code pre noscript svg math".split())  # noqa: SIM905
"""HTML's elements whose content is no text to translate."""
_NOT_TRANSLATED = r"""translate\s*=\s*["']?no\b|class\s*=\s*["'][^"']*\bnotranslate\b"""
_CODE = frozenset(("script", "style"))
"""HTML's elements in which nothing is a tag but their end."""
_NAME = r"<(/?)([^\W\d][^\s<>/=\"']*|[_:][^\s<>/=\"']*)"
_TAG = re.compile(_NAME + r"""((?:[^<>"']|"[^"<]*"|'[^'<]*')*+)>""")
"""A tag without < in its values, as XML has it: no text makes it look further than to the next one."""
_TAG_OF_HTML = re.compile(_NAME + r"""((?:[^<>"']|"[^"]*"|'[^']*')*+)>""")
_TAG_OF_NOBODY = re.compile(_NAME + "([^<>]*)>")
_MOST_TAG = 1000
"""Characters of a tag with < in its values."""
_MARKS = (("<!--", "-->"), ("<![CDATA[", "]]>"), ("<?", "?>"), ("<!", ">"))
_REFERENCE = re.compile(r"&(?:\w+|#\d+|#x[\da-fA-F]+);")
MOST_DEPTH = 50
"""Elements within each other; markup beyond is not nested any deeper, so that no document can exhaust the stack."""


@dataclass
class Element:
    """A tag inside of a text: which characters of the text stand in it, and the elements within it."""

    opening: str
    closing: str
    start: int
    end: int = 0
    children: list[Element] = field(default_factory=list)
    whole: bool = False
    """Whether its opening tag is all of it, content and end too: it stays as it is."""
    goes_on: bool = False
    """Whether a later segment has its end; its part there has no opening tag."""
    beside: tuple[str, str] = ("", "")
    """Of one without words: the characters in front of it and behind it."""


@dataclass
class Segment:
    """A text that is translated as a whole, with the elements that stand in it; or a piece that is kept as it is."""

    text: str = ""
    elements: list[Element] = field(default_factory=list)
    kept: str | None = None


class _Reader:
    """Cuts a document into segments: text with its inline elements, and what stands between.

    Every character of the document is read a few times at most, whatever stands in it. The standard library's reader
    of HTML takes a minute for 60 kB of tags that do not end, which nobody who serves strangers can wait for.
    """

    def __init__(self, blocks: Callable[[str], bool], ignored: Callable[[str, str], bool], xml: bool) -> None:
        self._blocks, self._ignored, self._xml = blocks, ignored, xml
        self.segments = [Segment()]
        self._open: list[tuple[str, Element]] = []
        self._inside: list[str] = []  # of an ignored element, it and what is open in it

    def feed(self, text: str) -> None:
        """Reads all of a document."""
        at, missing = 0, set[str]()
        while (start := text.find("<", at)) >= 0:
            self._say(text[at:start])
            begin, end = next((marks for marks in _MARKS if text.startswith(marks[0], start)), ("", ""))
            if begin:
                close = -1 if end in missing else text.find(end, start + len(begin))
                missing |= {end} if close < 0 else set()
                at = close + len(end) if close >= 0 else start + 1
                (self._mark if close >= 0 else self._data)(text[start:at])
            elif found := _tag_at(text, start, self._xml):
                at = self._tag(found, text)
            else:
                at = start + 1
                self._data("<")
        self._say(text[at:])

    def _tag(self, found: re.Match[str], text: str) -> int:
        """Takes a tag, and says where the text goes on behind it."""
        name = found[2] if self._xml else found[2].lower()
        if found[1]:
            self._end(found[0])
            return found.end()
        empty = found[3].endswith("/") or (not self._xml and name in VOID)
        self._start(name, found[0], empty)
        if self._xml or empty or name not in _CODE:
            return found.end()
        close = re.compile(f"</{name}", re.IGNORECASE).search(text, found.end())
        end = close.start() if close else len(text)
        self._data(text[found.end() : end])
        return end

    def _say(self, raw: str) -> None:
        """Text. The references of HTML are known in XML too, which has a few of its own."""
        if not self._inside:
            raw = _REFERENCE.sub(lambda found: html.unescape(found[0]), raw) if self._xml else html.unescape(raw)
        self._data(raw)

    def _data(self, text: str) -> None:
        if self._inside:
            self._grow(text)
        else:
            self.segments[-1].text += text

    def _start(self, tag: str, raw: str, empty: bool) -> None:
        """An ignored element stands in the text as an element without words, whole as its opening tag."""
        if self._inside:
            self._grow(raw)
            if not empty:
                self._inside.append(tag)
        elif self._ignored(tag, raw) and not empty:
            self._put(Element(raw, "", self._at, self._at, whole=True))
            self._inside.append(tag)
        elif self._blocks(tag):
            self._keep(raw)
        elif empty or len(self._open) >= MOST_DEPTH:
            self._put(Element(raw, "", self._at, self._at))
        else:
            element = Element(raw, "", self._at)
            self._put(element)
            self._open.append((tag, element))

    def _end(self, raw: str) -> None:
        found = re.match(r"</\s*([^\s>/]+)", raw)
        tag = found[1] if found else ""
        tag = tag if self._xml else tag.lower()
        if self._inside:
            self._grow(raw)
            if tag in self._inside:
                del self._inside[len(self._inside) - 1 - self._inside[::-1].index(tag) :]
        elif self._blocks(tag):
            self._keep(raw)
        elif any(name == tag for name, _ in self._open):
            while True:  # elements that were left open within it end here too
                name, element = self._open.pop()
                element.end = self._at
                if name == tag:
                    element.closing = raw
                    break
        else:
            self._put(Element(raw, "", self._at, self._at))

    def _mark(self, raw: str) -> None:
        if self._inside:
            self._grow(raw)
        else:
            self._put(Element(raw, "", self._at, self._at))

    @property
    def _at(self) -> int:
        return len(self.segments[-1].text)

    def _put(self, element: Element) -> None:
        (self._open[-1][1].children if self._open else self.segments[-1].elements).append(element)

    def _grow(self, raw: str) -> None:
        """More of an ignored element, which is the last that was put."""
        siblings = self._open[-1][1].children if self._open else self.segments[-1].elements
        siblings[-1].opening += raw

    def _keep(self, raw: str) -> None:
        """A tag that ends a segment. What is open across it goes on in the next, where its end will stand."""
        for _, element in self._open:
            element.end, element.goes_on = self._at, True
        self.segments += [Segment(kept=raw), Segment()]
        names = [name for name, _ in self._open]
        self._open.clear()
        for name in names:
            element = Element("", "", 0)
            self._put(element)
            self._open.append((name, element))

    def finish(self) -> list[Segment]:
        for _, element in self._open:
            element.end = self._at
        return self.segments


def _tag_at(text: str, start: int, xml: bool) -> re.Match[str] | None:
    """The tag that begins here: as it should be written, or else as browsers read it."""
    found = _TAG.match(text, start)
    if found or xml:
        return found
    return _TAG_OF_HTML.match(text, start, start + _MOST_TAG) or _TAG_OF_NOBODY.match(text, start)


def read(
    text: str,
    *,
    xml: bool = False,
    blocks: Sequence[str] = (),
    ignored: Sequence[str] = (),
    inline: Sequence[str] | None = None,
) -> list[Segment]:
    """The segments of a marked-up text. In XML `blocks` names the elements that no sentence goes across, or `inline`
    those that one does.

    `ignored` names elements whose content stays as it is; in HTML those of `RAW` and translate="no" are so anyway.
    """

    def is_block(tag: str) -> bool:
        return tag in blocks or (not xml and tag in BLOCKS) or (inline is not None and tag not in inline)

    def is_ignored(tag: str, raw: str) -> bool:
        own = not xml and (tag in RAW or re.search(_NOT_TRANSLATED, raw))
        return tag in ignored or bool(own)

    reader = _Reader(is_block, is_ignored, xml)
    reader.feed(text)
    return reader.finish()


# -- attributes --------------------------------------------------------------------------------------------------------


def spoken_values(segments: Sequence[Segment], names: Sequence[str]) -> list[str]:
    """What the attributes of these names say in all tags, each as one line."""
    found: list[str] = []

    def seen(raw: str) -> str:
        found.extend(value for _, value in _attributes(raw, names))
        return raw

    if names:
        change_tags(segments, seen)
    return found


def change_tags(segments: Sequence[Segment], change: Callable[[str], str]) -> None:
    """Puts what `change` makes of each opening tag in its place. Elements that are kept whole are passed over."""

    def of(elements: Sequence[Element]) -> None:
        for element in elements:
            if not element.whole:
                element.opening = change(element.opening)
            of(element.children)

    for segment in segments:
        if segment.kept is not None:
            segment.kept = change(segment.kept)
        of(segment.elements)


def with_values(raw: str, names: Sequence[str], spoken: Mapping[str, str]) -> str:
    """The tag with what stands for the values of these attributes in `spoken`."""
    out, at = "", 0
    for found, value in _attributes(raw, names):
        out += f'{raw[at : found.start(2)]}"{html.escape(spoken.get(value, value))}"'
        at = found.end(2)
    return out + raw[at:]


def _attributes(raw: str, names: Sequence[str]) -> list[tuple[re.Match[str], str]]:
    if raw.startswith(("<!", "<?", "</")) or re.search(_NOT_TRANSLATED, raw):
        return []
    found = re.finditer(rf"""\s({"|".join(names)})\s*=\s*("[^"]*"|'[^']*')""", raw, re.IGNORECASE)
    each = ((one, " ".join(html.unescape(one[2][1:-1]).split())) for one in found)
    return [(one, value) for one, value in each if any(map(str.isalnum, value))]
