"""Minimum Bayes risk: of several outputs, the one that the others agree with most (Kumar and Byrne 2004)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

__all__ = ["expected_utilities"]


def expected_utilities(outputs: Sequence[str], utility: Callable[[str, str], float]) -> list[float]:
    """The mean of utility(output, other) over all outputs, itself among them; the best output is the one with most.

    Samples come as often as the model finds them likely, so the mean is the expectation (Eikema and Aziz 2020).
    """
    counts = Counter(outputs)
    values = {
        output: sum(utility(output, other) * count for other, count in counts.items()) / len(outputs)
        for output in counts
    }
    return [values[output] for output in outputs]
