"""Text with tags: what is between the tags is translated as one text, and the tags go to the words they belong to.

Every tag of the source stands in the translation once, properly nested. An element goes around the target words that
the model aligns with the words inside of it; one that no word belongs to goes to where its neighbours went.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser

from regard.tasks.translation import Translation, WordLink, WordSpan

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


@dataclass
class Segment:
    """A text that is translated as a whole, with the elements that stand in it; or a piece that is kept as it is."""

    text: str = ""
    elements: list[Element] = field(default_factory=list)
    kept: str | None = None


# -- reading -----------------------------------------------------------------------------------------------------------


class _Reader(HTMLParser):
    """Cuts a document into segments: text with its inline elements, and what stands between."""

    def __init__(self, blocks: Callable[[str], bool], ignored: Callable[[str, str], bool], xml: bool) -> None:
        super().__init__(convert_charrefs=False)
        if xml:  # where no element has a language of its own
            setattr(self, "CDATA_CONTENT_ELEMENTS", ())  # noqa: B010  (the class says that there are always two)
        self._blocks, self._ignored, self._xml = blocks, ignored, xml
        self.segments = [Segment()]
        self._open: list[tuple[str, Element]] = []
        self._inside: list[str] = []  # of an ignored element, it and what is open in it
        self._index, self._ended = 0, False

    # An ignored element stands in the text as an element without words, whole as its opening tag.

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        raw = self.get_starttag_text() or ""
        tag = self._name(raw, tag)
        if self._inside:
            self._grow(raw)
            if not self._void(tag):
                self._inside.append(tag)
        elif self._ignored(tag, raw) and not self._void(tag):
            self._put(Element(raw, "", self._at, self._at))
            self._inside.append(tag)
        elif self._blocks(tag):
            self._keep(raw)
        elif self._void(tag) or len(self._open) >= MOST_DEPTH:
            self._put(Element(raw, "", self._at, self._at))
        else:
            element = Element(raw, "", self._at)
            self._put(element)
            self._open.append((tag, element))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        raw = self.get_starttag_text() or ""
        if self._inside:
            self._grow(raw)
        elif self._blocks(self._name(raw, tag)):
            self._keep(raw)
        else:
            self._put(Element(raw, "", self._at, self._at))

    def updatepos(self, i: int, j: int) -> int:
        self._index = j  # of the next piece of the document, which the parser tells nobody
        return super().updatepos(i, j)

    def parse_endtag(self, i: int) -> int:
        self._ended = False
        end = super().parse_endtag(i)
        if self._ended:
            self._end(self.rawdata[i:end])
        return end

    def handle_endtag(self, tag: str) -> None:
        self._ended = True  # `parse_endtag` has the tag as it is written

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

    def handle_data(self, data: str) -> None:
        if self._inside:
            self._grow(data)
        else:
            self.segments[-1].text += data

    def handle_entityref(self, name: str) -> None:
        raw = f"&{name}" + ";" * self.rawdata.startswith(f"&{name};", self._index)
        self.handle_data(raw if self._inside else html.unescape(raw))

    def handle_charref(self, name: str) -> None:
        raw = f"&#{name};"
        self.handle_data(raw if self._inside else html.unescape(raw))

    def handle_comment(self, data: str) -> None:
        self._mark(f"<!--{data}-->")

    def handle_decl(self, decl: str) -> None:
        self._mark(f"<!{decl}>")

    def handle_pi(self, data: str) -> None:
        self._mark(f"<?{data}>")

    def unknown_decl(self, data: str) -> None:
        self._mark(f"<![{data}]]>" if data.startswith("CDATA[") else f"<![{data}]>")

    def _mark(self, raw: str) -> None:
        if self._inside:
            self._grow(raw)
        else:
            self._put(Element(raw, "", self._at, self._at))

    @property
    def _at(self) -> int:
        return len(self.segments[-1].text)

    def _name(self, raw: str, tag: str) -> str:
        """XML's names are told apart by case, which the parser does away with."""
        found = re.match(r"<\s*([^\s>/]+)", raw)
        return found[1] if self._xml and found else tag

    def _void(self, tag: str) -> bool:
        return not self._xml and tag in VOID

    def _put(self, element: Element) -> None:
        (self._open[-1][1].children if self._open else self.segments[-1].elements).append(element)

    def _grow(self, raw: str) -> None:
        """More of an ignored element, which is the last that was put."""
        siblings = self._open[-1][1].children if self._open else self.segments[-1].elements
        siblings[-1].opening += raw

    def _keep(self, raw: str) -> None:
        """A tag that ends a segment. What is open across it goes on in the next, where its end will stand."""
        for _, element in self._open:
            element.end = self._at
        self.segments += [Segment(kept=raw), Segment()]
        names = [name for name, _ in self._open]
        self._open.clear()
        for name in names:
            element = Element("", "", 0)
            self._put(element)
            self._open.append((name, element))

    def finish(self) -> list[Segment]:
        self.close()
        for _, element in self._open:
            element.end = self._at
        return self.segments


