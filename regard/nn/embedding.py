"""Looking vectors up in a table, with a gradient whose sums are float32; and with their positions added.

Sizes: V rows, D width.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import ModelError

from .autograd import applied
from .dropout import Dropout
from .positions.added import Added


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


def look_up(ids: Tensor, table: nn.Embedding) -> Tensor:
    """ids (…) and a table (V, D) -> vectors (…, D), of a damped table times their tokens' scales: see `damp`.

    On a CPU PyTorch sums a token's gradients in the table's own type; in bfloat16 the hundreds of a frequent token
    would lose most of what comes late.
    """
    weight, scale = table.weight, getattr(table, "scale", None)
    if weight.dtype == torch.bfloat16 and weight.device.type == "cpu":
        vectors: Tensor = applied(_LookUp, ids, weight)
    else:
        vectors = F.embedding(ids, weight)
    return vectors if scale is None else vectors * scale[ids][..., None].to(vectors.dtype)


def scale_rows(model: nn.Module, scale: Tensor) -> None:
    """Have what the model reads by its first table, that of its source, times each token's scale (V,), until `fold`.

    Raises ModelError for a table that has another use too, which the scales would change as well.
    """
    table = next(part for part in model.modules() if isinstance(part, nn.Embedding))
    uses = [name for name, each in model.named_parameters(remove_duplicate=False) if each is table.weight]
    if len(uses) > 1:
        raise ModelError(
            f"what is read can have scales only by a table of its own, and {uses[0]} is {uses[1]} too; keep them apart "
            'where the family can (model.share = "target", model.tied = false), or leave input-weights out'
        )
    table.register_buffer("scale", scale, persistent=False)


@torch.no_grad()
def fold_scale(model: nn.Module) -> None:
    """Multiply the scales into their table, which is then like any other and gives the same vectors."""
    for table in model.modules():
        scale = getattr(table, "scale", None)
        if isinstance(table, nn.Embedding) and isinstance(scale, Tensor):
            table.weight.mul_(scale[:, None])
            del table.scale


class Embedding(nn.Module):
    """The token's vector, times sqrt(D) if it is scaled, and that of its position: ids (…) -> (…, D).

    `enter` says how positions come in: added to the vector, or beside it, (…, 2 D), which is then mapped to (…, D), or
    added before every layer (see `again`); Vaswani et al. 2017, sections 3.4 and 3.5.
    """

    def __init__(
        self, table: nn.Embedding, positions: Added, dropout: float, enter: str = "added", scaled: bool = False
    ) -> None:
        super().__init__()
        self.table, self.positions, self.dropout = table, positions, Dropout(dropout)
        self.scale = math.sqrt(table.embedding_dim) if scaled else 1.0
        self.enter = enter
        if enter == "concatenated":
            self.join = nn.Linear(2 * table.embedding_dim, table.embedding_dim)
            nn.init.xavier_uniform_(self.join.weight)

    def forward(self, ids: Tensor, positions: Tensor, longest: int) -> Tensor:
        """Ids at these positions, all < `longest`."""
        vectors = look_up(ids, self.table)
        if self.scale != 1.0:
            vectors = vectors * self.scale
        # The table of sinusoids stays exact whatever the weights' type.
        found = self.positions(positions, longest).to(vectors.dtype)
        if self.enter == "concatenated":
            return self.dropout(self.join(torch.cat((vectors, found.expand_as(vectors)), -1)))
        return self.dropout(vectors + found)

    def again(self, x: Tensor, positions: Tensor, longest: int) -> Tensor:
        """What enters a layer that is not the first, (…, D): with its positions, where they enter every layer."""
        return x + self.positions(positions, longest).to(x.dtype) if self.enter == "every-layer" else x
