"""Perplexity: exp(-log p / count), and the unit it is counted in, for figures of different units do not compare."""

from __future__ import annotations

import math
from typing import Literal

from ..errors import DataError
from .result import Score

Unit = Literal["token", "word", "character"]


def perplexity(log_probability: float, count: int, unit: Unit = "token", *, ends_counted: bool = True) -> Score:
    """Of a text whose summed natural log-probability and number of units are given.

    `ends_counted` says whether the end of each line is in both. Raises DataError for no units, and for a sum that is
    not a log-probability (positive or not a number).
    """
    if count < 1:
        raise DataError(f"perplexity over {count} {unit}s is undefined; give at least one line of text.")
    if math.isnan(log_probability) or log_probability > 0:
        raise DataError(
            f"{log_probability} is not a summed log-probability, which is 0 at most; "
            "if it came from a model, its training has diverged: go back to an earlier checkpoint."
        )
    nats = -log_probability / count
    try:
        value = math.exp(nats)
    except OverflowError:  # beyond 709 nats
        value = math.inf
    return Score(
        name="perplexity",
        value=value,
        signature=f"unit:{unit}|ends:{'yes' if ends_counted else 'no'}",
        unit=f"per {unit}",
        higher_is_better=False,
        detail={"count": count, "nats": nats, "bits": nats / math.log(2)},
    )
