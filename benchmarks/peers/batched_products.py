"""A Transformer written by hand for speed in a plain loop: fused projections, attention by batched products."""

from __future__ import annotations

import math
from typing import Any

import torch
from loop import PAD, Batch, measure, sinusoids
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["Plain"]


class Attention(nn.Module):
    """Heads side by side: queries, keys and values of one input are one product."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.projection = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def split(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (B, H, T, D / H)."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x: Tensor, mask: Tensor, memory: Tensor | None = None) -> Tensor:
        if memory is None:
            queries, keys, values = self.projection(x).chunk(3, -1)
        else:
            width = x.shape[-1]
            weight, bias = self.projection.weight, self.projection.bias
            queries = F.linear(x, weight[:width], bias[:width])
            keys, values = F.linear(memory, weight[width:], bias[width:]).chunk(2, -1)
        queries, keys, values = self.split(queries), self.split(keys), self.split(values)
        scores = torch.matmul(queries * queries.shape[-1] ** -0.5, keys.transpose(-1, -2))
        weights = scores.masked_fill(~mask, float("-inf")).softmax(-1)
        return self.output(torch.matmul(weights, values).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """Post-norm, as in the paper; with `cross` a layer of the decoder."""

    def __init__(self, shape: dict[str, Any], cross: bool) -> None:
        super().__init__()
        width = shape["width"]
        self.attention = Attention(width, shape["heads"])
        self.cross = Attention(width, shape["heads"]) if cross else None
        self.inner, self.outer = nn.Linear(width, shape["feedforward"]), nn.Linear(shape["feedforward"], width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3 if cross else 2))
        self.dropout = shape["dropout"]

    def forward(self, x: Tensor, mask: Tensor, memory: Tensor | None, memory_mask: Tensor) -> Tensor:
        x = self.norms[0](x + F.dropout(self.attention(x, mask), self.dropout))
        if self.cross is not None:
            x = self.norms[1](x + F.dropout(self.cross(x, memory_mask, memory), self.dropout))
        return self.norms[-1](x + F.dropout(self.outer(F.relu(self.inner(x))), self.dropout))


class Plain(nn.Module):
    """Ids in, logits out; one table for both embeddings and the projection."""

    def __init__(self, shape: dict[str, Any]) -> None:
        super().__init__()
        self.table = nn.Embedding(shape["vocabulary"], shape["width"], padding_idx=PAD)
        nn.init.normal_(self.table.weight, std=shape["width"] ** -0.5)
        self.encoder = nn.ModuleList(Layer(shape, False) for _ in range(shape["layers"]))
        self.decoder = nn.ModuleList(Layer(shape, True) for _ in range(shape["layers"]))
        self.dropout = shape["dropout"]

    def embed(self, ids: Tensor) -> Tensor:
        width = self.table.embedding_dim
        return F.dropout(self.table(ids) * math.sqrt(width) + sinusoids(ids.shape[1], width), self.dropout)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        look = (source != PAD)[:, None, None]
        future = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).tril()
        memory, x = self.embed(source), self.embed(target)
        for layer in self.encoder:
            memory = layer(memory, look, None, look)
        for layer in self.decoder:
            x = layer(x, future, memory, look)
        return F.linear(x, self.table.weight)


def build(shape: dict[str, Any]) -> Any:
    model = Plain(shape)

    def loss(batch: Batch) -> Tensor:
        logits = model(batch.source, batch.target_input)
        targets = batch.target_output.flatten()
        return F.cross_entropy(
            logits.flatten(0, 1), targets, ignore_index=PAD, label_smoothing=shape["smoothing"], reduction="sum"
        )

    return model, loss


if __name__ == "__main__":
    measure(build)
