"""Slides: a lecture, or one of the five documents slide by slide, as one file to show, that asks no network.

What the documents say, slide by slide, is in slides.toml, their slips in errata.toml; a slip is marked on its slide.
"""

from __future__ import annotations

import html
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import TypedDict, cast

from regard.errors import DataError

from .every import LECTURES, about, lecture
from .interactive import RECORDED, both, frame, picture, recorded, table, title, widget
from .page import Lecture
from .trained import TRAINED, Shown

DOCUMENTS = tuple(f"document-{number}" for number in range(1, 6))
"""The decks of the documents, by the documents' numbers."""
_ROWS = 8
"""Numbers on one slide."""


class Entry(TypedDict, total=False):
    """A row of slides.toml: what a document prints, what it is, and what computes it or why nothing does."""

    zh: str
    en: str
    see: list[str]
    none: str
    code: str


class Document(TypedDict):
    """A document, slide by slide."""

    number: int
    slides: list[Entry]


class Documents(TypedDict):
    """What slides.toml has for decks."""

    documents: dict[str, dict[str, str]]
    reasons: dict[str, dict[str, str]]
    document: list[Document]


@dataclass(frozen=True)
class Slide:
    """One slide: its title in both languages, and what is on it."""

    english: str
    chinese: str
    inside: str


class Decks:
    """Makes decks; what several of them show is computed and drawn once. `computed` has what a caller knows already."""

    def __init__(self, computed: Mapping[str, Lecture | Shown] | None = None) -> None:
        self._lectures = dict(computed or {})
        self._pictures = dict[str, str]()

    def deck(self, name: str, language: str = "en") -> str:
        """The page of a lecture's slides, or of a document's: "document-1" to "document-5", at first in one language.

        Raises DataError for another name, and where what a lecture needs is not installed.
        """
        if name in DOCUMENTS:
            number = DOCUMENTS.index(name) + 1
            english, chinese = (documents()["documents"][str(number)][language] for language in ("en", "zh"))
            slides = [*self._document(number)]
        else:
            english, chinese = title(name), title(name, "zh")
            slides = [Slide(english, chinese, _says(name) + "".join(_slips_of(name))), *self._lecture(name)]
        return _page((name, english, chinese), slides, language)

    def _lecture(self, name: str) -> Iterator[Slide]:
        """A lecture's figure that moves, its picture, and its numbers."""
        english, chinese = title(name), title(name, "zh")
        if moves := widget(name):
            yield Slide(english, chinese, moves)
        one = self._computed(name)
        if isinstance(one, Lecture):
            if name not in self._pictures:
                self._pictures[name] = picture(one, name)
            yield Slide(english, chinese, self._pictures[name])
        rows = list(one.numbers.items())
        for first in range(0, len(rows), _ROWS):
            some = table(dict(rows[first : first + _ROWS]))
            yield Slide(f"{english}: computed by Regard", f"{chinese}：由 Regard 算出", some)

    def _computed(self, name: str) -> Lecture | Shown:
        if name not in self._lectures:
            self._lectures[name] = recorded() if name == RECORDED else lecture(name)
        return self._lectures[name]

    def _document(self, number: int) -> Iterator[Slide]:
        """A document's own slides, each followed by the lectures that it is the first to show."""
        [found] = [one for one in documents()["document"] if one["number"] == number]
        slips = _slips(number, [slide["zh"] for slide in found["slides"]])
        shown = dict[str, int]()
        at = count(1)
        for place, entry in enumerate(found["slides"]):
            here, more = next(at), list[Slide]()
            for name in (each for each in entry.get("see", ()) if each not in shown):
                shown[name] = here
                if name in LECTURES or name == RECORDED:
                    more += self._lecture(name)
            yield Slide(entry["en"], _plain(entry["zh"]), _own(entry, shown, here) + "".join(slips[place]))
            for slide in more:
                next(at)
                yield slide


def names_of(asked: list[str]) -> list[str]:
    """The decks that are asked for; "all": the documents' and every lecture's. Raises DataError for another name."""
    known = [*DOCUMENTS, *LECTURES, RECORDED]
    if wrong := [name for name in asked if name not in known and name != "all"]:
        raise DataError(f"there are no slides {wrong[0]!r}; there are {', '.join(known)}, and all of them with `all`.")
    return known if "all" in asked else asked


@cache
def documents() -> Documents:
    """The table of slides."""
    return cast(Documents, tomllib.loads((Path(__file__).parent / "slides.toml").read_text("utf-8")))


