"""Metrics that are counted line by line: exact match, phoneme error rate and word error rate.

Exact match is the share of lines equal to a reference, character for character, without trimming or folding. The other
two are of pronunciations, one a line, with spaces between the symbols and perhaps several right ones. The phoneme error
rate is edits (substitutions, insertions, deletions) for each hundred symbols of the references; of a word's references
the one that takes the fewest edits counts (Yao and Zweig 2015), of equals the longest. The word error rate is the share
of words that equal none of theirs. (Speech recognition, whose symbols are words, calls the first one word error rate.)
"""

from __future__ import annotations

from collections.abc import Sequence

from .result import Counts, Metric, rate


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
    wrong, total = [], []
    for hypothesis, rights in zip(hypotheses, zip(*sets, strict=True), strict=True):
        written = hypothesis.split()
        fewest, longest = min((edits(written, right.split()), -len(right.split())) for right in rights)
        wrong.append(float(fewest))
        total.append(float(-longest))
    return rate(wrong, total, len(sets), "case:mixed|sym:space|ref:closest")


def _words(hypotheses: Sequence[str], sets: list[list[str]], language: str) -> Counts:
    pairs = zip(hypotheses, zip(*sets, strict=True), strict=True)
    wrong = [float(all(h.split() != right.split() for right in rights)) for h, rights in pairs]
    return rate(wrong, None, len(sets), "case:mixed|sym:space|ref:any")


exact_match = Metric("exact match", _exact, default=True)
phoneme_error_rate = Metric("phoneme error rate", _phonemes, "edits per 100 reference symbols", higher_is_better=False)
word_error_rate = Metric("word error rate", _words, higher_is_better=False)
