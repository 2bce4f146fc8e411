"""Learning-rate schedules: functions of the update's number, counted from 1."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["SCHEDULES", "Plateau", "Schedule", "constant", "cosine", "inverse_sqrt", "linear", "paper"]


@dataclass(frozen=True)
class Schedule:
    """What a schedule may depend on: peak rate, updates of warm-up, updates in all, width of the model."""

    peak: float
    warmup: int
    total: int
    width: int


def _ramp(s: Schedule, update: int) -> float:
    return min(1.0, update / s.warmup) if s.warmup else 1.0


def paper(s: Schedule, update: int) -> float:
    """peak · d_model^-0.5 · min(n^-0.5, n · warmup^-1.5) (Vaswani et al. 2017, equation 3, with peak 1)."""
    return s.peak / math.sqrt(s.width) * min(1 / math.sqrt(update), update / math.pow(max(s.warmup, 1), 1.5))


def inverse_sqrt(s: Schedule, update: int) -> float:
    """A linear rise to the peak, then peak · sqrt(warmup / n): the paper's curve with its height given."""
    return s.peak * min(_ramp(s, update), math.sqrt(max(s.warmup, 1) / update))


def cosine(s: Schedule, update: int) -> float:
    """A linear rise, then half a cosine down to 0 at the last update."""
    done = min(1.0, max(0, update - s.warmup) / max(1, s.total - s.warmup))
    return s.peak * _ramp(s, update) * 0.5 * (1.0 + math.cos(math.pi * done))


def linear(s: Schedule, update: int) -> float:
    """A linear rise, then a line down to 0 at the last update."""
    done = min(1.0, max(0, update - s.warmup) / max(1, s.total - s.warmup))
    return s.peak * _ramp(s, update) * (1.0 - done)


def constant(s: Schedule, update: int) -> float:
    """A linear rise, then the peak; also what "plateau" cuts down."""
    return s.peak * _ramp(s, update)


SCHEDULES: dict[str, Callable[[Schedule, int], float]] = {
    "paper": paper,
    "inverse-sqrt": inverse_sqrt,
    "cosine": cosine,
    "linear": linear,
    "constant": constant,
    "plateau": constant,
}


@dataclass
class Plateau:
    """Multiplies the rate by `factor` whenever `patience` validations in a row bring nothing new."""

    factor: float
    patience: int
    scale: float = 1.0
    waited: int = 0

    def saw(self, improved: bool) -> None:
        self.waited = 0 if improved else self.waited + 1
        if self.waited > self.patience:
            self.scale *= self.factor
            self.waited = 0
