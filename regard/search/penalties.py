"""Length penalties: a hypothesis of L tokens (its end counted) is ranked by log-probability / penalty(L)."""

from __future__ import annotations

import math
from collections.abc import Callable

__all__ = ["PENALTIES", "Penalty", "gnmt", "none", "penalty_of", "power"]

Penalty = Callable[[int], float]


def gnmt(length: int, alpha: float) -> float:
    """((5 + L) / 6)^alpha (Wu et al. 2016, equation 14; Vaswani et al. 2017, section 6.1)."""
    return math.pow((5.0 + length) / 6.0, alpha)


def power(length: int, alpha: float) -> float:
    """L^alpha: the mean log-probability at alpha = 1, the lectures' 1 / L^0.75 at alpha = 0.75."""
    return math.pow(length, alpha)


def none(length: int, alpha: float) -> float:
    """1 at every length: plain log-probability."""
    return 1.0


PENALTIES: dict[str, Callable[[int, float], float]] = {"gnmt": gnmt, "power": power, "none": none}


def penalty_of(name: str, alpha: float) -> Penalty:
    """The named penalty with its alpha filled in."""
    penalty = PENALTIES[name]
    return lambda length: penalty(length, alpha)