def read(text: str, *, xml: bool = False, blocks: Sequence[str] = (), ignored: Sequence[str] = ()) -> list[Segment]:
    """The segments of a marked-up text. In XML `blocks` names the elements that no sentence goes across.

    `ignored` names elements whose content stays as it is; in HTML those of `RAW` and translate="no" are so anyway.
    """

    def is_block(tag: str) -> bool:
        return tag in blocks or (not xml and tag in BLOCKS)

    def is_ignored(tag: str, raw: str) -> bool:
        own = not xml and (
            tag in RAW or re.search(r"""translate\s*=\s*["']?no\b|class\s*=\s*["'][^"']*\bnotranslate\b""", raw)
        )
        return tag in ignored or bool(own)

    reader = _Reader(is_block, is_ignored, xml)
    reader.feed(text)
    return reader.finish()


# -- writing -----------------------------------------------------------------------------------------------------------


def write(segment: Segment, found: Translation) -> str:
    """The translation of a segment's text with the segment's elements in it, escaped."""
    if segment.kept is not None:
        return segment.kept
    spans = [(word.start, word.end) for word in found.words]
    best = _best(found.alignment, len(spans))
    marks: list[_Mark] = []
    _place(segment.elements, found.source_words, spans, best, (0, len(spans)), (0, len(found.text)), marks)
    return _joined(found.text, marks)


@dataclass(frozen=True)
class _Mark:
    """A tag, and before which character of the translation it goes."""

    at: int
    raw: str


def _best(links: Sequence[WordLink], count: int) -> list[int | None]:
    """Of each target word the source word that it comes from."""
    best: list[int | None] = [None] * count
    weights = [0.0] * count
    for link in links:
        if link.weight > weights[link.target]:
            best[link.target], weights[link.target] = link.source, link.weight
    return best


def _place(
    elements: Sequence[Element],
    words: Sequence[WordSpan],
    spans: Sequence[tuple[int, int]],
    best: Sequence[int | None],
    within: tuple[int, int],
    bounds: tuple[int, int],
    marks: list[_Mark],
) -> None:
    """Puts the tags of sibling elements among the target words `within`, in their order there."""
    wanted = [_wanted(element, words, best, within) for element in elements]
    order = sorted(range(len(elements)), key=lambda i: (wanted[i], i))
    first, character = within[0], bounds[0]
    for number, i in enumerate(order):
        element, (start, end) = elements[i], wanted[i]
        later = min((wanted[j][0] for j in order[number + 1 :] if wanted[j][1] > wanted[j][0]), default=within[1])
        start, end = max(start, first), max(min(end, max(later, start + 1)), first)
        if end > start and element.end > element.start:
            begin, stop = max(spans[start][0], character), spans[end - 1][1]
            first, inner = end, (start, end)
        else:  # no word is in it
            begin = stop = _before(element, words, spans, start, bounds, character)
            inner = (start, start)
        marks.append(_Mark(begin, element.opening))
        _place(element.children, words, spans, best, inner, (begin, stop), marks)
        if element.closing:
            marks.append(_Mark(stop, element.closing))
        character = stop


