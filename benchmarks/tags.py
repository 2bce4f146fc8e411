"""Where tags stand in a translation: the product's placement beside that of Bergamot, on the same words and alignments.

    REGARD_DATA=… python benchmarks/tags.py --text runs/tags/text
    TAGS_TEXT=runs/tags/text regard train recipes/tags/en-de.toml --out runs/tags/run
    REGARD_DATA=… python benchmarks/tags.py --bundle runs/tags/run/bundle

The text is the GNOME documentation of the data folder (softdocs_en-de, raw paragraphs with their XML tags), 1,000
paragraphs whose source and reference have the same tags. `--text` writes what the recipe trains on: everyday sentences
and captions, speeches, and those paragraphs of the documentation that have no tags. It is a small model that was
trained for minutes; the figures are of placement on its alignments, not of what a good model reaches.

The bundle is made to write the reference without its tags (forced decoding), as `regard align` does, and its attention
links words; then both ways put the source's tags into the reference's words, and the reference's own tags say where
they belong. Choices were made on other paragraphs (`--dev`).

- F1 is over elements: one is right where its tag, its first and its last character (without the space around it) are
  those of an element of the reference; an empty element where the characters before it are as many. Elements that
  stand around no letter or digit, and text with attributes that the reference translates, count like all others.
- Loose F1 is over words: each word with the names of the elements that it stands in, as many times as it does.
- Well-formed: every end has its beginning, in order; same tags: the multiset of tags is the source's.

The bundle also translates the paragraphs itself, as a user would have it; whether that is well-formed and has the same
tags is in the results too.

Bergamot's rule is that of bergamot-translator (src/translator/html.cpp, commit df5db525132f, MPL-2.0), written anew as
`bergamot` below: each target word takes the elements of the source word that it is aligned with (the argmax); where
those of neighbouring words differ, elements are ended and begun again, so that one element of the source may become
several; empty elements, and elements that no target word took, are put where the order of the source comes past them.
"""

from __future__ import annotations

import argparse
import html
import os
import random
import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from record import RESULTS, circumstances, write

import regard
from regard.documents.markup import translate_markup
from regard.documents.reading import Element, read
from regard.errors import DataError
from regard.search.table import Options
from regard.tasks.details import layers_of, links_of, steps_of, words_of
from regard.tasks.forced import forced
from regard.tasks.lines import translate_long
from regard.tasks.translate import Translator
from regard.tasks.translation import Translation
from regard.text import read_lines, write_lines
from regard.text.sentences import words

TAG = re.compile(r"<[^<>]*>")
_ELEMENT = re.compile(r"</?[A-Za-z_:][^<>]*>")
LINES, DEV = 1000, 200


# -- text --------------------------------------------------------------------------------------------------------------


def marked_pairs(data: Path) -> list[tuple[str, str]]:
    """Paragraphs with tags, the same on both sides and well-formed on both."""
    sides = []
    for language in ("en", "de"):
        sides.append(read_lines(data / f"softdocs_en-de/train.gnome.{language}.gz"))
    pairs = [(s, t) for s, t in zip(*sides, strict=True) if _ELEMENT.search(s)]
    return [
        (s, t)
        for s, t in pairs
        if Counter(TAG.findall(s)) == Counter(TAG.findall(t)) and is_well_formed(s) and is_well_formed(t)
    ]


def is_well_formed(text: str) -> bool:
    """Whether every end has its beginning, in order."""
    open_: list[str] = []
    for tag in TAG.findall(text):
        name = re.split(r"[\s/>]", tag.strip("</"))[0]
        if tag.startswith("</"):
            if not open_ or open_.pop() != name:
                return False
        elif not tag.endswith("/>") and not tag.startswith("<!"):
            open_.append(name)
    return not open_


def plain(text: str) -> str:
    """What `translate_markup` reads of a text: without tags, each run of space one."""
    return " ".join(html.unescape(TAG.sub("", text)).split())


TRAIN = (("tatoeba_en-de/train", 60_000), ("multi30k/train", 8_000), ("europarl_de-en_20k/train", 6_000))
MOST_CHARACTERS, AGAIN = 300, 4
"""Of a line of the training text; how many times it has the software's paragraphs, which are few."""


