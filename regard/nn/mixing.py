"""A fully connected layer over positions, to compare with attention, whose weights depend on the content instead.

Sizes: B rows, N positions, D features.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.errors import ModelError

from .layout import Layout


class FullyConnected(nn.Module):
    """y_i = Σ_j W_ij x_j with one learned (N, N) matrix, so that every sequence must have N positions."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(length, length))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        """(…, D) -> (…, D); ModelError for a sequence that is not N long."""
        length = len(self.weight)
        if (others := layout.lengths[layout.lengths != length]).numel():
            raise ModelError(
                f"a fully connected layer of {length} positions cannot take a sequence of {int(others[0])}; give it "
                f"sequences of {length}, or take attention, which has weights for any length"
            )
        return layout.flatten(self.weight @ layout.pad(x))
