"""Whether confidences are what they say: of what is given 0.9, nine of ten should be right.

Expected calibration error (Guo et al. 2017, "On Calibration of Modern Neural Networks", equation 3): in bins of equal
width, the gap between the mean confidence and the share that is right, weighted by how many fell into the bin. What is
off is put right by a curve that never falls, by isotonic regression (Zadrozny and Elkan 2002, "Transforming Classifier
Scores into Accurate Multiclass Probability Estimates").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.errors import DataError

_POINTS, _EACH = 40, 50
"""A curve's points at most, and how many verdicts each rests on at least."""


@dataclass(frozen=True)
class Bin:
    """What was given a confidence within these bounds: how many, their mean confidence, the share that is right."""

    low: float
    high: float
    count: int
    confidence: float
    right: float


@dataclass(frozen=True)
class Reliability:
    """Confidences beside what was right."""

    count: int
    right: float  # the share of all that is right
    error: float  # expected calibration error, from 0 to 1; lower is better
    auc: float  # how often a right one has more confidence than a wrong one; 0.5 is chance, and a tie is half
    bins: tuple[Bin, ...]  # those that are not empty

    def to_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        return {**vars(self), "bins": [vars(each) for each in self.bins]}


def reliability(confidences: Sequence[float], right: Sequence[bool], bins: int = 15) -> Reliability:
    """Raises DataError if there is nothing to judge by, or not one verdict for each confidence."""
    given, verdicts = _checked(confidences, right)
    numbers = np.minimum((given * bins).astype(int), bins - 1)
    found = [
        Bin(b / bins, (b + 1) / bins, int(inside.sum()), float(given[inside].mean()), float(verdicts[inside].mean()))
        for b in range(bins)
        if (inside := numbers == b).any()
    ]
    error = sum(b.count * abs(b.confidence - b.right) for b in found) / given.size
    return Reliability(given.size, float(verdicts.mean()), error, _auc(given, verdicts), tuple(found))


def curve(confidences: Sequence[float], right: Sequence[bool]) -> tuple[tuple[float, float], ...]:
    """Points (confidence, share that is right), both rising: what a confidence is to be read as.

    Points stand for equal numbers of verdicts; where the share would fall, neighbours are put together.
    """
    given, verdicts = _checked(confidences, right)
    order = np.argsort(given, kind="stable")
    found: list[tuple[int, float, float]] = []  # how many, the sum of their confidences, how many are right
    for group in np.array_split(order, min(max(given.size // _EACH, 1), _POINTS)):
        found.append((len(group), float(given[group].sum()), float(verdicts[group].sum())))
        while len(found) > 1 and found[-2][2] / found[-2][0] >= found[-1][2] / found[-1][0]:
            last, one = found.pop(), found.pop()
            found.append((one[0] + last[0], one[1] + last[1], one[2] + last[2]))
    return tuple((total / count, good / count) for count, total, good in found)


def _checked(confidences: Sequence[float], right: Sequence[bool]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    given, verdicts = np.asarray(confidences, dtype=np.float64), np.asarray(right, dtype=np.bool_)
    if given.shape != verdicts.shape or not given.size:
        raise DataError(
            f"{given.size:,} confidences and {verdicts.size:,} verdicts; there must be as many, one at least."
        )
    return given, verdicts


def _auc(given: NDArray[np.float64], right: NDArray[np.bool_]) -> float:
    good, bad = int(right.sum()), int((~right).sum())
    if not good or not bad:
        return 0.5
    _, group, counts = np.unique(given, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2  # the mean rank of those that are equal
    return float((ranks[group][right].sum() - good * (good + 1) / 2) / (good * bad))


def kept_words(output: Sequence[str], reference: Sequence[str]) -> list[bool]:
    """Which words of an output stand in the reference, by the fewest insertions, deletions and substitutions.

    These are the tags OK and BAD of word-level quality estimation, without shifts.
    """
    costs = [list(range(len(reference) + 1))]
    for i, word in enumerate(output, start=1):
        row = [i]
        for j, other in enumerate(reference):
            row.append(min(costs[-1][j] + (word != other), costs[-1][j + 1] + 1, row[j] + 1))
        costs.append(row)
    kept = [False] * len(output)
    i, j = len(output), len(reference)
    while i and j:
        same = output[i - 1] == reference[j - 1]
        if costs[i][j] == costs[i - 1][j - 1] + (not same):
            i, j = i - 1, j - 1
            kept[i] = same
        elif costs[i][j] == costs[i - 1][j] + 1:
            i -= 1
        else:
            j -= 1
    return kept
