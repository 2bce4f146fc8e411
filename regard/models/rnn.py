"""A plain recurrent language model (Mikolov et al. 2010), of stacked LSTMs (Zaremba, Sutskever and Vinyals 2014).

What stands beside `gpt` and `lstmn` and looks back at nothing: all of the text so far is in one state of fixed size.
Sizes: B rows, T tokens, E width of embeddings, D width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn

from regard.nn import Dropout, Layout, look_up, whole
from regard.nn.recurrent import Carry, Stack, as_columns, as_laid_out

from ..nn.state import Observer
from .choices import CellName
from .interface import Family, check_one_vocabulary


class RNNConfig(BaseModel):
    """Sizes of stacked recurrences; the defaults are Zaremba et al.'s medium model for the Penn Treebank."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    family: Literal["rnn-lm"] = Field("rnn-lm", description="the model family")
    cell: CellName = Field("lstm", description="the recurrence: elman, gru or lstm")
    width: int = Field(650, gt=0, description="features of a recurrent layer")
    embedding: int = Field(650, gt=0, description="features of a token")
    layers: int = Field(2, gt=0, description="recurrent layers")
    tied: bool = Field(False, description="one matrix for embeddings and projection (Press and Wolf 2017)")
    dropout: float = Field(0.5, ge=0, lt=1, description="on embeddings, between layers and before the output")
    init_range: float = Field(0.05, gt=0, description="weights begin uniform between minus this and this")

    @model_validator(mode="after")
    def _fits(self) -> RNNConfig:
        if self.tied and self.embedding != self.width:
            raise ValueError(
                f"tied makes one matrix of embeddings and projection, so embedding ({self.embedding}) must be width "
                f"({self.width}); make them equal, or leave tied out"
            )
        return self


def build(config: RNNConfig, source_vocabulary: int, target_vocabulary: int, pad: int = 0) -> RNN:
    """A new, randomly initialised model; there is one side, so both vocabularies are one."""
    c = config
    check_one_vocabulary(source_vocabulary, target_vocabulary)
    table = nn.Embedding(target_vocabulary, c.embedding, padding_idx=pad)
    output = nn.Linear(c.width, target_vocabulary)
    if c.tied:
        output.weight = table.weight
    model = RNN(table, Stack(c.cell, c.embedding, c.width, c.layers, c.dropout), output, c.dropout)
    for parameter in model.parameters():
        nn.init.uniform_(parameter, -c.init_range, c.init_range)
    nn.init.zeros_(table.weight[pad])
    return model


@dataclass(frozen=True)
class RNNState:
    """Each layer's carry; none before the first token."""

    carries: tuple[Carry, ...] = ()

    def select(self, rows: Tensor) -> RNNState:
        return RNNState(tuple(tuple(x.index_select(0, rows) for x in carry) for carry in self.carries))


class RNN(nn.Module):
    """Embeddings, recurrent layers and projection; made by `build`."""

    def __init__(self, table: nn.Embedding, layers: Stack, output: nn.Linear, dropout: float) -> None:
        super().__init__()
        self.table, self.layers, self.output, self.dropout = table, layers, output, Dropout(dropout)

    def start(self, capacity: int | None = None) -> RNNState:
        """The state before the first token; it has one size, whatever the capacity."""
        return RNNState()

    def decode(
        self, tokens: Tensor, state: RNNState, layout: Layout | None = None, observe: Observer | None = None
    ) -> tuple[Tensor, RNNState]:
        """Ids (B, T) or (L,) -> hidden (…, D) and the next state; there is no attention to observe."""
        layout = layout or whole(tokens)
        x = self.dropout(look_up(as_columns(tokens, layout), self.table))  # (T, B, E)
        x, carries = self.layers(x, state.carries)
        return as_laid_out(self.dropout(x), layout), RNNState(carries)

    def project(self, hidden: Tensor) -> Tensor:
        """Hidden (…, D) -> logits (…, V) of the next token."""
        logits: Tensor = self.output(hidden)
        return logits


FAMILIES = {
    "rnn-lm": Family(
        RNNConfig,
        build,
        {"width": 16, "embedding": 12, "layers": 2},
        "language-model",
        has_attention=False,
        vectors=True,
        loops=True,
    )
}
