"""Neural machine translation by jointly learning to align and translate (Bahdanau, Cho and Bengio 2015).

Sizes: B sentences, S source tokens, T target tokens, E width of embeddings, D width of the state, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from regard.nn.attention import NORMALIZERS, SCORES, Lengths, attend
from regard.nn.attention.core import matrix, observed
from regard.nn.layers import Dropout, Map
from regard.nn.positions import look_up
from regard.nn.recurrent import CELLS, Carry, Maxout, Stack, as_columns, as_laid_out
from regard.nn.state import KeysValues, Layout, Observer, Rows, in_rows, show, whole

from .blocks import CellName, Projecting, zero_padding
from .choices import Chance, Config, NormalizerName, ScoreName, ScoreWidth, Size, TokenWidth, family_of


class BahdanauConfig(Config):
    """Sizes of the first translator with attention; the defaults are the paper's (appendix A.2.3)."""

    looks: ClassVar[tuple[int, int]] = (1, 1)
    family: Literal["bahdanau"] = Field("bahdanau", description="the model family")
    cell: CellName = "gru"
    width: Size = Field(1000, description="n: features of the decoder's state")
    encoder_width: Size = Field(2000, description="2n: features of an annotation, half from each direction")
    encoder_layers: Size = Field(1, description="bidirectional layers of the encoder; the decoder has one layer")
    embedding: TokenWidth = 620
    readout: Size = Field(500, description="l: features of the decoder's output, after the maxout")
    score: ScoreName = "additive"
    score_width: ScoreWidth = 0
    normalize: NormalizerName = "softmax"
    dropout: Chance = Field(0.0, description="on embeddings, annotations and the decoder's output")
    init_range: float = Field(0.01, gt=0, description="deviation of the first weights, the recurrent ones aside")

    @model_validator(mode="after")
    def _fits(self) -> BahdanauConfig:
        if self.encoder_width % 2:
            raise ValueError(
                f"encoder_width ({self.encoder_width}) must be even, half for each direction; "
                f"try {self.encoder_width + 1}"
            )
        return self


class Annotations(NamedTuple):
    """What the encoder found: an annotation of each token (B, S, 2n), and the backward state at the first (B, n)."""

    tokens: Tensor
    first: Tensor


@dataclass(frozen=True)
class BahdanauState(Rows):
    """The decoder's carry, the score's keys and the annotations (B, 1, S, …), and which of them are padding."""

    carry: Carry
    memory: KeysValues
    mask: Tensor


class Bahdanau(Projecting):
    """Bidirectional encoder, decoder with attention and projection."""

    def __init__(self, config: BahdanauConfig, source_vocabulary: int, target_vocabulary: int, pad: int = 0) -> None:
        """Randomly initialised (appendix B.1); ModelError for a score that the widths do not allow."""
        super().__init__()
        c, cell = config, CELLS[config.cell]
        self.source = nn.Embedding(source_vocabulary, c.embedding, padding_idx=pad)
        self.encoder = Stack(c.cell, c.embedding, c.encoder_width, c.encoder_layers, c.dropout, "both")
        self.begin = Map(c.encoder_width // 2, c.width)
        self.target = nn.Embedding(target_vocabulary, c.embedding, padding_idx=pad)
        self.decoder = cell(c.embedding, c.width)
        self.context = Map(c.encoder_width, cell.sums * c.width, bias=False)
        inner = c.score_width or (c.width if c.score == "additive" else 0)
        self.score = SCORES[c.score](c.encoder_width, c.width, inner)
        self.normalize = NORMALIZERS[c.normalize]()
        self.readout = Maxout(c.width, c.embedding, c.encoder_width, c.readout)
        self.output = Map(c.readout, target_vocabulary)
        self.dropout = Dropout(c.dropout)
        for name, parameter in self.named_parameters():
            if parameter.dim() < 2:
                nn.init.zeros_(parameter)
            elif name.endswith("hidden.weight"):
                for square in parameter.chunk(parameter.shape[0] // parameter.shape[1]):
                    nn.init.orthogonal_(square)
            else:
                nn.init.normal_(parameter, std=0.001 if name.startswith("score.") else c.init_range)
        zero_padding(self, pad)

    def encode(self, source: Tensor, layout: Layout, observe: Observer | None = None) -> Annotations:
        """Source ids (B, S) or (L,) -> annotations (A.1.1)."""
        x = self.dropout(look_up(as_columns(source, layout), self.source))
        x, carries = self.encoder(x, lengths=layout.lengths)
        first = carries[-1][0].chunk(2, -1)[1]  # the direction that reads backwards ends at the first token
        return Annotations(self.dropout(x).transpose(0, 1), first)

    def start(self, memory: Annotations, layout: Layout, capacity: int | None = None) -> BahdanauState:
        """s_0 = tanh(W_s h_1), and the keys U_a h_j, once (A.1.2); the state has one size, whatever the capacity."""
        values = memory.tokens[:, None].contiguous()  # (B, 1, S, 2n)
        rows, length = values.shape[0], values.shape[2]
        hidden = self.begin(memory.first).tanh()
        carry = hidden, *self.decoder.nothing(hidden[None])[1:]
        mask = matrix(Lengths(layout.lengths), rows, 1, length, values.device)
        return BahdanauState(carry, KeysValues(self.score.keys(values), values), mask)

    def decode(
        self, tokens: Tensor, state: BahdanauState, layout: Layout | None = None, observe: Observer | None = None
    ) -> tuple[Tensor, BahdanauState]:
        layout = layout or whole(tokens)
        embedded = self.dropout(look_up(as_columns(tokens, layout), self.target))  # (T, B, E)
        step = self.decoder.loop(self.decoder.input(embedded), self.context)
        carry, memory = state.carry, state.memory
        hidden, contexts, weights = [], [], []
        for real in in_rows(layout).inside().split(1, 1):
            hidden.append(carry[0])  # s_{i-1}, which looks and is read out (A.2.2)
            query = self.score.queries(carry[0][:, None, None])  # (B, 1, 1, …)
            settings = state.mask, None, observed(self.normalize, observe, real)
            context, weight = attend(query, memory.keys, memory.values, self.score.compare, *settings)
            contexts.append(context[:, 0, 0])
            weights.append(weight)
            carry = step(carry, contexts[-1])
        show(observe, "cross", torch.cat(weights, 2))
        x = self.readout(torch.stack(hidden), embedded, torch.stack(contexts))
        return as_laid_out(self.dropout(x), layout), replace(state, carry=carry)


_SMALL = {"width": 16, "encoder_width": 16, "embedding": 12, "readout": 8}
FAMILIES = {"bahdanau": family_of(BahdanauConfig, Bahdanau, _SMALL, loops=True)}
