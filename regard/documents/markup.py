"""Text with tags: what is between the tags is translated as one text, and the tags go to the words they belong to.

Every tag of the source stands in the translation once, properly nested. An element goes around the target words that
the model aligns with the words inside of it; one that no word belongs to goes to where its neighbours went.
"""

from __future__ import annotations

import html
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from regard.tasks.translation import Translation, WordSpan

from .reading import Element, Segment, change_tags, read, spoken_values, with_values

Translate = Callable[[list[str]], list[Translation]]
"""Translations of lines, with their alignments."""


MOST_WORDS = 400
"""Of a text whose elements' best places are looked for; in a longer one the densest run of aligned words is taken."""
_INSIDE, _PLACE, _LENGTH = 0.4, 1.5, 0.6
"""What a word costs that an element goes around, and what another place and length cost than in the source, where the
alignment is not sure: chosen on 200 paragraphs of benchmarks/tags.py that its figures are not of."""


@dataclass(frozen=True)
class _Aligned:
    """The words of a text and of its translation, and of each target word the source word that it comes from."""

    words: Sequence[WordSpan]
    targets: Sequence[WordSpan]
    best: Sequence[int | None]
    text: str
    """The translation."""
    weights: NDArray[np.float64]
    """How much of 1 each target word looks at that source word."""

    @classmethod
    def of(cls, found: Translation) -> _Aligned:
        """From a translation's links, the strongest of each target word."""
        best: list[int | None] = [None] * len(found.words)
        weights = np.zeros(len(found.words))
        for link in found.alignment:
            if link.weight > weights[link.target]:
                best[link.target], weights[link.target] = link.source, link.weight
        return cls(found.source_words, found.words, best, found.text, weights)

    @cached_property
    def texts(self) -> tuple[list[str], list[str], Counter[str]]:
        """The words of both sides without case, and how often the source has each."""
        source = [word.text.casefold() for word in self.words]
        return source, [word.text.casefold() for word in self.targets], Counter(source)

    @cached_property
    def places(self) -> tuple[list[int], list[int]]:
        """Where the source words begin and end."""
        return [word.start for word in self.words], [word.end for word in self.words]

    @cached_property
    def _targets(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for target, source in enumerate(self.best):
            if source is not None:
                found.setdefault(source, []).append(target)
        return found

    def from_(self, source: int, within: tuple[int, int]) -> list[int]:
        """The target words in this range that come from a source word, in order."""
        found = self._targets.get(source, [])
        return found[bisect_left(found, within[0]) : bisect_left(found, within[1])]

    @cached_property
    def unsure(self) -> float:
        """From 0, where every word looks at one word alone, to 1."""
        return 1.0 - float(self.weights.mean()) if len(self.weights) else 0.0


def write(segment: Segment, found: Translation) -> str:
    """The translation of a segment's text with the segment's elements in it, escaped."""
    aligned = _Aligned.of(found)
    marks: list[_Mark] = []
    _place(segment.elements, aligned, (0, len(found.words)), (0, len(found.text)), marks)
    return _joined(found.text, marks)


def says(text: str) -> bool:
    """Whether there is anything to translate: a letter or a digit."""
    return any(character.isalnum() for character in text)


def _as_it_is(segment: Segment) -> str:
    """What has no text to translate."""
    if segment.kept is not None:
        return segment.kept
    marks: list[_Mark] = []

    def add(elements: Sequence[Element]) -> None:
        for element in elements:
            marks.append(_Mark(element.start, element.opening))
            add(element.children)
            marks.append(_Mark(element.end, element.closing))

    add(segment.elements)
    return _joined(segment.text, marks)


@dataclass(frozen=True)
class _Mark:
    """A tag, and before which character of the translation it goes."""

    at: int
    raw: str


def _place(
    elements: Sequence[Element], aligned: _Aligned, within: tuple[int, int], bounds: tuple[int, int], marks: list[_Mark]
) -> None:
    """Puts the tags of sibling elements among the target words `within`, in their order there.

    One that began in an earlier segment stays first, one that goes on in a later one last: its other tag is there.
    """
    spans = aligned.targets
    wanted = [_wanted(element, aligned, within) for element in elements]
    order = sorted(range(len(elements)), key=lambda i: (elements[i].goes_on, bool(elements[i].opening), wanted[i], i))
    first, character = within[0], bounds[0]
    laters = _laters(wanted, order, within[1])
    for later, i in zip(laters, order, strict=True):
        element, (start, end) = elements[i], wanted[i]
        start, end = max(start, first), max(min(end, max(later, start + 1)), first)
        if end > start and element.end > element.start:
            begin, stop = max(spans[start].start, character), spans[end - 1].end
            first, inner = end, (start, end)
        else:  # no word is in it
            begin = stop = _before(element, aligned, start, bounds, character)
            inner = (start, start)
        ahead = behind = ""
        if element.start == element.end:
            begin, ahead, behind = _apart(element, aligned.text, begin, bounds)
            stop = begin
        marks.append(_Mark(begin, ahead + element.opening))
        _place(element.children, aligned, inner, (begin, stop), marks)
        if element.closing or behind:
            marks.append(_Mark(stop, element.closing + behind))
        character = stop


def _apart(element: Element, text: str, at: int, bounds: tuple[int, int]) -> tuple[int, str, str]:
    """Where an element without words goes, and the space that is written on both sides, as there is in the source."""
    before, after = element.beside
    if before.isspace() and after.isalnum() and text[at : at + 1] == " " and at < bounds[1]:
        return at + 1, "", ""  # it goes with the word behind it
    ahead = " " if before.isspace() and at > 0 and text[at - 1].isalnum() else ""
    return at, ahead, " " if after.isspace() and text[at : at + 1].isalnum() else ""


def _laters(wanted: Sequence[tuple[int, int]], order: Sequence[int], end: int) -> list[int]:
    """For each element, in order, where the first behind it begins that has words."""
    found, least = list[int](), end
    for i in reversed(order):
        found.append(least)
        start, stop = wanted[i]
        least = min(least, start) if stop > start else least
    return found[::-1]


def _wanted(element: Element, aligned: _Aligned, within: tuple[int, int]) -> tuple[int, int]:
    """The target words that an element belongs around."""
    starts, ends = aligned.places
    first, last = bisect_right(ends, element.start), bisect_left(starts, element.end)  # the words in it
    if last > first and element.end > element.start and within[1] > within[0]:
        if within[1] - within[0] <= MOST_WORDS:
            return _span((first, last), aligned, within)
        of_it = sorted(j for i in range(first, last) for j in aligned.from_(i, within))
        if of_it:
            return _run(of_it)
    behind = bisect_right(ends, element.start) - 1
    if behind < 0:
        return within[0], within[0]
    if found := aligned.from_(behind, within):
        return found[-1] + 1, found[-1] + 1
    # The word before has no translation: as far along as in the source.
    at = within[0] + round((within[1] - within[0]) * (behind + 1) / max(len(aligned.words), 1))
    return at, at


def _span(inside: tuple[int, int], aligned: _Aligned, within: tuple[int, int]) -> tuple[int, int]:
    """The span of target words that has most of what comes from the source words inside, and least of what does not.

    A word counts by the share of its attention that is inside. What a source word says letter for letter (names,
    numbers, code) is that word. The less sure the alignment, the more a span should stand and be as long as in the
    source.
    """
    (first, last), (begin, end) = inside, within
    source, target, times = aligned.texts
    own = Counter(source[first:last])
    shares = np.empty(end - begin)
    for number, j in enumerate(range(begin, end)):
        origin, weight = aligned.best[j], aligned.weights[j]
        rest = (1.0 - weight) * (last - first) / len(source)
        shares[number] = rest + (weight if origin is not None and first <= origin < last else 0.0)
        if times[target[j]]:
            here = own[target[j]]
            shares[number] = 1.0 if here == times[target[j]] else shares[number] if here else 0.0
    sums = np.concatenate([[0.0], np.cumsum(shares - _INSIDE)])
    length = (last - first) * len(target) / len(source)
    moved = np.abs(np.arange(begin, end) / len(target) - first / len(source))
    found, most = (begin, begin + 1), -np.inf
    for size in range(1, min(int(3 * length) + 4, end - begin) + 1):
        scores = sums[size:] - sums[:-size] - aligned.unsure * _PLACE * moved[: len(sums) - size]
        best = int(scores.argmax())
        score = float(scores[best]) - aligned.unsure * _LENGTH * abs(size - length) / max(length, 1.0)
        if score > most:
            found, most = (begin + best, begin + best + size), score
    return found


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


def _before(element: Element, aligned: _Aligned, at: int, bounds: tuple[int, int], least: int) -> int:
    """The character at which an element without words goes: at the end of the word before it."""
    words, spans = aligned.words, aligned.targets
    if at <= 0 or at - 1 >= len(spans):
        last = bool(words) and element.start >= words[-1].end
        place = bounds[1] if last or at > 0 else bounds[0]
    else:
        place = spans[at - 1].end
    return min(max(place, least), bounds[1])


def _joined(text: str, marks: Sequence[_Mark]) -> str:
    out, at = [], 0
    for mark in marks:
        out += [html.escape(text[at : mark.at], quote=False), mark.raw]
        at = max(at, mark.at)
    return "".join([*out, html.escape(text[at:], quote=False)])


def translate_markup(
    texts: Sequence[str],
    translate: Translate,
    *,
    xml: bool = False,
    blocks: Sequence[str] = (),
    ignored: Sequence[str] = (),
    inline: Sequence[str] | None = None,
    attributes: Sequence[str] = (),
) -> list[str]:
    """Marked-up texts, translated; `translate` is given plain text without line breaks, and must give alignments.

    What says nothing (see `says`) stays as it is, and `translate` is not asked for it. `attributes` names those whose
    values are translated too, all but those of elements that are kept.
    """
    read_all = [read(text, xml=xml, blocks=blocks, ignored=ignored, inline=inline) for text in texts]
    plain = [_stripped(s) for segments in read_all for s in segments if s.kept is None and says(s.text)]
    values = [value for segments in read_all for value in spoken_values(segments, attributes)]
    made = translate([*(segment.text for _, segment, _ in plain), *values]) if plain or values else []
    found, parts = iter(made[: len(plain)]), iter(plain)
    spoken = {value: one.text for value, one in zip(values, made[len(plain) :], strict=True)}
    for segments in read_all if spoken else ():
        change_tags(segments, lambda raw: with_values(raw, attributes, spoken))
    if spoken:
        change_tags([segment for _, segment, _ in plain], lambda raw: with_values(raw, attributes, spoken))
    return ["".join(_parts(segments, parts, found)) for segments in read_all]


def _parts(
    segments: Sequence[Segment], plain: Iterator[tuple[str, Segment, str]], found: Iterator[Translation]
) -> Iterator[str]:
    for segment in segments:
        if segment.kept is not None or not says(segment.text):
            yield _as_it_is(segment)
            continue
        ahead, inner, behind = next(plain)
        yield f"{ahead}{write(inner, next(found))}{behind}"


def _stripped(segment: Segment) -> tuple[str, Segment, str]:
    """A segment without the space around its text, each run of space one, and the space that was around it."""
    text = segment.text
    ahead = text[: len(text) - len(text.lstrip())]
    behind = text[len(text.rstrip()) :]
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
            replace(
                e,
                start=min(position[e.start], len(inner)),
                end=min(position[e.end], len(inner)),
                children=moved(e.children),
                beside=(text[e.start - 1 : e.start], text[e.start : e.start + 1]),
            )
            for e in elements
        ]

    elements = list(segment.elements)
    first = sum(1 for _ in takewhile(lambda e: e.end == 0, elements)) if ahead else 0
    last = sum(1 for _ in takewhile(lambda e: e.start == len(text), reversed(elements[first:]))) if behind else 0
    outside = (
        _as_it_is(Segment("", elements[:first])),
        _as_it_is(Segment("", _at_start(elements[len(elements) - last :]))),
    )
    return outside[0] + ahead, Segment(inner, moved(elements[first : len(elements) - last])), behind + outside[1]


def _at_start(elements: Sequence[Element]) -> list[Element]:
    """Elements without words as they are where no text is."""
    return [replace(e, start=0, end=0, children=_at_start(e.children)) for e in elements]
