"""Effective approaches to attention-based neural machine translation (Luong, Pham and Manning 2015).

Sizes: B sentences, S source tokens, T target tokens, E width of embeddings, D width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from regard.nn import Dropout, KeysValues, Layout, Padded, look_up, wanted, whole
from regard.nn.attention import NORMALIZERS, SCORES, LuongAttention
from regard.nn.recurrent import CELLS, Carry, Stack, as_columns, as_laid_out

from ..nn.state import Observer
from .choices import CellName, NormalizerName, ScoreName, capacity, listed
from .interface import Family, RecurrentEncoder


class LuongConfig(RecurrentEncoder):
    """Sizes of a stacked recurrent translator with attention on top; the defaults are the paper's (section 4.1)."""

    family: Literal["luong"] = Field("luong", description="the model family")
    cell: CellName = Field("lstm", description="the recurrence: elman, gru or lstm (paper)")
    width: int = Field(1000, gt=0, description="features of a recurrent layer")
    embedding: int = Field(1000, gt=0, description="features of a token")
    layers: int = Field(4, gt=0, description="recurrent layers of the encoder, and of the decoder")
    score: ScoreName = Field(
        "bilinear", description=f"how states are compared: {listed(*SCORES)}; bilinear is the paper's general"
    )
    score_width: int = Field(0, ge=0, description="inner features of the score, positions of location; 0: its own")
    normalize: NormalizerName = Field("softmax", description=f"how scores become weights: {listed(*NORMALIZERS)}")
    attention: Literal["global", "local-m", "local-p"] = Field(
        "global",
        description="look at all positions, at those near the target's own (local-m) or near predicted ones (local-p)",
    )
    window: int = Field(10, gt=0, description="D: how far local attention sees to either side")
    input_feeding: bool = Field(True, description="a step also reads what the one before it made of its attention")
    dropout: float = Field(0.2, ge=0, lt=1, description="on embeddings, between layers and on the decoder's output")
    init_range: float = Field(0.1, gt=0, description="weights begin uniform between minus this and this")


def build(config: LuongConfig, source_vocabulary: int, target_vocabulary: int, pad: int = 0) -> Luong:
    """A new, randomly initialised model."""
    c = config
    score = SCORES[c.score](c.width, c.width, c.score_width)
    model = Luong(
        nn.Embedding(source_vocabulary, c.embedding, padding_idx=pad),
        Stack(c.cell, c.embedding, c.width, c.layers, c.dropout, c.direction),
        nn.Embedding(target_vocabulary, c.embedding, padding_idx=pad),
        Stack(c.cell, c.embedding, c.width, c.layers, c.dropout),
        nn.Linear(c.width, CELLS[c.cell].sums * c.width, bias=False) if c.input_feeding else None,
        LuongAttention(c.width, score, c.attention, c.window, NORMALIZERS[c.normalize]()),
        nn.Linear(c.width, target_vocabulary, bias=False),
        c.dropout,
    )
    for parameter in model.parameters():
        nn.init.uniform_(parameter, -c.init_range, c.init_range)
    for table in (model.source, model.target):
        nn.init.zeros_(table.weight[pad])
    return model


@dataclass(frozen=True)
class LuongMemory:
    """The encoder's top states (B, S, D), and each layer's carry after the last token it read."""

    states: Tensor
    carries: tuple[Carry, ...]


@dataclass(frozen=True)
class LuongState:
    """Each layer's carry, the attentional state fed to the next step (B, D), the memory; `position`: tokens so far."""

    carries: tuple[Carry, ...]
    fed: Tensor
    memory: KeysValues
    lengths: Tensor
    position: int = 0

    def select(self, rows: Tensor) -> LuongState:
        return LuongState(
            tuple(tuple(x.index_select(0, rows) for x in carry) for carry in self.carries),
            self.fed.index_select(0, rows),
            self.memory.select(rows),
            self.lengths.index_select(0, rows),
            self.position,
        )


class Luong(nn.Module):
    """Encoder, decoder with attention above it and projection; made by `build`."""

    def __init__(
        self,
        source: nn.Embedding,
        encoder: Stack,
        target: nn.Embedding,
        decoder: Stack,
        feed: nn.Linear | None,
        attention: LuongAttention,
        output: nn.Linear,
        dropout: float,
    ) -> None:
        super().__init__()
        self.source, self.encoder = source, encoder
        self.target, self.decoder, self.feed = target, decoder, feed
        self.attention, self.output = attention, output
        self.dropout = Dropout(dropout)

    def encode(self, source: Tensor, layout: Layout, observe: Observer | None = None) -> LuongMemory:
        """Source ids (B, S) or (L,) -> states and carries."""
        x = self.dropout(look_up(as_columns(source, layout), self.source))
        x, carries = self.encoder(x, lengths=layout.lengths)
        return LuongMemory(x.transpose(0, 1), carries)

    def start(self, memory: LuongMemory, layout: Layout, capacity: int | None = None) -> LuongState:
        """The state before the first token; it has one size, whatever the capacity."""
        values = memory.states[:, None].contiguous()  # (B, 1, S, D)
        nothing = torch.zeros_like(memory.carries[0][0])
        return LuongState(
            memory.carries, nothing, KeysValues(self.attention.score.keys(values), values), layout.lengths
        )

    def decode(
        self, tokens: Tensor, state: LuongState, layout: Layout | None = None, observe: Observer | None = None
    ) -> tuple[Tensor, LuongState]:
        """Target ids (B, T) or (L,) -> hidden (…, D) and the next state."""
        layout = layout or whole(tokens)
        embedded = self.dropout(look_up(as_columns(tokens, layout), self.target))  # (T, B, E)
        inside = Padded(layout.lengths, layout.width).inside()
        if self.feed is not None:
            x, state, weights = self._fed(embedded, state, self.feed, inside, observe)
        else:  # nothing waits for the attention, so it is one call for all positions
            x, carries = self.decoder(embedded, state.carries)
            x = self.dropout(x).transpose(0, 1)
            x, weights = self.attention(x, state.memory, state.lengths, state.position, inside, observe)
            x, state = self.dropout(x.transpose(0, 1)), replace(state, carries=carries)
        if observe is not None and wanted(observe, "cross"):
            observe.weights["cross"].append(weights)
        return as_laid_out(x, layout), replace(state, position=state.position + len(embedded))

    def _fed(
        self, embedded: Tensor, state: LuongState, feed: nn.Linear, inside: Tensor, observe: Observer | None
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

    def project(self, hidden: Tensor) -> Tensor:
        """Hidden (…, D) -> logits (…, V)."""
        logits: Tensor = self.output(hidden)
        return logits


FAMILIES = {
    "luong": Family(
        LuongConfig,
        build,
        {"width": 16, "embedding": 12, "layers": 2},
        cross_attention=lambda config: (1, 1),
        capacity=lambda config: capacity(config.score, config.score_width),
        loops=True,
    )
}
