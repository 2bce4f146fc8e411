"""A plain recurrent language model (Mikolov et al. 2010), of stacked LSTMs (Zaremba, Sutskever and Vinyals 2014).

What stands beside `gpt` and `lstmn` and looks back at nothing: all of the text so far is in one state of fixed size.
Sizes: B rows, T tokens, E width of embeddings, D width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field, model_validator
from torch import Tensor, nn

from regard.nn.layers import Dropout, Map
from regard.nn.positions import look_up
from regard.nn.recurrent import Carry, Stack, as_columns, as_laid_out
from regard.nn.state import Layout, Observer, Rows, whole

from . import choices, modules
from .interface import check_one_vocabulary
from .modules import Projecting, begin_uniform


class RNNConfig(modules.RecurrentConfig):
    """Sizes of stacked recurrences; the defaults are Zaremba et al.'s medium model for the Penn Treebank."""

    family: Literal["rnn-lm"] = Field("rnn-lm", description="the model family")
    width: modules.RecurrentWidth = 650
    embedding: choices.TokenWidth = 650
    layers: modules.RecurrentLayers = 2
    tied: choices.Tied = False
    dropout: modules.RecurrentDropout = 0.5
    init_range: choices.InitRange = 0.05

    @model_validator(mode="after")
    def _fits(self) -> RNNConfig:
        if self.tied and self.embedding != self.width:
            raise ValueError(
                f"tied makes one matrix of embeddings and projection, so embedding ({self.embedding}) must be width "
                f"({self.width}); make them equal, or leave tied out"
            )
        return self


@dataclass(frozen=True)
class RNNState(Rows):
    """Each layer's carry; none before the first token."""

    carries: tuple[Carry, ...] = ()


class RNN(Projecting):
    """Embeddings, recurrent layers and projection."""

    def __init__(self, config: RNNConfig, source_vocabulary: int, target_vocabulary: int, pad: int = 0) -> None:
        """Randomly initialised; there is one side, so both vocabularies are one."""
        super().__init__()
        c = config
        check_one_vocabulary(source_vocabulary, target_vocabulary)
        self.table = nn.Embedding(target_vocabulary, c.embedding, padding_idx=pad)
        self.layers = Stack(c.cell, c.embedding, c.width, c.layers, c.dropout)
        self.output, self.dropout = Map(c.width, target_vocabulary), Dropout(c.dropout)
        if c.tied:
            self.output.weight = self.table.weight
        begin_uniform(self, c.init_range, pad)

    def start(self, capacity: int | None = None) -> RNNState:
        return RNNState()

    def decode(
        self, tokens: Tensor, state: RNNState, layout: Layout | None = None, observe: Observer | None = None
    ) -> tuple[Tensor, RNNState]:
        """Ids (B, T) or (L,) -> hidden (…, D) and the next state; there is no attention to observe."""
        layout = layout or whole(tokens)
        x = self.dropout(look_up(as_columns(tokens, layout), self.table))  # (T, B, E)
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
    )
}
