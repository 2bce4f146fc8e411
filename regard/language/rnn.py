"""A plain recurrent language model (Mikolov et al. 2010), of stacked LSTMs (Zaremba, Sutskever and Vinyals 2014).

With `carry`, `locked`, `embedding_dropout` and `weight_dropout` it is regularised as the AWD-LSTM (Merity et al. 2018).

What stands beside `gpt` and `lstmn` and looks back at nothing: all of the text so far is in one state of fixed size.
Sizes: B rows, T tokens, E width of embeddings, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, cast

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from regard.models import blocks, choices
from regard.models.blocks import Projecting, begin_uniform
from regard.models.interface import check_one_vocabulary
from regard.nn.layers import Dropout, Map
from regard.nn.positions import look_up
from regard.nn.recurrent import Carry, Recurrence, Stack, as_columns, as_laid_out
from regard.nn.state import Layout, Observer, Rows, whole


class RNNConfig(blocks.RecurrentConfig):
    """Sizes of stacked recurrences; the defaults are Zaremba et al.'s medium model for the Penn Treebank."""

    family: Literal["rnn-lm"] = Field("rnn-lm", description="the model family")
    width: blocks.RecurrentWidth = 650
    embedding: choices.TokenWidth = 650
    layers: blocks.RecurrentLayers = 2
    tied: bool = Field(
        False, description="one matrix for embeddings and projection; the last layer is as wide as an embedding then"
    )
    dropout: blocks.RecurrentDropout = 0.5
    init_range: choices.InitRange = 0.05
    carry: bool = Field(
        False, description="each window of a stream begins with the state in which the one before it ended"
    )
    locked: bool = Field(False, description="dropout drops the same features at every position of a row")
    embedding_dropout: float = Field(
        0.0, ge=0, lt=1, description="words of the vocabulary that are dropped wherever they are read in a batch"
    )
    weight_dropout: float = Field(0.0, ge=0, lt=1, description="dropout of the weights from hidden state to hidden")

    @model_validator(mode="after")
    def _fits(self) -> RNNConfig:
        if self.tied and self.layers == 1 and self.embedding != self.width:
            raise ValueError(
                f"a tied model's last layer has embedding ({self.embedding}) features; make width ({self.width}) equal"
            )
        return self


@dataclass(frozen=True)
class RNNState(Rows):
    """Each layer's carry, whose D is its own; none before the first token."""

    carries: tuple[Carry, ...] = ()

    def packed(self) -> Tensor:
        """All carries as one tensor without history: (layers, tensors of a carry, B, most D), float32 at least."""
        whole = [x.detach() for carry in self.carries for x in carry]
        wide = torch.promote_types(whole[0].dtype, torch.float32)
        most = max(x.shape[-1] for x in whole)
        packed = torch.stack([F.pad(x.to(wide), (0, most - x.shape[-1])) for x in whole])
        return packed.view(len(self.carries), -1, *packed.shape[1:])


class LockedDropout(Dropout):
    """Drops the same features at every position of a row (Gal and Ghahramani 2016)."""

    def forward(self, x: Tensor) -> Tensor:
        """x (T, B, D) as it is, or with features dropped and the others scaled."""
        if not self.drops:
            return x
        mask: Tensor = F.dropout(x.new_ones(1, *x.shape[1:]), self.probability)
        return x * mask


class RNN(Projecting):
    """Embeddings, recurrent layers and projection."""

    def __init__(self, config: RNNConfig, source_vocabulary: int, target_vocabulary: int, pad: int = 0) -> None:
        """Randomly initialised; there is one side, so both vocabularies are one."""
        super().__init__()
        c = config
        check_one_vocabulary(source_vocabulary, target_vocabulary)
        self.table = nn.Embedding(target_vocabulary, c.embedding, padding_idx=pad)
        last = c.embedding if c.tied else c.width
        self.layers = Stack(c.cell, c.embedding, c.width, c.layers, c.dropout, last=last)
        self.output, self.embedding_dropout = Map(last, target_vocabulary), c.embedding_dropout
        self.dropout = self.layers.dropout = (LockedDropout if c.locked else Dropout)(c.dropout)
        for layer in cast("Iterable[Recurrence]", self.layers.forwards):
            layer.dropout.probability = c.weight_dropout
        if c.tied:
            self.output.weight = self.table.weight
        begin_uniform(self, c.init_range, pad)

    def start(self, capacity: int | None = None) -> RNNState:
        return RNNState()

    def resume(self, packed: Tensor) -> RNNState:
        layers, dtype = cast("Iterable[Recurrence]", self.layers.forwards), self.table.weight.dtype
        each = (carry[..., : layer.width] for layer, carry in zip(layers, packed, strict=True))
        return RNNState(tuple((hidden.to(dtype), *cells) for hidden, *cells in each))  # cells stay as they are

    def decode(
        self, tokens: Tensor, state: RNNState, layout: Layout | None = None, observe: Observer | None = None
    ) -> tuple[Tensor, RNNState]:
        """Ids (B, T) or (L,) -> hidden (…, D) and the next state; there is no attention to observe."""
        layout = layout or whole(tokens)
        columns = as_columns(tokens, layout)
        x = look_up(columns, self.table)  # (T, B, E)
        if self.training and self.embedding_dropout:
            words = F.dropout(x.new_ones(self.table.num_embeddings), self.embedding_dropout)
            x = x * words[columns][..., None]
        x = self.dropout(x)
        x, carries = self.layers(x, state.carries)
        return as_laid_out(self.dropout(x), layout), RNNState(carries)


FAMILIES = {
    "rnn-lm": choices.family_of(
        RNNConfig,
        RNN,
        {"width": 16, "embedding": 12, "layers": 2},
        "language-model",
        has_attention=False,
        vectors=True,
        loops=True,
        carries=True,
    )
}
