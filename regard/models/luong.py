"""Effective approaches to attention-based neural machine translation (Luong, Pham and Manning 2015).

Sizes: B sentences, S source tokens, T target tokens, E width of embeddings, D width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from regard.nn.attention import NORMALIZERS, SCORES, LuongAttention
from regard.nn.layers import Dropout, Map
from regard.nn.positions import look_up
from regard.nn.recurrent import CELLS, Carry, Stack, as_columns, as_laid_out
from regard.nn.state import KeysValues, Layout, Observer, Rows, in_rows, show, whole

from . import blocks, choices
from .blocks import Projecting, begin_uniform


class LuongConfig(blocks.RecurrentEncoder):
    """Sizes of a stacked recurrent translator with attention on top; the defaults are the paper's (section 4.1)."""

    looks: ClassVar[tuple[int, int]] = (1, 1)
    family: Literal["luong"] = Field("luong", description="the model family")
    score: choices.ScoreName = "bilinear"  # the paper's general
    score_width: choices.ScoreWidth = 0
    normalize: choices.NormalizerName = "softmax"
    attention: Literal["global", "local-m", "local-p"] = Field(
        "global",
        description="look at all positions, at those near the target's own (local-m) or near predicted ones (local-p)",
    )
    window: choices.Size = Field(10, description="D: how far local attention sees to either side")
    input_feeding: bool = Field(True, description="a step also reads what the one before it made of its attention")
    dropout: blocks.RecurrentDropout = 0.2
    init_range: choices.InitRange = 0.1


class LuongMemory(NamedTuple):
    """The encoder's top states (B, S, D), and each layer's carry after the last token it read."""

    states: Tensor
    carries: tuple[Carry, ...]


@dataclass(frozen=True)
class LuongState(Rows):
    """Each layer's carry, the attentional state fed to the next step (B, D), the memory; `position`: tokens so far."""

    carries: tuple[Carry, ...]
    fed: Tensor
    memory: KeysValues
    lengths: Tensor
    position: int = 0


class Luong(Projecting):
    """Encoder, decoder with attention above it and projection."""

    def __init__(self, config: LuongConfig, source_vocabulary: int, target_vocabulary: int, pad: int = 0) -> None:
        super().__init__()
        c = config
        self.source = nn.Embedding(source_vocabulary, c.embedding, padding_idx=pad)
        self.encoder = Stack(c.cell, c.embedding, c.width, c.layers, c.dropout, c.direction)
        self.target = nn.Embedding(target_vocabulary, c.embedding, padding_idx=pad)
        self.decoder = Stack(c.cell, c.embedding, c.width, c.layers, c.dropout)
        self.feed = Map(c.width, CELLS[c.cell].sums * c.width, bias=False) if c.input_feeding else None
        score = SCORES[c.score](c.width, c.width, c.score_width)
        self.attention = LuongAttention(c.width, score, c.attention, c.window, NORMALIZERS[c.normalize]())
        self.output = Map(c.width, target_vocabulary, bias=False)
        self.dropout = Dropout(c.dropout)
        begin_uniform(self, c.init_range, pad)

    def encode(self, source: Tensor, layout: Layout, observe: Observer | None = None) -> LuongMemory:
        """Source ids (B, S) or (L,) -> states and carries."""
        x = self.dropout(look_up(as_columns(source, layout), self.source))
        x, carries = self.encoder(x, lengths=layout.lengths)
        return LuongMemory(x.transpose(0, 1), carries)

    def start(self, memory: LuongMemory, layout: Layout, capacity: int | None = None) -> LuongState:
        nothing = torch.zeros_like(memory.carries[0][0])
        return LuongState(memory.carries, nothing, self.attention.prepare(memory.states), layout.lengths)

    def decode(
        self, tokens: Tensor, state: LuongState, layout: Layout | None = None, observe: Observer | None = None
    ) -> tuple[Tensor, LuongState]:
        layout = layout or whole(tokens)
        embedded = self.dropout(look_up(as_columns(tokens, layout), self.target))  # (T, B, E)
        inside = in_rows(layout).inside()
        if self.feed is not None:
            x, state, weights = self._fed(embedded, state, self.feed, inside, observe)
        else:  # nothing waits for the attention, so it is one call for all positions
            x, carries = self.decoder(embedded, state.carries)
            x = self.dropout(x).transpose(0, 1)
            x, weights = self.attention(x, state.memory, state.lengths, state.position, inside, observe)
            x, state = self.dropout(x.transpose(0, 1)), replace(state, carries=carries)
        show(observe, "cross", weights)
        return as_laid_out(x, layout), replace(state, position=state.position + len(embedded))

    def _fed(
        self, embedded: Tensor, state: LuongState, feed: Map, inside: Tensor, observe: Observer | None
    ) -> tuple[Tensor, LuongState, Tensor]:
        """Step by step, since each reads the attentional state of the one before (section 3.3)."""
        steps = self.decoder.loops(embedded, feed)
        carries, fed = list(state.carries), state.fed
        hidden, weights = [], []
        for position, real in enumerate(inside.split(1, 1), start=state.position):
            x = fed
            for i, step in enumerate(steps):
                carries[i] = step(carries[i], x)
                x = self.dropout(carries[i][0])
            x, weight = self.attention(x[:, None], state.memory, state.lengths, position, real, observe)
            fed = self.dropout(x[:, 0])
            hidden.append(fed)
            weights.append(weight)
        return torch.stack(hidden), replace(state, carries=tuple(carries), fed=fed), torch.cat(weights, 2)


FAMILIES = {"luong": choices.family_of(LuongConfig, Luong, {"width": 16, "embedding": 12, "layers": 2}, loops=True)}
