"""How far two lists of figures go together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from regard.errors import DataError


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """The correlation of the ranks of two lists; equal values share their ranks' mean."""
    ranks = []
    for values in (first, second):
        _, where, counts = np.unique(np.asarray(values, float), return_inverse=True, return_counts=True)
        ends = np.cumsum(counts)
        ranks.append((ends - (counts - 1) / 2)[where])
    if min(np.ptp(each) for each in ranks) == 0:
        raise DataError("all values are equal, so they have no ranks to compare.")
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])