def _wanted(
    element: Element, words: Sequence[WordSpan], best: Sequence[int | None], within: tuple[int, int]
) -> tuple[int, int]:
    """The target words that an element belongs around: the densest run of those that come from words in it."""
    inside = {i for i, word in enumerate(words) if word.start < element.end and word.end > element.start}
    of_it = [j for j in range(*within) if best[j] in inside]
    if of_it and element.end > element.start:
        return _run(of_it)
    behind = max((i for i, word in enumerate(words) if word.end <= element.start), default=-1)
    at = max((j + 1 for j in range(*within) if best[j] == behind), default=None) if behind >= 0 else within[0]
    if at is None:  # the word before has no translation: as far along as in the source
        at = within[0] + round((within[1] - within[0]) * (behind + 1) / max(len(words), 1))
    return at, at


def _run(positions: Sequence[int]) -> tuple[int, int]:
    """The positions' longest run with no gap of more than one; of equals the first."""
    runs = [[positions[0]]]
    for position in positions[1:]:
        if position - runs[-1][-1] <= 2:
            runs[-1].append(position)
        else:
            runs.append([position])
    longest = max(runs, key=len)
    return longest[0], longest[-1] + 1


def _before(
    element: Element,
    words: Sequence[WordSpan],
    spans: Sequence[tuple[int, int]],
    at: int,
    bounds: tuple[int, int],
    least: int,
) -> int:
    """The character at which an element without words goes: at the end of the word before it."""
    if at <= 0 or at - 1 >= len(spans):
        last = element.start >= max((word.end for word in words), default=0) and bool(words)
        place = bounds[1] if last or at > 0 else bounds[0]
    else:
        place = spans[at - 1][1]
    return min(max(place, least), bounds[1])


def _joined(text: str, marks: Sequence[_Mark]) -> str:
    out, at = [], 0
    for mark in marks:
        out += [html.escape(text[at : mark.at], quote=False), mark.raw]
        at = max(at, mark.at)
    return "".join([*out, html.escape(text[at:], quote=False)])


def translate_markup(
    texts: Sequence[str],
    translate: Callable[[list[str]], list[Translation]],
    *,
    xml: bool = False,
    blocks: Sequence[str] = (),
    ignored: Sequence[str] = (),
) -> list[str]:
    """Marked-up texts, translated; `translate` is given plain text without line breaks, and must give alignments."""
    read_all = [read(text, xml=xml, blocks=blocks, ignored=ignored) for text in texts]
    plain = [_stripped(s) for segments in read_all for s in segments if s.kept is None]
    found = iter(translate([segment.text for _, segment, _ in plain]))
    parts = iter(plain)
    return ["".join(_parts(segments, parts, found)) for segments in read_all]


def _parts(
    segments: Sequence[Segment], plain: Iterator[tuple[str, Segment, str]], found: Iterator[Translation]
) -> Iterator[str]:
    for segment in segments:
        if segment.kept is not None:
            yield segment.kept
            continue
        ahead, inner, behind = next(plain)
        yield f"{ahead}{write(inner, next(found))}{behind}"


def _stripped(segment: Segment) -> tuple[str, Segment, str]:
    """A segment without the space around its text, each run of space one, and the space that was around it."""
    text = segment.text
    ahead = text[: len(text) - len(text.lstrip())]
    behind = text[len(text.rstrip()) :] if text.strip() else ""
    position, inner, space = [], "", True
    for character in text:
        position.append(len(inner))
        if not character.isspace():
            inner, space = inner + character, False
        elif not space:
            inner, space = inner + " ", True
    inner = inner.rstrip()
    position.append(len(inner))

    def moved(elements: Sequence[Element]) -> list[Element]:
        return [
            Element(
                e.opening,
                e.closing,
                min(position[e.start], len(inner)),
                min(position[e.end], len(inner)),
                moved(e.children),
            )
            for e in elements
        ]

    return ahead, Segment(inner, moved(segment.elements)), behind
