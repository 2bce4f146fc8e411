"""Positions that turn queries and keys, so that their product knows how far apart they stand (Su et al. 2021).

Sizes: B batch, H heads, T tokens, D key width of a head.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.errors import ModelError

from .added import sinusoids


class Rotary(nn.Module):
    """Turns features 2i and 2i + 1 by the angle position / 10000^(2i/D) (Su et al. 2021, equation 34)."""

    def __init__(self, width: int, capacity: int) -> None:
        super().__init__()
        if width % 2:
            raise ModelError(
                f"rotary positions turn pairs of features, so a key width of {width} must be even; try {width + 1}"
            )
        self.width = width
        self.register_buffer("table", self._make(capacity), persistent=False)
        self.table: Tensor

    def _make(self, capacity: int) -> Tensor:
        return torch.stack(sinusoids(torch.arange(capacity), self.width))  # sines, then cosines: (2, P, D / 2)

    def forward(self, x: Tensor, positions: Tensor, longest: int) -> Tensor:
        """x (B, H, T, D) at positions (T,), all < `longest`, turned; what it computes with is float32 at least."""
        if longest > self.table.shape[1]:
            self.table = self._make(2 * longest).to(self.table)
        sines, cosines = self.table[:, positions].to(torch.promote_types(x.dtype, torch.float32))
        even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
        turned = torch.stack((even * cosines - odd * sines, even * sines + odd * cosines), -1)
        return turned.flatten(-2).to(x.dtype)


ROTARY: dict[str, type[Rotary]] = {"rotary": Rotary}
