"""Learning-rate schedules: functions of the update's number, counted from 1."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """What a schedule may depend on."""

    peak: float
    """The highest learning rate; with the paper's schedule a factor."""
    warmup: int
    """Updates of warm-up."""
    total: int
    """Updates in all."""
    width: int
    """Of the model."""
    scale: float = 1.0
    """What validations without gain have made of the peak so far: see `Plateau`."""


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
    """A linear rise, then the peak."""
    return s.peak * _ramp(s, update)


def plateau(s: Schedule, update: int) -> float:
    """A linear rise, then the peak, lowered whenever validations bring no gain."""
    return s.peak * _ramp(s, update) * s.scale


SCHEDULES: dict[str, Callable[[Schedule, int], float]] = {
    "paper": paper,
    "inverse-sqrt": inverse_sqrt,
    "cosine": cosine,
    "linear": linear,
    "constant": constant,
    "plateau": plateau,
}
"""What `train.schedule` names: settings and the update's number -> the learning rate."""


@dataclass
class Plateau:
    """A scale of the learning rate, multiplied by `factor` when `patience` validations in a row bring no gain."""

    factor: float = 0.5
    patience: int = 3
    scale: float = 1.0
    waited: int = 0
    """Validations without gain since the last gain, or since the scale was last lowered."""

    def validated(self, improved: bool) -> None:
        """Count one validation."""
        self.waited = 0 if improved else self.waited + 1
        if self.waited > self.patience:
            self.scale *= self.factor
            self.waited = 0
