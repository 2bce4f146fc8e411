"""Errors of pronunciations: symbols between spaces, a word a line, several right ones possible.

The phoneme error rate is edits (substitutions, insertions, deletions) for each hundred symbols of the references; of a
word's references the one that takes the fewest edits counts (Yao and Zweig 2015), of equals the longest. The word error
rate is the share of words that equal none of theirs. So computed, the first is also the word error rate of speech
recognition, whose symbols are words.
"""

from __future__ import annotations

from collections.abc import Sequence

from .lines import LineMetric

__all__ = ["edits", "phoneme_error_rate", "word_error_rate"]


def edits(one: Sequence[str], other: Sequence[str]) -> int:
    """The fewest substitutions, insertions and deletions that make one of the other (Levenshtein 1966)."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, start=1):
        before, row[0] = row[0], i
        for j, b in enumerate(other, start=1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]


def _phonemes(
    hypotheses: Sequence[str], references: list[list[str]], language: str
) -> tuple[list[float], list[float], str]:
    wrong, total = [], []
    for hypothesis, rights in zip(hypotheses, zip(*references, strict=True), strict=True):
        written = hypothesis.split()
        fewest, longest = min((edits(written, right.split()), -len(right.split())) for right in rights)
        wrong.append(float(fewest))
        total.append(float(-longest))
    return wrong, total, "case:mixed|sym:space|ref:closest"


def _words(
    hypotheses: Sequence[str], references: list[list[str]], language: str
) -> tuple[list[float], list[float], str]:
    pairs = zip(hypotheses, zip(*references, strict=True), strict=True)
    wrong = [float(all(h.split() != right.split() for right in rights)) for h, rights in pairs]
    return wrong, [1.0] * len(wrong), "case:mixed|sym:space|ref:any"


phoneme_error_rate = LineMetric(
    "phoneme error rate", _phonemes, "edits per 100 reference symbols", higher_is_better=False
)
word_error_rate = LineMetric("word error rate", _words, "percent", higher_is_better=False)
