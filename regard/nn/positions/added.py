"""Positions added to the embeddings: sinusoidal and learned (Vaswani et al. 2017, section 3.5 and Table 3 row E).

Sizes: D width, P positions.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.errors import ModelError


def sinusoids(positions: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """sin and cos of pos / 10000^(2i/D) for i < D/2: two tensors (…, D/2), in float32."""
    i = torch.arange(0, width, 2, device=positions.device, dtype=torch.float64)
    angles = positions[..., None].double() / 10000.0 ** (i / width)
    return angles.sin().float(), angles.cos().float()


class Added(nn.Module):
    """A position scheme that is added to the embeddings, made with the width and the most positions of a config."""

    limited = False
    """There are no more positions than it was made with."""

    def __init__(self, width: int, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity if self.limited else None

    def forward(self, positions: Tensor, longest: int) -> Tensor:
        """Positions (…) with every entry < `longest` -> (…, D)."""
        raise NotImplementedError


class _Table(Added):
    """A table of sinusoids that grows when a longer sequence comes; it is no parameter and is not saved."""

    def __init__(self, width: int, capacity: int) -> None:
        super().__init__(width, capacity)
        self.width = width
        self.register_buffer("table", self._make(capacity), persistent=False)
        self.table: Tensor

    def _make(self, capacity: int) -> Tensor:
        raise NotImplementedError

    def forward(self, positions: Tensor, longest: int) -> Tensor:
        if longest > len(self.table):
            self.table = self._make(2 * longest).to(self.table)
        return self.table[positions]


class Sinusoidal(_Table):
    """PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos(pos / 10000^(2i/D)) (section 3.5)."""

    def _make(self, capacity: int) -> Tensor:
        return torch.stack(sinusoids(torch.arange(capacity), self.width), dim=-1).flatten(-2)


class SinusoidalHalves(_Table):
    """The same sinusoids with all sines first and all cosines behind, as tensor2tensor and Marian lay them out."""

    def _make(self, capacity: int) -> Tensor:
        return torch.cat(sinusoids(torch.arange(capacity), self.width), dim=-1)


class Learned(Added):
    """One trained vector a position; positions from `capacity` on do not exist."""

    limited = True

    def __init__(self, width: int, capacity: int) -> None:
        super().__init__(width, capacity)
        self.weight = nn.Parameter(torch.empty(capacity, width))
        nn.init.normal_(self.weight, std=width**-0.5)

    def forward(self, positions: Tensor, longest: int) -> Tensor:
        if longest > len(self.weight):
            raise ModelError(
                f"a sequence of {longest} tokens is longer than the {len(self.weight)} learned positions; "
                "split it, or train with a larger model.max_positions or with sinusoidal positions"
            )
        return self.weight[positions]


class NoPosition(Added):
    """No positions at all: the contrast."""

    def forward(self, positions: Tensor, longest: int) -> Tensor:
        return positions.new_zeros((), dtype=torch.float32)


POSITIONS: dict[str, type[Added]] = {
    "sinusoidal": Sinusoidal,
    "sinusoidal-halves": SinusoidalHalves,
    "learned": Learned,
    "none": NoPosition,
}