def write_text(data: Path, folder: Path) -> None:
    """The text that the recipe trains on, and what it is watched on."""
    folder.mkdir(parents=True, exist_ok=True)
    software = (("softdocs_en-de/train.git", sys.maxsize), ("softdocs_en-de/train.gnome", sys.maxsize))
    train = list[tuple[str, str]]()
    for name, most in (*TRAIN, *software):
        sides = [read_lines(data / f"{name}.{language}.gz") for language in ("en", "de")]
        pairs = [pair for pair in zip(*sides, strict=True) if max(map(len, pair)) < MOST_CHARACTERS]
        if name.startswith("soft"):
            pairs = [pair for pair in pairs if "<" not in "".join(pair)] * AGAIN
        random.Random(1).shuffle(pairs)
        train += pairs[:most]
    random.Random(2).shuffle(train)
    sides = [read_lines(data / f"softdocs_en-de/valid.{language}.gz") for language in ("en", "de")]
    valid = [(plain(s), plain(t)) for s, t in zip(*sides, strict=True)]
    for name, pairs in (("train", train), ("valid", valid)):
        for language, lines in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
            write_lines(folder / f"{name}.{language}", list(lines))


# -- alignments --------------------------------------------------------------------------------------------------------


def aligned(translator: Translator, sources: Sequence[str], targets: Sequence[str]) -> list[Translation]:
    """The targets as if the bundle had written them, with the alignments that it gives to its own translations."""
    ids = [translator.source.encode(line) for line in sources]
    written = [translator.target.encode(line) for line in targets]
    made = forced(translator.backend(translator.searching(Options())), ids, written, attention=True, scores=False)
    calibration = translator.calibration
    found = []
    for source, target, each in zip(sources, targets, made, strict=True):
        weights = steps_of(layers_of(each), calibration.rule, calibration.layer)
        read_, said = words(source), words(target)
        links = links_of(weights, translator.target.spans(target), translator.source.spans(source), said, read_)
        found.append(
            Translation(target, words=words_of(target, said), source_words=words_of(source, read_), alignment=links)
        )
    return found


# -- Bergamot's rule ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Span:
    """A stretch of the source with the elements that it stands in, outermost first; empty ones hold a place."""

    start: int
    end: int
    inside: tuple[int, ...]


def spans_of(elements: Sequence[Element], length: int) -> tuple[list[Span], list[Element]]:
    """The source cut wherever a tag stands; and its elements by number."""
    every: list[Element] = []
    spans: list[Span] = []

    def walk(siblings: Sequence[Element], start: int, end: int, above: tuple[int, ...]) -> None:
        at = start
        for element in siblings:
            if element.start > at:
                spans.append(Span(at, element.start, above))
            every.append(element)
            inside = (*above, len(every) - 1)
            if element.end > element.start or element.children:
                walk(element.children, element.start, element.end, inside)
            else:
                spans.append(Span(element.start, element.start, inside))
            at = max(at, element.end)
        if end > at:
            spans.append(Span(at, end, above))

    walk(elements, 0, length, ())
    return [Span(0, 0, ()), *spans, Span(length, length, ())], every


def bergamot(source: str, found: Translation) -> str:
    """The translation with the source's tags as bergamot-translator puts them."""
    [segment] = read(source, xml=True)
    text = plain(source)
    spans, every = spans_of(_moved(segment.text, segment.elements), len(text))
    # The span of each source word: the last that overlaps with it.
    of_source = [
        max(i for i, span in enumerate(spans) if span.start < word.end or i == 0) for word in found.source_words
    ]
    best = {link.target: link.source for link in found.alignment}
    of_target = [of_source[best[j]] if j in best else 0 for j in range(len(found.words))]
    of_target.append(len(spans) - 1)
    taken = set(of_target)
    out, at, before, begun = list[str](), 0, 0, set[int]()

    def go(old: int, new: int) -> tuple[list[str], list[str]]:
        """Ends and beginnings on the way from one span's elements to another's."""
        one, other = spans[old].inside, spans[new].inside
        shared = 0
        while shared < min(len(one), len(other)) and one[shared] == other[shared]:
            shared += 1
        ends = [every[i].closing for i in reversed(one[shared:])]
        begun.update(other[shared:])
        return ends, [every[i].opening for i in other[shared:]]

    for number, wanted in enumerate(of_target):
        word = found.words[number] if number < len(found.words) else None
        start = word.start if word else len(found.text)
        ends, starts = list[str](), list[str]()
        now = before
        steps = [i for i in range(before, wanted) if spans[i].end == spans[i].start or i not in taken]
        for step in [*steps, wanted]:
            closing, opening = go(now, step)
            (starts if starts else ends).extend(closing)
            starts.extend(opening)
            now = step
        gap = found.text[at:start]
        out += [*ends, html.escape(gap, quote=False), *starts] if word else [html.escape(gap), *ends, *starts]
        out.append(html.escape(found.text[start : word.end], quote=False) if word else "")
        at, before = (word.end if word else start), wanted
    return "".join(out)


def _moved(text: str, elements: Sequence[Element]) -> list[Element]:
    """Elements by characters of the text with each run of space one, as `plain` gives it."""
    position, length, space = list[int](), 0, True
    for character in text:
        position.append(length)
        if not character.isspace():
            length, space = length + 1, False
        elif not space:
            length, space = length + 1, True
    length = len(" ".join(text.split()))
    position.append(length)

    def position_of(at: int) -> int:
        return min(position[at], length)

    def move(siblings: Sequence[Element]) -> list[Element]:
        return [
            Element(
                e.opening, e.closing, min(position[e.start], length), min(position[e.end], length), move(e.children)
            )
            for e in siblings
        ]

    return move(elements)