@cache
def errata() -> list[dict[str, str]]:
    """The documents' slips."""
    return cast(list[dict[str, str]], tomllib.loads((Path(__file__).parent / "errata.toml").read_text("utf-8"))["slip"])


def _says(name: str) -> str:
    return f'<p class="says">{both(about(name), about(name, "zh"))}</p>'


def _plain(quote: str) -> str:
    """What a document prints, without the marks of headings."""
    return quote.replace("**", "").replace("$$", "").lstrip("# ")


def _own(entry: Entry, shown: Mapping[str, int], here: int) -> str:
    """What stands on a document's own slide: its words, what it is about, its code, its exercises."""
    quote = f'<blockquote lang="zh-Hans">{html.escape(_plain(entry["zh"]))}</blockquote>'
    parts = [f'<div lang="en">{quote}</div>']
    if reason := entry.get("none"):
        why = documents()["reasons"][reason]
        return parts[0] + f"<p>{both('Nothing to compute: ' + why['en'], '没有要计算的：' + why['zh'])}</p>"
    for name in entry["see"]:
        parts.append(_says(name))
        if name in TRAINED and name != RECORDED:
            command = f"<code>regard lecture {name} --bundle DIR</code>"
            parts.append(f"<p>{both('With a trained model:', '需要训练好的模型：')} {command}</p>")
        elif shown[name] != here:
            link = both(f"{title(name)}: slide {shown[name]}", f"{title(name, 'zh')}：第 {shown[name]} 页")
            parts.append(f'<p><a href="#{shown[name]}">{link}</a></p>')
    if practised := _practised(frozenset(entry["see"])):
        names = ", ".join(f"<code>{name}</code>" for name in practised)
        parts.append(f"<p>{both('Homework:', '作业：')} {names}</p>")
    if code := entry.get("code"):
        parts.append(f"<p>{both('In the library:', '库中的代码：')} <code>{html.escape(code)}</code></p>")
    return "".join(parts)


@cache
def _practised(lectures: frozenset[str]) -> list[str]:
    from regard.studies.homework.exercise import exercises

    return [each.name for each in exercises().values() if lectures & {*each.lectures}]


def _slips(number: int, quotes: list[str]) -> list[list[str]]:
    """The slips of a document, as they are marked, by the slide that they stand on."""
    found: list[list[str]] = [[] for _ in quotes]
    squeezed = ["".join(_plain(quote).split()) for quote in quotes]
    for slip in (each for each in errata() if int(each["document"]) == number):
        place = "".join(_plain(slip.get("on", slip["slide"])).split())
        same = [i for i, one in enumerate(squeezed) if one == place]
        like = [i for i, one in enumerate(squeezed) if place in one or one in place]
        found[[*same, *like][0]].append(_slip(slip))
    return found


def _slips_of(name: str) -> list[str]:
    """The slips of the slides that a lecture computes, in all documents."""
    found = list[str]()
    for document in documents()["document"]:
        slides = document["slides"]
        marked = _slips(document["number"], [slide["zh"] for slide in slides])
        found += [
            slip for slide, slips in zip(slides, marked, strict=True) if name in slide.get("see", ()) for slip in slips
        ]
    return found


def _slip(slip: Mapping[str, str]) -> str:
    where = both(f"Erratum, “{slip['slide']}”", f"勘误（「{slip['slide']}」）")
    printed = both(f"printed: {slip['printed']}", f"原文：{slip['quote']}")
    right = both(f"right: {slip['right']}", f"应为：{slip['right_zh']}")
    return (
        f'<aside class="erratum" aria-label="{html.escape(slip["id"])}"><strong>{where}</strong><p>{printed}</p>'
        f"<p>{right}</p><p>{both(slip['en'], slip['zh'])}</p></aside>"
    )


def _page(titles: tuple[str, str, str], slides: list[Slide], language: str) -> str:
    sections = "\n".join(
        f'<section class="slide" id="slide-{n}" tabindex="-1"{"" if n == 1 else " hidden"}>'
        f"<h1>{both(slide.english, slide.chinese)}</h1>{slide.inside}</section>"
        for n, slide in enumerate(slides, 1)
    )
    back, on = both("Back", "上一页"), both("Next", "下一页")
    controls = (
        f'<nav class="deck" aria-label="slides"><button type="button" id="back">{back}</button>'
        f'<output id="where" aria-live="polite"></output><button type="button" id="next">{on}</button></nav>'
    )
    moving = any("data-widget" in slide.inside for slide in slides)
    return frame(titles, sections + controls, script=moving, slides=True, language=language)
