"""One fixed context: sequence to sequence learning with recurrent networks (Sutskever et al. 2014; Cho et al. 2014).

Sizes: B sentences, S source tokens, T target tokens, E width of embeddings, D width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from regard.nn import Dropout, Layout, look_up, whole
from regard.nn.recurrent import CELLS, Carry, Maxout, Stack, as_columns, as_laid_out

from ..nn.state import Observer
from .choices import CellName
from .interface import Family, RecurrentEncoder


class Seq2SeqConfig(RecurrentEncoder):
    """Sizes of a recurrent translator without attention; the defaults are those of Sutskever et al. (section 3.4)."""

    family: Literal["seq2seq"] = Field("seq2seq", description="the model family")
    cell: CellName = Field("lstm", description="the recurrence: elman, gru or lstm")
    width: int = Field(1000, gt=0, description="features of a recurrent layer")
    embedding: int = Field(1000, gt=0, description="features of a token")
    layers: int = Field(4, gt=0, description="recurrent layers of the encoder, and of the decoder")
    context: Literal["start", "every-step"] = Field(
        "start", description="the decoder sees the source as its first state (Sutskever), or at every step (Cho)"
    )
    dropout: float = Field(0.0, ge=0, lt=1, description="on embeddings, between layers and on the decoder's output")
    init_range: float = Field(0.08, gt=0, description="weights begin uniform between minus this and this")


def build(config: Seq2SeqConfig, source_vocabulary: int, target_vocabulary: int, pad: int = 0) -> Seq2Seq:
    """A new, randomly initialised model."""
    c = config
    model = Seq2Seq(
        nn.Embedding(source_vocabulary, c.embedding, padding_idx=pad),
        Stack(c.cell, c.embedding, c.width, c.layers, c.dropout, c.direction),
        nn.Embedding(target_vocabulary, c.embedding, padding_idx=pad),
        Stack(c.cell, c.embedding, c.width, c.layers, c.dropout),
        Context(c.width, c.embedding, CELLS[c.cell].sums) if c.context == "every-step" else None,
        nn.Linear(c.embedding if c.context == "every-step" else c.width, target_vocabulary),
        c.dropout,
    )
    for parameter in model.parameters():
        nn.init.uniform_(parameter, -c.init_range, c.init_range)
    for table in (model.source, model.target):
        nn.init.zeros_(table.weight[pad])
    return model


class Context(nn.Module):
    """The summary c that the decoder sees at every step (Cho et al. 2014, section 2.2 and appendix A)."""

    def __init__(self, width: int, embedding: int, sums: int) -> None:
        super().__init__()
        self.summary = nn.Linear(width, width)
        self.start = nn.Linear(width, width)
        self.step = nn.Linear(width, sums * width, bias=False)
        self.readout = Maxout(width, embedding, width, embedding)


@dataclass(frozen=True)
class Seq2SeqState:
    """Each decoder layer's carry, and the context c (B, D) of a decoder that sees it at every step."""

    carries: tuple[Carry, ...]
    context: Tensor | None

    def select(self, rows: Tensor) -> Seq2SeqState:
        carries = tuple(tuple(x.index_select(0, rows) for x in carry) for carry in self.carries)
        return Seq2SeqState(carries, None if self.context is None else self.context.index_select(0, rows))


class Seq2Seq(nn.Module):
    """Encoder, decoder and projection; made by `build`."""

    def __init__(
        self,
        source: nn.Embedding,
        encoder: Stack,
        target: nn.Embedding,
        decoder: Stack,
        context: Context | None,
        output: nn.Linear,
        dropout: float,
    ) -> None:
        super().__init__()
        self.source, self.encoder = source, encoder
        self.target, self.decoder, self.context, self.output = target, decoder, context, output
        self.dropout = Dropout(dropout)

    def encode(self, source: Tensor, layout: Layout, observe: Observer | None = None) -> tuple[Carry, ...]:
        """Source ids (B, S) or (L,) -> each layer's carry after its last token; there is no attention to observe."""
        x = self.dropout(look_up(as_columns(source, layout), self.source))
        found: tuple[Carry, ...] = self.encoder(x, lengths=layout.lengths)[1]
        return found

    def start(self, memory: tuple[Carry, ...], layout: Layout, capacity: int | None = None) -> Seq2SeqState:
        """The state before the first token; it has one size, whatever the capacity."""
        if self.context is None:
            return Seq2SeqState(memory, None)
        c = self.context.summary(memory[-1][0]).tanh()
        hidden = self.context.start(c).tanh()
        return Seq2SeqState(tuple((hidden, *map(torch.zeros_like, carry[1:])) for carry in memory), c)

    def decode(
        self, tokens: Tensor, state: Seq2SeqState, layout: Layout | None = None, observe: Observer | None = None
    ) -> tuple[Tensor, Seq2SeqState]:
        """Target ids (B, T) or (L,) -> hidden (…, D) and the next state; there is no attention to observe."""
        layout = layout or whole(tokens)
        embedded = self.dropout(look_up(as_columns(tokens, layout), self.target))  # (T, B, E)
        if self.context is None:
            x, carries = self.decoder(embedded, state.carries)
        else:
            x, carries = self.decoder(embedded, state.carries, more=self.context.step(state.context))
            x = self.context.readout(x, embedded, state.context)
        return as_laid_out(self.dropout(x), layout), replace(state, carries=carries)

    def project(self, hidden: Tensor) -> Tensor:
        """Hidden (…, D) -> logits (…, V)."""
        logits: Tensor = self.output(hidden)
        return logits


FAMILIES = {
    "seq2seq": Family(
        Seq2SeqConfig, build, {"width": 16, "embedding": 12, "layers": 2}, has_attention=False, loops=True
    )
}
