"""One fixed context: sequence to sequence learning with recurrent networks (Sutskever et al. 2014; Cho et al. 2014).

Sizes: B sentences, S source tokens, T target tokens, E width of embeddings, D width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from regard.nn.layers import Dropout, Map
from regard.nn.positions import look_up
from regard.nn.recurrent import CELLS, Carry, Maxout, Stack, as_columns, as_laid_out
from regard.nn.state import Layout, Observer, Rows, whole

from .blocks import Projecting, RecurrentEncoder, begin_uniform
from .choices import family_of


class Seq2SeqConfig(RecurrentEncoder):
    """Sizes of a recurrent translator without attention; the defaults are those of Sutskever et al. (section 3.4)."""

    family: Literal["seq2seq"] = Field("seq2seq", description="the model family")
    context: Literal["start", "every-step"] = Field(
        "start", description="the decoder sees the source as its first state (Sutskever), or at every step (Cho)"
    )


class Context(nn.Module):
    """The summary c that the decoder sees at every step (Cho et al. 2014, section 2.2 and appendix A)."""

    def __init__(self, width: int, embedding: int, sums: int) -> None:
        super().__init__()
        self.summary = Map(width, width)
        self.start = Map(width, width)
        self.step = Map(width, sums * width, bias=False)
        self.readout = Maxout(width, embedding, width, embedding)


@dataclass(frozen=True)
class Seq2SeqState(Rows):
    """Each decoder layer's carry, and the context c (B, D) of a decoder that sees it at every step."""

    carries: tuple[Carry, ...]
    context: Tensor | None


class Seq2Seq(Projecting):
    """Encoder, decoder and projection."""

    def __init__(self, config: Seq2SeqConfig, source_vocabulary: int, target_vocabulary: int, pad: int = 0) -> None:
        super().__init__()
        c, every_step = config, config.context == "every-step"
        self.source = nn.Embedding(source_vocabulary, c.embedding, padding_idx=pad)
        self.encoder = Stack(c.cell, c.embedding, c.width, c.layers, c.dropout, c.direction)
        self.target = nn.Embedding(target_vocabulary, c.embedding, padding_idx=pad)
        self.decoder = Stack(c.cell, c.embedding, c.width, c.layers, c.dropout)
        self.context = Context(c.width, c.embedding, CELLS[c.cell].sums) if every_step else None
        self.output = Map(c.embedding if every_step else c.width, target_vocabulary)
        self.dropout = Dropout(c.dropout)
        begin_uniform(self, c.init_range, pad)

    def encode(self, source: Tensor, layout: Layout, observe: Observer | None = None) -> tuple[Carry, ...]:
        """Source ids (B, S) or (L,) -> each layer's carry after its last token; there is no attention to observe."""
        x = self.dropout(look_up(as_columns(source, layout), self.source))
        return self.encoder(x, lengths=layout.lengths)[1]

    def start(self, memory: tuple[Carry, ...], layout: Layout, capacity: int | None = None) -> Seq2SeqState:
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


_SMALL = {"width": 16, "embedding": 12, "layers": 2}
FAMILIES = {"seq2seq": family_of(Seq2SeqConfig, Seq2Seq, _SMALL, has_attention=False, loops=True)}
