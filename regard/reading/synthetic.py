"""Passages and questions made from templates: to try a reader where there is no reading data. They are no real text.

Each passage tells a few facts of people, towns, trades and years in several wordings; questions ask for one of them, or
for one that the passage does not tell. Names of the parts "valid" and "test" are made of syllables that no name of
"train" begins with, so that a reader must find them and cannot have learnt them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from regard.errors import DataError

from .squad import Question, Span


def _words(text: str) -> list[str]:
    return text.split()


_BEGINNINGS = {
    "train": _words("An Be Co Da El Fe Gi Ha In Jo Ka Lu Mi No Ol Pe Ro Sa To Ul Ve Wi Ya Za"),
    "valid": _words("Ab Ce Du Em Fo Ga"),
    "test": _words("Ba Di Eu Go Hu Il"),
}
_MIDDLES = _words("la ri no ve ta mi so du ka le pa ru")
_PEOPLE, _TOWNS = _words("na ro lin sa mund ta rik ne"), _words("burg ville stad ham ford mouth ton dal")
_TRADES = _words("baker teacher painter sailor doctor farmer writer miner weaver tailor singer judge")
_THINGS = _words("ship house piano horse bridge garden clock boat mill shop violin tower")


@dataclass(frozen=True)
class _Kind:
    """A fact of this kind: how it is told, what may be asked of it, and what the parts are."""

    parts: Callable[[Callable[[list[str]], str], random.Random], dict[str, str]]
    told: tuple[str, ...]
    asked: tuple[tuple[str, str], ...]  # a question, and the part that answers it


def _year(draw: random.Random) -> str:
    return str(draw.randint(1701, 1999))


_KINDS = (
    _Kind(
        lambda name, draw: {"from": name(_TOWNS), "to": name(_TOWNS), "year": _year(draw)},
        (
            "{who} moved from {from} to {to} in {year}.",
            "In {year}, {who} left {from} and went to {to}.",
            "{who}, who had lived in {from}, settled in {to} in {year}.",
        ),
        (
            ("Where did {who} move to?", "to"),
            ("Which town did {who} leave?", "from"),
            ("When did {who} leave {from}?", "year"),
            ("In which year did {who} come to {to}?", "year"),
        ),
    ),
    _Kind(
        lambda name, draw: {"trade": draw.choice(_TRADES), "place": name(_TOWNS)},
        ("{who} worked as a {trade} in {place}.", "In {place}, {who} was known as a good {trade}."),
        (
            ("What was the trade of {who}?", "trade"),
            ("Where did {who} work?", "place"),
            ("Who worked as a {trade}?", "who"),
        ),
    ),
    _Kind(
        lambda name, draw: {"other": name(_PEOPLE), "year": _year(draw)},
        ("{who} married {other} in {year}.", "In {year}, {who} and {other} were married."),
        (("Who did {who} marry?", "other"), ("When did {who} marry?", "year"), ("Who married {other}?", "who")),
    ),
    _Kind(
        lambda name, draw: {"thing": draw.choice(_THINGS), "other": name(_PEOPLE), "price": str(draw.randint(2, 900))},
        (
            "{who} sold a {thing} to {other} for {price} crowns.",
            "For {price} crowns, {other} bought a {thing} from {who}.",
        ),
        (
            ("What did {who} sell?", "thing"),
            ("Who bought the {thing}?", "other"),
            ("How many crowns did {other} pay?", "price"),
            ("Who sold a {thing}?", "who"),
        ),
    ),
)


def synthesize(count: int, *, part: str = "train", seed: int = 1, unanswerable: float = 0.25) -> list[Question]:
    """So many questions on synthetic passages, the same for the same arguments; `part` is train, valid or test.

    `unanswerable` is the share of questions that their passage does not answer. Raises DataError for wrong arguments.
    """
    if part not in _BEGINNINGS:
        raise DataError(f"part {part!r} is unknown; choose {', '.join(_BEGINNINGS)}.")
    if count < 1 or not 0 <= unanswerable <= 1:
        raise DataError(f"count ({count}) must be at least 1, and unanswerable ({unanswerable}) between 0 and 1.")
    draw = random.Random(f"{seed} {part}")
    made: list[Question] = []
    while len(made) < count:
        made += _passage(draw, part, unanswerable, len(made))
    return made[:count]


def _passage(draw: random.Random, part: str, unanswerable: float, number: int) -> list[Question]:
    """A passage's questions, one of each of its facts."""

    def name(endings: list[str]) -> str:
        while (made := _named(draw, part, endings)) in taken:
            pass
        taken.add(made)
        return made

    taken: set[str] = set()
    facts = [(kind, {"who": name(_PEOPLE), **kind.parts(name, draw)}) for kind in draw.choices(_KINDS, k=4)]
    sentences, places = [], []
    start = 0
    for kind, parts in facts:
        template = draw.choice(kind.told)
        sentence = template.format(**parts)
        places.append({key: start + sentence.index(value) for key, value in parts.items()})
        sentences.append(sentence)
        start += len(sentence) + 1
    passage = " ".join(sentences)
    found: list[Question] = []
    for (kind, parts), where in zip(facts, places, strict=True):
        template, wanted = draw.choice(kind.asked)
        right: tuple[Span, ...] = (Span(parts[wanted], where[wanted]),)
        asked = template.format(**parts)
        if sum(k is kind and template.format(**p) == asked for k, p in facts) > 1:
            continue  # two facts would answer it
        if draw.random() < unanswerable:
            # Nobody of the passage, or somebody of whom another fact is told: neither has an answer here.
            parts = {**parts, "who": name(_PEOPLE), "other": name(_PEOPLE), "trade": "pilot", "thing": "plane"}
            right = ()
            if draw.random() < 0.5 and (others := [p["who"] for k, p in facts if k is not kind]):
                parts["who"] = draw.choice(others)
        identity = f"{part}-{number + len(found) + 1}"
        found.append(Question(template.format(**parts), passage, right, identity, "synthetic"))
    return found


def _named(draw: random.Random, part: str, endings: list[str]) -> str:
    return draw.choice(_BEGINNINGS[part]) + draw.choice(_MIDDLES) + draw.choice(endings)
