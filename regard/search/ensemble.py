"""Several models as one: a step function made of step functions over the same vocabulary."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .hypotheses import Step

__all__ = ["Together", "ensemble"]


@dataclass(frozen=True)
class Together:
    """A state of each member, row by row the same hypotheses."""

    members: tuple[Any, ...]

    def select(self, rows: Tensor) -> Together:
        return Together(tuple(member.select(rows) for member in self.members))


def ensemble(steps: Sequence[Step[Any]], average: str = "probabilities") -> Step[Together]:
    """The members' mean: of probabilities, or of "logs" (the geometric mean, scaled so that it sums to one)."""

    def step(tokens: Tensor, state: Together) -> tuple[Tensor, Together]:
        found = [member(tokens, s) for member, s in zip(steps, state.members, strict=True)]
        each = torch.stack([log_probabilities for log_probabilities, _ in found])  # (members, N, V)
        mean = each.mean(0).log_softmax(-1) if average == "logs" else each.logsumexp(0) - math.log(len(steps))
        return mean, Together(tuple(s for _, s in found))

    return step
