"""Labelled brackets of parse trees against gold ones, counted as EVALB does with COLLINS.prm (Collins 1997).

    precision = brackets in both / brackets found      recall = brackets in both / brackets of gold
    F1 = 2 · precision · recall / (precision + recall)

All are of the sums over a corpus. A bracket is a label with the number of its first word, from 0, and of the one behind
its last. Punctuation is taken out of the sentence first, and with it the brackets that hold nothing else; sentences
that hold nothing else are left out of the exact trees, as EVALB skips them. PRT counts as ADVP; a bracket that stands
twice counts twice. Tags are not scored: which words are punctuation, the gold tags say.

In one point this differs from COLLINS.prm, which takes out the bracket around a whole tree only if it is called TOP:
here ROOT and S1 are taken out as well, since every tree has that bracket and counting it makes F1 higher. The signature
says so (outer:no).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from regard.errors import DataError
from regard.metrics import METRICS, Counts, Metric, Score

from .trees import OUTER, Bracket, Tree

PUNCTUATION = frozenset((",", ":", "``", "''", "."))
"""Tags of the words that are taken out; brackets of words (-LRB-) and signs ($, #) stay."""
_AS = {"PRT": "ADVP"}


def score_trees(found: Sequence[Tree], gold: Sequence[Tree], *, resamples: int = 1000) -> dict[str, Score]:
    """F1, precision, recall and exact match of trees over the same words, with intervals by bootstrap over sentences.

    In percent; 0 resamples leave out the intervals. A figure that has nothing to divide by is 100 percent.
    Raises DataError, naming the tree, where the words differ, for no trees and for unequal counts.
    """
    if len(found) != len(gold) or not gold:
        raise DataError(f"{len(found):,} trees and {len(gold):,} gold trees; there must be as many, and at least one.")
    for number, pair in enumerate(zip(found, gold, strict=True), start=1):
        words = [" ".join(word.text for word in tree.words()) for tree in pair]
        if words[0] != words[1]:
            raise DataError(
                f"tree {number} is over {words[0][:60]!r}, and its gold tree over {words[1][:60]!r}; both must have "
                "the same words."
            )
    counts = np.array([_counts(*pair) for pair in zip(found, gold, strict=True)], dtype=np.float64)
    both, ours, theirs, exact, counted = map(int, counts.sum(axis=0))
    detail = {"matched": both, "found": ours, "gold": theirs, "exact": exact, "skipped": len(gold) - counted}
    signature = "nrefs:1|like:evalb-collins|punct:no|outer:no|prt:advp|tags:gold"
    figures = {
        "f1": (METRICS["brackets"], lambda sums: _percent(2 * sums[0], sums[1] + sums[2])),
        "precision": (Metric("precision", None, reads="trees"), lambda sums: _percent(sums[0], sums[1])),
        "recall": (Metric("recall", None, reads="trees"), lambda sums: _percent(sums[0], sums[2])),
        "exact": (Metric("exact trees", None, reads="trees"), lambda sums: _percent(sums[3], sums[4])),
    }
    return {
        key: metric.score(Counts(counts, figure, signature, detail), resamples)
        for key, (metric, figure) in figures.items()
    }


def _percent(part: float, whole: float) -> float:
    return 100 * float(part / whole) if whole else 100.0


def _counts(found: Tree, gold: Tree) -> tuple[int, ...]:
    """Brackets in both, found and of gold; whether all are the same; whether the sentence counts at all."""
    # Of each word, and of the end: how many words that count stand before it.
    before = [0, *accumulate(word.tag not in PUNCTUATION for word in gold.words())]
    ours, theirs = _counted(found.brackets(), before), _counted(gold.brackets(), before)
    counts = before[-1] > 0
    return (ours & theirs).total(), ours.total(), theirs.total(), int(counts and ours == theirs), int(counts)


def _counted(brackets: Sequence[Bracket], before: Sequence[int]) -> Counter[Bracket]:
    return Counter(
        (_AS.get(label, label), before[start], before[end])
        for label, start, end in brackets
        if label not in OUTER and before[start] < before[end]
    )
