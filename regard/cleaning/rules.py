"""What makes a pair of lines unfit to learn from. One more rule is one more entry of `RULES`.

A rule looks at one pair and knows nothing of the others; what needs the corpus (its usual lengths, pairs that came
before, words that go together) is in `clean.py` and `likeness.py`.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, Field

from regard.errors import DataError, install
from regard.text.languages import primary
from regard.text.sentences import words

if TYPE_CHECKING:
    from lingua import ConfidenceValue, Language, LanguageDetector


class Rules(BaseModel, extra="forbid", frozen=True):
    """How strict each rule is; the fields are the flags of `regard clean`."""

    off: tuple[str, ...] = Field((), description="a rule that is not applied, such as language; may be repeated")
    max_words: int = Field(250, ge=1, description="most words of a side; a character of Chinese or Japanese is a word")
    max_ratio: float = Field(
        2.5, gt=1, description="most times that a pair's ratio of lengths may be above or below the corpus's usual one"
    )
    min_letters: float = Field(0.4, ge=0, le=1, description="least share of letters among the characters of a side")
    digits: int = Field(3, ge=1, description="numbers of at least so many digits must be the same on both sides")
    sure: float = Field(0.9, ge=0, le=1, description="how sure another language must be for a line to be in it")
    duplicates: Literal["pair", "source", "target"] = Field(
        "pair", description="what may not come twice: a pair, or the line of one side"
    )
    worse: float = Field(
        0.8, ge=0, le=1, description="leave out pairs whose words go together worse than this share of random pairs"
    )
    held_out: tuple[str, ...] = Field(
        (), description="a file of lines that must not be learnt from, such as a test set's; may be repeated"
    )
    learn_from: int = Field(100_000, ge=100, description="most pairs that are read to learn which words go together")


@dataclass(frozen=True)
class Pair:
    """Two lines, and what several rules ask of them."""

    source: str
    target: str

    @property
    def sides(self) -> tuple[str, str]:
        return self.source, self.target

    @cached_property
    def lengths(self) -> tuple[int, int]:
        """Characters of each side, spaces aside."""
        return len("".join(self.source.split())), len("".join(self.target.split()))

    @cached_property
    def words(self) -> tuple[list[str], list[str]]:
        """The words of each side in small letters, signs among them."""
        first, second = ([line[start:end].lower() for start, end in words(line)] for line in self.sides)
        return first, second


@dataclass(frozen=True)
class Corpus:
    """What rules may know of the whole: its languages, the usual ratio of its lengths, lines that are held out."""

    languages: tuple[str, str] = ("", "")
    log_ratio: float = 0.0  # median of the logarithm of the target's characters per character of the source
    held_out: frozenset[str] = frozenset()  # as `bare` has them


Rule = Callable[[Pair, Rules, Corpus], bool]
"""A pair, how strict to be, the corpus -> whether the pair is to go."""


def _empty(pair: Pair, rules: Rules, corpus: Corpus) -> bool:
    return not all(pair.lengths)


def _held_out(pair: Pair, rules: Rules, corpus: Corpus) -> bool:
    return bool(corpus.held_out) and any(bare(side) in corpus.held_out for side in pair.sides)


def bare(line: str) -> str:
    """Letters and digits of a line, whatever their case and width: what is the same for lines that hardly differ."""
    folded = unicodedata.normalize("NFKC", line).casefold()
    return "".join(c for c in folded if unicodedata.category(c)[0] in "LMN")


def _damaged(pair: Pair, rules: Rules, corpus: Corpus) -> bool:
    return any(_DAMAGE.search(side) for side in pair.sides)


def _identical(pair: Pair, rules: Rules, corpus: Corpus) -> bool:
    return pair.source.split() == pair.target.split() and any(map(str.isalpha, pair.source))


def _length(pair: Pair, rules: Rules, corpus: Corpus) -> bool:
    return any(len(side) > rules.max_words for side in pair.words)


def _ratio(pair: Pair, rules: Rules, corpus: Corpus) -> bool:
    """Of short lines some characters more say nothing, so that each side is taken as a few characters longer."""
    usual = pair.lengths[0] * math.exp(corpus.log_ratio) + _SHORT
    found = (pair.lengths[1] + _SHORT) / usual
    return max(found, 1 / found) > rules.max_ratio


def _letters(pair: Pair, rules: Rules, corpus: Corpus) -> bool:
    shares = [
        sum(unicodedata.category(c)[0] in "LMN" for c in side) / max(1, length)
        for side, length in zip(pair.sides, pair.lengths, strict=True)
    ]
    return min(shares) < rules.min_letters


def _numbers(pair: Pair, rules: Rules, corpus: Corpus) -> bool:
    """Where one side has none, it may have spelt them."""
    source, target = (Counter(numbers(side, rules.digits)) for side in pair.sides)
    return bool(source and target) and source != target


def numbers(line: str, digits: int) -> list[str]:
    """The numbers of at least so many digits, without what groups them: 10,000 and 10.000 are one."""
    found = (re.sub(r"\D", "", match[0]) for match in _NUMBER.finditer(line))
    return ["".join(str(unicodedata.digit(c)) for c in each) for each in found if len(each) >= digits]


_DAMAGE = re.compile(
    "[\ufffd\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]|Ã[\x80-\xbf¤¶¼Ÿ©¨ª«®±³º]|â€[™œ“”˜\x9d]|&(?:amp|lt|gt|quot|#\\d+);"
)
"""Characters that stand for lost ones, controls, UTF-8 read as Latin-1, and entities that were never read."""
_NUMBER = re.compile(r"\d{1,3}(?:[.,\u00a0\u202f'’ ]\d{3})+(?!\d)|\d+")
_SHORT = 10

RULES: dict[str, tuple[str, Rule | None]] = {
    "empty": ("a side without text", _empty),
    "held-out": ("a side stands in a file of --held-out, signs and capitals aside", _held_out),
    "damaged": ("characters lost on the way, or text read in a wrong encoding", _damaged),
    "identical": ("both sides are the same, letters among it", _identical),
    "length": ("a side of very many words", _length),
    "letters": ("a side that is mostly signs", _letters),
    "ratio": ("one side is far longer than is usual here", _ratio),
    "numbers": ("both sides have numbers, and not the same", _numbers),
    "duplicate": ("came before", None),
    "language": ("a side in another language", None),
    "alignment": ("its words go together no better than by chance", None),
}
"""In the order in which they are applied: what it means, and the rule, where it needs one pair alone."""


def check_rules(rules: Rules) -> None:
    """Raises DataError for a rule that there is not."""
    for name in rules.off:
        if name not in RULES:
            raise DataError(f"--off {name}: there is no such rule; choose among {', '.join(RULES)}.")


def detector(languages: tuple[str, str], rules: Rules) -> Callable[[list[str], int], list[bool]]:
    """A function from lines of side 0 or 1 to whether each is in another language than its side's, surely.

    A quick model of all languages names a suspect, and a thorough one of two languages decides. Raises DataError for a
    language that the library does not know, and where it is not installed.
    """
    try:
        from lingua import Language, LanguageDetectorBuilder
    except ModuleNotFoundError:
        raise DataError(
            f"the rule 'language' needs lingua: {install('clean')}, or leave the rule out by --off language."
        ) from None
    known = {language.iso_code_639_1.name.lower(): language for language in Language.all()}
    for code in languages:
        if primary(code) not in known:
            raise DataError(
                f"language {code!r} is not among the {len(known)} that are told apart; name both sides' by --from and "
                "--to, or leave the rule out by --off language."
            )
    wanted = [known[primary(code)] for code in languages]
    quick = LanguageDetectorBuilder.from_all_languages().with_low_accuracy_mode().build()

    @cache
    def thorough(*two: Language) -> LanguageDetector:
        return LanguageDetectorBuilder.from_languages(*two).build()

    def others(lines: list[str], side: int) -> list[bool]:
        found = quick.compute_language_confidence_values_in_parallel(lines)
        return [_surely(line, each, wanted[side]) for line, each in zip(lines, found, strict=True)]

    def _surely(line: str, found: list[ConfidenceValue], own: Language) -> bool:
        if not found or found[0].language == own or found[0].value < rules.sure:
            return False
        return thorough(own, found[0].language).compute_language_confidence(line, own) <= 1 - rules.sure

    return others
