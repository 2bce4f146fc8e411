"""Text with tags: what is between the tags is translated as one text, and the tags go to the words they belong to.

Every tag of the source stands in the translation once, properly nested. An element goes around the target words that
the model aligns with the words inside of it; one that no word belongs to goes to where its neighbours went.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from regard.tasks.translation import Translation, WordLink, WordSpan

from .reading import Element, Segment, change_tags, read, spoken_values, with_values

Translate = Callable[[list[str]], list[Translation]]
"""Translations of lines, with their alignments."""


def write(segment: Segment, found: Translation) -> str:
    """The translation of a segment's text with the segment's elements in it, escaped."""
    spans = [(word.start, word.end) for word in found.words]
    best = _best(found.alignment, len(spans))
    marks: list[_Mark] = []
    _place(segment.elements, found.source_words, spans, best, (0, len(spans)), (0, len(found.text)), marks)
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
            Element(
                e.opening,
                e.closing,
                min(position[e.start], len(inner)),
                min(position[e.end], len(inner)),
                moved(e.children),
                e.whole,
            )
            for e in elements
        ]

    return ahead, Segment(inner, moved(segment.elements)), behind
