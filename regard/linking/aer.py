"""Alignment error rate of word alignments (Och and Ney 2003), with its precision and recall.

    precision = |A ∩ P| / |A|      recall = |A ∩ S| / |S|      AER = 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|)

A: the links to be scored; S: the sure links of the gold set; P: the possible ones, the sure among them. A link is a
pair of word numbers, source and target, from 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import numpy as np

from regard.errors import DataError
from regard.metrics.result import Counts, Metric, Score, Values

Link = tuple[int, int]
_LINK = re.compile(r"(\d+)([-p?])(\d+)")


class Gold(NamedTuple):
    """What people say of one pair of lines."""

    sure: frozenset[Link]
    possible: frozenset[Link]
    """The sure links among them."""


def parse_gold(line: str, *, base: int = 1, number: int = 1) -> Gold:
    """The links of one line: `i-j` is sure, `ipj` and `i?j` are possible; words are counted from `base`.

    Raises DataError, naming the line by `number`, for what is no link and for a word before the first.
    """
    sure, possible = set(), set()
    for item in line.split():
        found = _LINK.fullmatch(item)
        if not found:
            raise DataError(
                f"line {number}: {item!r} is no link; write 3-4 for a sure link and 3p4 for a possible one."
            )
        link = (int(found[1]) - base, int(found[3]) - base)
        if min(link) < 0:
            raise DataError(
                f"line {number}: {item!r} counts words from 0, and words are counted from {base} here; "
                "say so (--gold-base 0)."
            )
        possible.add(link)
        if found[2] == "-":
            sure.add(link)
    return Gold(frozenset(sure), frozenset(possible))


def alignment_error_rate(
    alignments: Sequence[Collection[Link]], gold: Sequence[Gold], *, resamples: int = 1000
) -> dict[str, Score]:
    """AER, precision and recall in percent, each with its interval by bootstrap over lines (0 resamples: none).

    No links at all are 100 percent precise. Raises DataError for no lines, unequal counts, and a gold set without any
    sure link.
    """
    if len(alignments) != len(gold) or not gold:
        raise DataError(
            f"{len(alignments):,} alignments but {len(gold):,} gold lines; there must be as many, and at least one."
        )
    each = [
        (len(links), len(sure), len(sure.intersection(links)), len(possible.intersection(links)))
        for links, (sure, possible) in zip(map(frozenset, alignments), gold, strict=True)
    ]
    counts = np.array(each, dtype=np.float64)
    links, sure = map(int, counts.sum(axis=0)[:2])
    if not sure:
        raise DataError("the gold set has no sure link, so no error rate is defined; mark sure links as 3-4.")
    signature = f"nlines:{len(gold)}|sure:{sure}|possible:{sum(len(g.possible) for g in gold)}|links:{links}"
    found = {}
    for name, figure in _FIGURES.items():
        metric = Metric(name, None, higher_is_better=name != "AER")
        found[name.lower()] = metric.score(Counts(counts, figure, signature), resamples)
    return found


def _aer(sums: Values) -> float:
    links, sure, hit_sure, hit_possible = map(float, sums)
    return 100 * (1 - (hit_sure + hit_possible) / (links + sure)) if links + sure else 0.0


_FIGURES: dict[str, Callable[[Values], float]] = {
    "AER": _aer,
    "precision": lambda sums: 100 * float(sums[3] / sums[0]) if sums[0] else 100.0,
    "recall": lambda sums: 100 * float(sums[2] / sums[1]) if sums[1] else 100.0,
}
"""Of four sums: links, sure links of gold, links that are sure, links that are possible."""
