"""Labelled brackets of parse trees against gold ones, as EVALB counts them with COLLINS.prm (Collins 1997).

    precision = brackets in both / brackets found      recall = brackets in both / brackets of gold
    F1 = 2 · precision · recall / (precision + recall)

All are of the sums over a corpus. A bracket is a label with the number of its first word, from 0, and of the one behind
its last. Punctuation is taken out of the sentence first, and with it the brackets that hold nothing else; the bracket
around a whole tree (TOP) does not count; PRT counts as ADVP; a bracket that stands twice counts twice. Tags are not
scored: which words are punctuation, the gold tags say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from regard.errors import DataError
from regard.metrics.bootstrap import SEED, Rows, interval_of, resampled
from regard.metrics.result import Score, resamples_for

__all__ = ["PUNCTUATION", "Bracket", "bracket_scores"]

Bracket = tuple[str, int, int]

PUNCTUATION = frozenset((",", ":", "``", "''", "."))
"""Tags of the words that are taken out; brackets of words (-LRB-) and signs ($, #) stay."""
_AROUND = frozenset(("", "TOP", "ROOT", "S1"))
_AS = {"PRT": "ADVP"}


def bracket_scores(
    found: Sequence[Sequence[Bracket]],
    gold: Sequence[Sequence[Bracket]],
    tags: Sequence[Sequence[str]],
    *,
    resamples: int = 1000,
) -> dict[str, Score]:
    """F1, precision, recall and exact match in percent, each with its interval by bootstrap over sentences.

    `tags` are the gold tags of each sentence's words; 0 resamples leave out the intervals. Raises DataError for no
    sentences and for unequal counts.
    """
    if not len(found) == len(gold) == len(tags) or not gold:
        raise DataError(
            f"brackets of {len(found):,} sentences, gold brackets of {len(gold):,} and tags of {len(tags):,}; there "
            "must be as many of each, and at least one."
        )
    counts = np.array(
        [_counts(*each) for each in zip(found, gold, tags, strict=True)], dtype=np.int64
    )  # (sentences, 4): in both, found, of gold, exact
    kept = resamples_for(len(gold), resamples)
    drawn = f"|bs:{kept}|seed:{SEED}" if kept else ""
    both, ours, theirs, exact = map(int, counts.sum(axis=0))
    scores = {}
    for place, (key, name) in enumerate(
        (("f1", "bracket F1"), ("precision", "precision"), ("recall", "recall"), ("exact", "exact trees"))
    ):

        def figure(rows: Rows, place: int = place) -> float:
            return _figures(counts[rows])[place]

        scores[key] = Score(
            name=name,
            value=figure(np.arange(len(gold))),
            signature=f"nrefs:1{drawn}|evalb:collins|punct:no|top:no|prt:advp|tags:gold",
            unit="percent",
            interval=interval_of(resampled(figure, len(gold), kept)) if kept else None,
            detail={"lines": len(gold), "matched": both, "found": ours, "gold": theirs, "exact": exact},
        )
    return scores


def _counts(found: Sequence[Bracket], gold: Sequence[Bracket], tags: Sequence[str]) -> tuple[int, int, int, int]:
    # Of each word, and of the end: how many words that count stand before it.
    before = [0, *accumulate(tag not in PUNCTUATION for tag in tags)]
    ours, theirs = _counted(found, before), _counted(gold, before)
    return (ours & theirs).total(), ours.total(), theirs.total(), int(ours == theirs)


def _counted(brackets: Sequence[Bracket], before: Sequence[int]) -> Counter[Bracket]:
    return Counter(
        (_AS.get(label, label), before[start], before[end])
        for label, start, end in brackets
        if label not in _AROUND and before[start] < before[end]
    )


def _figures(counts: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> tuple[float, float, float, float]:
    """F1, precision, recall and exact match; what has nothing to divide by is 100 percent."""
    both, ours, theirs, exact = map(int, counts.sum(axis=0))
    return (
        200 * both / (ours + theirs) if ours + theirs else 100.0,
        100 * both / ours if ours else 100.0,
        100 * both / theirs if theirs else 100.0,
        100 * exact / len(counts),
    )
