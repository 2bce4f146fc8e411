"""Masks are meanings; they become a matrix only for who needs a matrix. True means "may look".

Sizes: B batch, T queries, S keys. Every matrix broadcasts with scores (B, H, T, S).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

__all__ = ["Both", "Causal", "Lengths", "Mask", "Window"]


class Mask(Protocol):
    """Which keys a query may look at."""

    @property
    def causal(self) -> bool | None:
        """What is left of the mask for a kernel that keeps to each sequence's own keys: causality (True), nothing
        (False), or something that it cannot express (None)."""
        ...

    def matrix(self, queries: int, keys: int, device: torch.device) -> Tensor: ...


@dataclass(frozen=True)
class Causal:
    """A query may look at its own place and before; the first query stands at place `offset` of the keys."""

    offset: int = 0

    @property
    def causal(self) -> bool | None:
        return True if self.offset == 0 else None

    def matrix(self, queries: int, keys: int, device: torch.device) -> Tensor:
        places = torch.arange(queries, device=device)[:, None] + self.offset
        return torch.arange(keys, device=device) <= places  # (T, S)


@dataclass(frozen=True)
class Window:
    """A query may look `radius` places to either side (restricted self-attention, Vaswani et al. 2017, section 4)."""

    radius: int
    offset: int = 0
    causal: ClassVar[bool | None] = None

    def matrix(self, queries: int, keys: int, device: torch.device) -> Tensor:
        places = torch.arange(queries, device=device)[:, None] + self.offset
        return (torch.arange(keys, device=device) - places).abs() <= self.radius  # (T, S)


@dataclass(frozen=True)
class Lengths:
    """Keys beyond a sequence's own length, (B,), are invisible."""

    lengths: Tensor
    causal: ClassVar[bool | None] = False

    def matrix(self, queries: int, keys: int, device: torch.device) -> Tensor:
        return (torch.arange(keys, device=device) < self.lengths[:, None])[:, None, None, :]  # (B, 1, 1, S)


@dataclass(frozen=True)
class Both:
    """What both masks allow."""

    first: Mask
    second: Mask

    @property
    def causal(self) -> bool | None:
        both = self.first.causal, self.second.causal
        return None if None in both else any(both)

    def matrix(self, queries: int, keys: int, device: torch.device) -> Tensor:
        return self.first.matrix(queries, keys, device) & self.second.matrix(queries, keys, device)
