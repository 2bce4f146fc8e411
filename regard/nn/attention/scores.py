"""Score functions: how a query is compared with a key.

Sizes: T queries, S keys, D key width. A score splits into what is done to queries (every step), to keys (once, kept in
the state) and the comparison itself; one whose comparison is a plain dot product may be taken over by a fused kernel.
"""

from __future__ import annotations

import math
from typing import Protocol

from torch import Tensor, nn

__all__ = ["SCORES", "Dot", "ScaledDot", "Score"]


class Score(Protocol):
    """Compares queries with keys."""

    is_dot: bool
    """Comparing is a plain dot product of what `queries` and `keys` give."""

    def queries(self, q: Tensor) -> Tensor: ...
    def keys(self, k: Tensor) -> Tensor: ...
    def compare(self, q: Tensor, k: Tensor) -> Tensor:
        """(…, T, D) prepared queries and (…, S, D) prepared keys -> (…, T, S)."""
        ...


class Dot(nn.Module):
    """q · k (Luong et al. 2015, equation 8, "dot")."""

    is_dot = True

    def __init__(self, width: int) -> None:
        super().__init__()

    def queries(self, q: Tensor) -> Tensor:
        return q

    def keys(self, k: Tensor) -> Tensor:
        return k

    def compare(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.transpose(-2, -1)


class ScaledDot(Dot):
    """q · k / sqrt(D) (Vaswani et al. 2017, equation 1); the queries are scaled, being the fewer."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.scale = 1.0 / math.sqrt(width)

    def queries(self, q: Tensor) -> Tensor:
        return q * self.scale


SCORES: dict[str, type[Dot]] = {"dot": Dot, "scaled_dot": ScaledDot}
