"""Looking vectors up in a table, with a gradient whose sums are float32; and with their places added.

Sizes: V rows, D width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .dropout import Dropout

__all__ = ["Embedding", "look_up"]


class _LookUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, ids: Tensor, table: Tensor) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.rows = len(table)
        return F.embedding(ids, table)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        (ids,) = ctx.saved_tensors
        g = gradients[0].flatten(0, -2)
        total = g.new_zeros(ctx.rows, g.shape[-1], dtype=torch.float32)
        return None, total.index_add_(0, ids.flatten(), g.float()).to(g.dtype)


def look_up(ids: Tensor, table: Tensor) -> Tensor:
    """ids (…) and a table (V, D) -> vectors (…, D).

    On a CPU PyTorch sums a piece's gradients in the table's own type; in bfloat16 the hundreds of a frequent piece
    would lose most of what comes late.
    """
    if table.dtype == torch.bfloat16 and table.device.type == "cpu":
        return _LookUp.apply(ids, table)  # type: ignore[no-any-return, no-untyped-call]
    return F.embedding(ids, table)


class Embedding(nn.Module):
    """The piece's vector and that of its place: ids (…) -> (…, D)."""

    def __init__(self, table: nn.Embedding, positions: nn.Module, dropout: float) -> None:
        super().__init__()
        self.table, self.positions, self.dropout = table, positions, Dropout(dropout)

    def forward(self, ids: Tensor, places: Tensor, longest: int) -> Tensor:
        vectors = look_up(ids, self.table.weight)
        return self.dropout(vectors + self.positions(places, longest).to(vectors.dtype))  # type: ignore[no-any-return]
