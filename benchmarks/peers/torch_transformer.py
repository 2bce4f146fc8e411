"""torch.nn.Transformer in a plain loop; dropout only where the paper has it, which is quicker."""

from __future__ import annotations

import math
from typing import Any

import torch
from loop import PAD, Batch, measure, sinusoids
from torch import Tensor, nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self, shape: dict[str, Any]) -> None:
        super().__init__()
        self.table = nn.Embedding(shape["vocabulary"], shape["width"], padding_idx=PAD)
        nn.init.normal_(self.table.weight, std=shape["width"] ** -0.5)
        self.transformer = nn.Transformer(
            shape["width"],
            shape["heads"],
            shape["layers"],
            shape["layers"],
            shape["feedforward"],
            shape["dropout"],
            batch_first=True,
        )
        for layer in (*self.transformer.encoder.layers, *self.transformer.decoder.layers):
            layer.dropout.p = 0.0  # inside the feed-forward network
            for attention in layer.modules():
                if isinstance(attention, nn.MultiheadAttention):
                    attention.dropout = 0.0
        self.dropout = shape["dropout"]

    def embed(self, ids: Tensor) -> Tensor:
        width = self.table.embedding_dim
        return F.dropout(self.table(ids) * math.sqrt(width) + sinusoids(ids.shape[1], width), self.dropout)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        hidden = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1),
            src_key_padding_mask=source == PAD,
            memory_key_padding_mask=source == PAD,
            tgt_is_causal=True,
        )
        return F.linear(hidden, self.table.weight)


def build(shape: dict[str, Any]) -> Any:
    model = Model(shape)

    def loss(batch: Batch) -> Tensor:
        logits = model(batch.source, batch.target_input)
        targets = batch.target_output.flatten()
        return F.cross_entropy(
            logits.flatten(0, 1), targets, ignore_index=PAD, label_smoothing=shape["smoothing"], reduction="sum"
        )

    return model, loss


if __name__ == "__main__":
    measure(build)
