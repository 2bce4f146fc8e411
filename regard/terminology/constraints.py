"""What a translation must and must not contain, in words: from text to the rules of a search.

A required or forbidden phrase is found in every segmentation, and by whole words: see `regard.terminology.automaton`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from regard.errors import ModelError, TextError
from regard.search.constraints import Rules
from regard.search.hypotheses import Hypothesis
from regard.search.table import Constraints, SearchConfig
from regard.tasks.decode import RulesOf
from regard.tasks.engine import Engine
from regard.text.shortlist import Shortlist
from regard.text.tokenizer import BEGIN, END, PAD, UNK, Tokenizer

from .automaton import MOST, Phrases, Spelling, Terms, occurs

PLACEHOLDER = re.compile(
    r"https?://[^\s<>\"]*[^\s<>\".,;:!?)\]}']"  # a URL, without the sentence's punctuation
    r"|\{[^{}\s]*\}"  # {name}
    r"|</?[A-Za-z][\w-]*/?>"  # <x1>, </b>, <br/>
    r"|%\(\w+\)[sdif]|%(?:\d+\$)?[sdif](?!\w)"  # %(name)s, %1$s, %s
)


@dataclass(frozen=True)
class Demand:
    """The constraints of one line, in tokens and phrases."""

    required: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()
    forced: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.required or self.forbidden or self.forced)

    def broken(self, text: str) -> str:
        """What a text lacks of the required phrases, or has of the forbidden ones; empty if it keeps all."""
        lacking = [f"{phrase!r} is missing" for phrase in self.required if not occurs(phrase, text)]
        return "; ".join([*lacking, *(f"{phrase!r} is there" for phrase in self.forbidden if occurs(phrase, text))])

    def check(self, text: str, number: int) -> None:
        """Raises ModelError for a text that does not keep the demand."""
        if broken := self.broken(text):
            raise ModelError(
                f"line {number}: the translation breaks its constraints ({broken}): it holds bytes that are no text, "
                "which hid the phrase from the search; ask for a wider beam, more samples or another seed."
            )

    def kept(
        self, hypotheses: Sequence[Hypothesis], text_of: Callable[[Sequence[int]], str], number: int
    ) -> list[Hypothesis]:
        """The hypotheses whose texts keep the demand: nearly always all, since the search saw to it."""
        kept = [h for h in hypotheses if not self.broken(text_of(h.ids))]
        if not kept:
            self.check(text_of(hypotheses[0].ids), number)
        return kept


@dataclass(frozen=True)
class Demands:
    """The constraints of some lines, and the search that is to keep them."""

    demands: tuple[Demand, ...]
    search: SearchConfig | None = None
    spelling: Spelling | None = None
    always: NDArray[np.int32] | None = None
    """Of a search over a shortlist, the tokens that are in it in any case."""

    @classmethod
    def of(
        cls, constraints: Constraints | Sequence[Constraints], lines: Sequence[str], first_line: int, target: Tokenizer
    ) -> Demands:
        """What each line's translation must keep. Raises TextError, naming the line, for phrases that cannot be."""
        each = [constraints] * len(lines) if isinstance(constraints, Constraints) else list(constraints)
        if len(each) != len(lines):
            raise TextError(
                f"{len(lines):,} lines but {len(each):,} constraints; give one for each line, or one for all."
            )
        glossaries: dict[int, Terms] = {}  # by the glossary's identity: one is often that of all lines
        made = []
        for number, (asked, line) in enumerate(zip(each, lines, strict=True), first_line):
            if id(asked.glossary) not in glossaries:
                glossaries[id(asked.glossary)] = _terms(asked.glossary)
            found = glossaries[id(asked.glossary)].in_text(line)
            made.append(_demand(asked, [asked.glossary[i][1] for i in found], line, number, target))
        return cls(tuple(made))

    def under(self, search: SearchConfig, shortlist: Shortlist | None, engine: Engine, target: Tokenizer) -> Demands:
        """The demands with what their rules are made of; the engine keeps what each token spells."""
        phrases = any(demand.required or demand.forbidden for demand in self.demands)
        spelling = engine.keep("spelling", lambda: spelling_of(target)) if phrases else None
        return replace(self, search=search, spelling=spelling, always=None if shortlist is None else shortlist.always)

    def rules(self, numbers: Sequence[int]) -> RulesOf:
        """The rules of the search for each of these lines; lines with the same phrases share an automaton."""
        made: dict[tuple[tuple[str, ...], tuple[str, ...]], Phrases] = {}

        def rules(index: int, limit: int) -> Rules:
            demand = self.demands[numbers[index]]
            key = (demand.required, demand.forbidden)
            phrases = None
            if self.spelling is not None and any(key):
                phrases = made[key] = made.get(key) or Phrases(self.spelling, *key, self.always)
            search = self.search or SearchConfig()
            return Rules(limit, search.min_length, search.no_repeat_ngram_size, demand.forced, phrases)

        return rules