# -- scores ------------------------------------------------------------------------------------------------------------


def elements_of(text: str) -> Counter[tuple[str, int, int]]:
    """Each element's opening tag, and how many letters, without spaces, stand before its start and before its end."""
    found: Counter[tuple[str, int, int]] = Counter()
    open_: list[tuple[str, int]] = []
    at = 0
    for part in re.split(r"(<[^<>]*>)", text):
        if part.startswith("</"):
            if open_:
                tag, start = open_.pop()
                found[tag, start, at] += 1
        elif part.startswith("<") and part.endswith("/>"):
            found[part, at, at] += 1
        elif part.startswith("<"):
            open_.append((part, at))
        else:
            at += len("".join(html.unescape(part).split()))
    return found


def names_of(text: str) -> Counter[tuple[int, str]]:
    """Each character that is no space, by number, with each element that it stands in."""
    found: Counter[tuple[int, str]] = Counter()
    for (tag, start, end), count in elements_of(text).items():
        for at in range(start, end):
            found[at, tag] += count
    return found


def f1(made: Sequence[Counter[Any]], wanted: Sequence[Counter[Any]]) -> float:
    right = sum((a & b).total() for a, b in zip(made, wanted, strict=True))
    return 200 * right / max(sum(a.total() + b.total() for a, b in zip(made, wanted, strict=True)), 1)


def figures(made: Sequence[str], pairs: Sequence[tuple[str, str]]) -> dict[str, float]:
    """Of translations with tags: F1 in per cent, and shares of lines in per cent."""
    return {
        "f1": f1([elements_of(x) for x in made], [elements_of(t) for _, t in pairs]),
        "loose_f1": f1([names_of(x) for x in made], [names_of(t) for _, t in pairs]),
        **wholeness(made, [s for s, _ in pairs]),
    }


def wholeness(made: Sequence[str], sources: Sequence[str]) -> dict[str, float]:
    """How many in a hundred are well-formed, and have the source's tags."""
    return {
        "well_formed": 100 * fmean(is_well_formed(x) for x in made),
        "same_tags": 100
        * fmean(Counter(TAG.findall(x)) == Counter(TAG.findall(s)) for x, s in zip(made, sources, strict=True)),
    }


def placed(pairs: Sequence[tuple[str, str]], found: Sequence[Translation]) -> dict[str, list[str]]:
    """The references' words with the source's tags, by both ways."""
    ours = translate_markup([s for s, _ in pairs], lambda lines: list(found), xml=True)
    return {"regard": ours, "bergamot": [bergamot(s, f) for (s, _), f in zip(pairs, found, strict=True)]}


def measure(arguments: argparse.Namespace, data: Path) -> dict[str, Any]:
    every = marked_pairs(data)
    pairs = every[-DEV:] if arguments.dev else every[:LINES]
    translator = regard.load(arguments.bundle)
    found = aligned(translator, [plain(s) for s, _ in pairs], [plain(t) for _, t in pairs])
    by_rule = {name: figures(made, pairs) for name, made in placed(pairs, found).items()}
    result = {
        **circumstances(),
        "bundle": translator.recipe.name,
        "lines": len(pairs),
        "elements": sum(elements_of(t).total() for _, t in pairs),
        "forced": by_rule,
    }
    if not arguments.dev:
        sources = [s for s, _ in pairs]
        options = Options.of(None, alignment=True)

        def work(lines: list[str]) -> list[Translation]:
            return translate_long(translator, lines, partial(translator.translate, options=options), always=True)

        own = translate_markup(sources, work, xml=True)
        result["translated"] = wholeness(own, sources)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=Path)
    parser.add_argument("--text", type=Path, help="a folder to write the training text to")
    parser.add_argument("--dev", action="store_true", help="other paragraphs, to choose on; nothing is written")
    parser.add_argument("--results", type=Path, default=RESULTS / "tags.json")
    arguments = parser.parse_args()
    if not os.environ.get("REGARD_DATA"):
        raise DataError("REGARD_DATA is not set; set it to the folder that holds softdocs_en-de/.")
    data = Path(os.environ["REGARD_DATA"])
    if arguments.text:
        write_text(data, arguments.text)
    if not arguments.bundle:
        return 0
    result = measure(arguments, data)
    for name, each in result["forced"].items():
        print(name, {key: round(value, 1) for key, value in each.items()}, flush=True)
    if not arguments.dev:
        print("translated", result["translated"])
        write(arguments.results, result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
