"""ROUGE-1, ROUGE-2 and ROUGE-L F1 (Lin 2004) through rouge-score: the mean over lines, the best reference of a line.

rouge-score's own tokenizer keeps a-z and 0-9 alone: "Mädchen" becomes two words and a Chinese line none at all. It is
used for English, so that figures compare; every other language, and a language not named, is split by `words`, which
gives the same words on ASCII text. The signature says which (tok:rouge-score or tok:unicode).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import lru_cache, partial
from importlib.metadata import version
from itertools import groupby
from typing import Any, Literal

from ..errors import DataError, install
from .result import Counts, Metric, rate
from .sacre import primary

# Scripts written without spaces between words, where a character stands for itself: first and last code point.
UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x2E80, 0x2FDF),  # Han radicals
    (0x3005, 0x3007),  # 々 〆 〇
    (0x3040, 0x30FF),  # Hiragana, Katakana
    (0x3100, 0x312F),  # Bopomofo
    (0x31A0, 0x31FF),  # Bopomofo and Katakana extensions
    (0x3400, 0x4DBF),  # Han extension A
    (0x4E00, 0x9FFF),  # Han
    (0xF900, 0xFAFF),  # Han compatibility
    (0xFF66, 0xFF9F),  # half-width Katakana
    (0x20000, 0x3FFFF),  # Han extensions B and on
)
Kind = Literal["gap", "word", "alone", "mark"]


@lru_cache(maxsize=1 << 16)
def _kind(character: str) -> Kind:
    category = unicodedata.category(character)
    if category.startswith("M"):
        return "mark"
    if not category.startswith(("L", "N")):
        return "gap"
    return "alone" if any(first <= ord(character) <= last for first, last in UNSPACED) else "word"


def words(text: str) -> list[str]:
    """Lower-cased runs of letters, digits and their marks; a character of a script without spaces is its own word."""
    starts: list[tuple[int, str]] = []  # (number of the word, character), so that a mark stays with what it marks
    number, before = 0, "gap"
    for character in unicodedata.normalize("NFC", text.lower()):
        kind = _kind(character)
        if kind == "mark" and before != "gap":
            kind = "word" if before == "word" else "alone"
        elif kind == "alone" or (kind == "word" and before != "word"):
            number += 1
        if kind in ("word", "alone"):
            starts.append((number, character))
        before = kind if kind != "mark" else "gap"
    return ["".join(character for _, character in run) for _, run in groupby(starts, key=lambda item: item[0])]


class _Unicode:
    """`words` in the shape that rouge-score asks for."""

    def tokenize(self, text: str) -> list[str]:
        return words(text)


def _scorer(kind: str, language: str) -> tuple[Any, str]:
    try:
        from rouge_score.rouge_scorer import RougeScorer
        from rouge_score.tokenizers import DefaultTokenizer
    except ImportError as missing:
        raise DataError(
            f"ROUGE needs the package rouge-score, which is not installed ({missing}): {install('rouge')}."
        ) from missing
    english = primary(language) == "en"
    scorer = RougeScorer([kind], tokenizer=DefaultTokenizer(use_stemmer=False) if english else _Unicode())
    tokenizer = "rouge-score" if english else "unicode"
    return scorer, f"f:1|case:lc|tok:{tokenizer}|stem:no|version:{version('rouge-score')}"


def _lines(hypotheses: Sequence[str], sets: list[list[str]], language: str, *, kind: str) -> Counts:
    scorer, signature = _scorer(kind, language)
    pairs = zip(zip(*sets, strict=True), hypotheses, strict=True)
    values = [float(scorer.score_multi(list(right), h)[kind].fmeasure) for right, h in pairs]
    return rate(values, None, len(sets), signature)


rouge_1 = Metric("ROUGE-1", partial(_lines, kind="rouge1"))
rouge_2 = Metric("ROUGE-2", partial(_lines, kind="rouge2"))
rouge_l = Metric("ROUGE-L", partial(_lines, kind="rougeL"))