@lru_cache(maxsize=4)
def _terms(glossary: tuple[tuple[str, str], ...]) -> Terms:
    return Terms(ours.strip() for ours, _ in glossary)


def _demand(constraints: Constraints, terms: list[str], line: str, number: int, target: Tokenizer) -> Demand:
    wanted = [*constraints.include, *terms]
    if constraints.placeholders:
        wanted += PLACEHOLDER.findall(line)
    required = tuple(dict.fromkeys(_phrase(phrase, number, target) for phrase in wanted))
    if len(required) > MOST:
        raise TextError(
            f"line {number} requires {len(required)} phrases; at most {MOST} can be kept at once: split the line."
        )
    forbidden = tuple(dict.fromkeys(_phrase(phrase, number, target) for phrase in constraints.forbid))
    for phrase, banned in product(required, forbidden):
        if occurs(banned, phrase):
            raise TextError(
                f"line {number} requires {phrase!r} and forbids {banned!r}, which is in it; drop one of the two."
            )
    return Demand(required, forbidden, tuple(target.encode(constraints.prefix)) if constraints.prefix else ())


def _phrase(phrase: str, number: int, target: Tokenizer) -> str:
    phrase = phrase.strip()
    if not phrase or "\u2581" in phrase or len(phrase.splitlines()) > 1 or "\0" in phrase:
        raise TextError(f"line {number}: {phrase!r} is no phrase; give text of one line, without U+2581.")
    written = target.decode(target.encode(phrase))
    if "\u2047" in written and "\u2047" not in phrase:
        raise TextError(f"line {number}: {phrase!r} has a character that this bundle's vocabulary cannot write.")
    return written


def spelling_of(target: Tokenizer) -> Spelling:
    """What each token of the vocabulary spells in a translation."""
    spelled = []
    for i, token in enumerate(target.tokens(range(len(target)))):
        if i in (PAD, BEGIN, END):
            spelled.append(b"")
        elif i == UNK:
            spelled.append(" \u2047 ".encode())
        elif target.unknown_count([i]):
            # Line breaks become spaces in a translation, and NUL goes.
            byte = bytes([int(token[3:5], 16)])
            spelled.append({b"\n": b" ", b"\r": b" ", b"\0": b""}.get(byte, byte))
        else:
            spelled.append(token.replace("\u2581", " ").encode())
    return Spelling(spelled)


def read_glossary(lines: Sequence[str], name: str) -> tuple[tuple[str, str], ...]:
    """Pairs of terms from lines "source term, tab, target term"; blank lines are left out."""
    pairs = []
    for number, line in enumerate(lines, start=1):
        fields = [field.strip() for field in line.split("\t")]
        if line.strip() and (len(fields) != 2 or not all(fields)):
            raise TextError(f"{name}: line {number} ({line[:40]!r}) must be a source term, a tab and a target term.")
        if line.strip():
            pairs.append((fields[0], fields[1]))
    return tuple(pairs)
