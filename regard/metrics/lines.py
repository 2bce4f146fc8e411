"""Metrics that are counted line by line: exact match, phoneme and word error rate, and ROUGE.

Exact match is the share of lines equal to a reference, character for character, without trimming or folding. Phoneme
and word error rate are of pronunciations, one a line, with spaces between the symbols and perhaps several right ones.
The phoneme error rate is edits (substitutions, insertions, deletions) for each hundred symbols of the references; of a
word's references the one that takes the fewest edits counts (Yao and Zweig 2015), of equals the longest. The word error
rate is the share of words that equal none of theirs. (Speech recognition, whose symbols are words, calls the first one
word error rate.)

ROUGE-1, ROUGE-2 and ROUGE-L are F1 (Lin 2004) through rouge-score: the mean over lines, the best reference of a line.
rouge-score's own tokenizer keeps a-z and 0-9 alone: "Mädchen" becomes two words and a Chinese line none at all. It is
used for English, so that figures compare; every other language, and a language not named, is split by `words`, which
gives the same words on ASCII text. The signature says which (tok:rouge-score or tok:unicode).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import lru_cache, partial
from importlib.metadata import version

from regard.errors import DataError, install

from .result import Counts, Metric, rate
from .sacre import primary

# Scripts written without spaces between words, where a character stands for itself: first and last code point.
UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x2E80, 0x2FDF),  # Han radicals
    (0x3005, 0x3007),  # 々 〆 〇
    (0x3040, 0x312F),  # Hiragana, Katakana, Bopomofo
    (0x31A0, 0x31FF),  # Bopomofo and Katakana extensions
    (0x3400, 0x4DBF),  # Han extension A
    (0x4E00, 0x9FFF),  # Han
    (0xF900, 0xFAFF),  # Han compatibility
    (0xFF66, 0xFF9F),  # half-width Katakana
    (0x20000, 0x3FFFF),  # Han extensions B and on
)


def edits(one: Sequence[str], other: Sequence[str]) -> int:
    """The fewest substitutions, insertions and deletions that make one of the other (Levenshtein 1966)."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, start=1):
        before, row[0] = row[0], i
        for j, b in enumerate(other, start=1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]


def _exact(hypotheses: Sequence[str], sets: list[list[str]], language: str) -> Counts:
    same = [float(h in right) for h, right in zip(hypotheses, zip(*sets, strict=True), strict=True)]
    return rate(same, None, len(sets), "case:mixed|norm:no|space:kept")


def _phonemes(hypotheses: Sequence[str], sets: list[list[str]], language: str) -> Counts:
    # Of each line the fewest edits, and minus the symbols of the reference that takes them.
    found = [
        min((edits(h.split(), right.split()), -len(right.split())) for right in rights)
        for h, rights in zip(hypotheses, zip(*sets, strict=True), strict=True)
    ]
    wrong, total = [float(fewest) for fewest, _ in found], [float(-longest) for _, longest in found]
    return rate(wrong, total, len(sets), "case:mixed|sym:space|ref:closest")


def _words(hypotheses: Sequence[str], sets: list[list[str]], language: str) -> Counts:
    pairs = zip(hypotheses, zip(*sets, strict=True), strict=True)
    wrong = [float(all(h.split() != right.split() for right in rights)) for h, rights in pairs]
    return rate(wrong, None, len(sets), "case:mixed|sym:space|ref:any")


def _rouge(hypotheses: Sequence[str], sets: list[list[str]], language: str, *, kind: str) -> Counts:
    try:
        from rouge_score.rouge_scorer import RougeScorer
        from rouge_score.tokenizers import DefaultTokenizer
    except ImportError as missing:
        raise DataError(
            f"ROUGE needs the package rouge-score, which is not installed ({missing}): {install('rouge')}."
        ) from missing
    english = primary(language) == "en"
    scorer = RougeScorer([kind], tokenizer=DefaultTokenizer(use_stemmer=False) if english else _Unicode())
    pairs = zip(zip(*sets, strict=True), hypotheses, strict=True)
    values = [float(scorer.score_multi(list(right), h)[kind].fmeasure) for right, h in pairs]
    tokenizer = "rouge-score" if english else "unicode"
    return rate(values, None, len(sets), f"f:1|case:lc|tok:{tokenizer}|stem:no|version:{version('rouge-score')}")


class _Unicode:
    """`words` in the shape that rouge-score asks for."""

    def tokenize(self, text: str) -> list[str]:
        return words(text)


def words(text: str) -> list[str]:
    """Lower-cased runs of letters, digits and their marks; a character of a script without spaces is its own word."""
    found: list[str] = []
    before = "gap"
    for character in unicodedata.normalize("NFC", text.lower()):
        kind = _kind(character)
        if kind == "mark":  # stays with what it marks
            if before != "gap":
                found[-1] += character
            continue
        if kind == before == "word":
            found[-1] += character
        elif kind != "gap":
            found.append(character)
        before = kind
    return found


@lru_cache(maxsize=1 << 16)
def _kind(character: str) -> str:
    category = unicodedata.category(character)[0]
    if category not in "LN":
        return "mark" if category == "M" else "gap"
    return "alone" if any(first <= ord(character) <= last for first, last in UNSPACED) else "word"


exact_match = Metric("exact match", _exact, default=True)
phoneme_error_rate = Metric("phoneme error rate", _phonemes, "edits per 100 reference symbols", higher_is_better=False)
word_error_rate = Metric("word error rate", _words, higher_is_better=False)
rouge_1 = Metric("ROUGE-1", partial(_rouge, kind="rouge1"))
rouge_2 = Metric("ROUGE-2", partial(_rouge, kind="rouge2"))
rouge_l = Metric("ROUGE-L", partial(_rouge, kind="rougeL"))
