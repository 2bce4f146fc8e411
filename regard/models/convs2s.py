"""Convolutional sequence to sequence (Gehring et al. 2017): gated convolutions, attention in every decoder layer.

Sizes: B sentences, S source tokens, T target tokens, D width of embeddings, C channels of a convolution, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from regard.nn import Dropout, Embedding, KeysValues, Layout, Packed, wanted, whole
from regard.nn.attention import NORMALIZERS, SCORES, Lengths, Normalizer
from regard.nn.attention.core import Call
from regard.nn.attention.multihead import run
from regard.nn.attention.scores import Score
from regard.nn.convolution import Convolution, WeightNormed
from regard.nn.positions import POSITIONS

from ..nn.state import Observer
from .choices import AddedName, NormalizerName, ScoreName, capacity, listed
from .interface import Family, check_shared

_HALF = math.sqrt(0.5)
"""What a sum of two is multiplied by to keep its variance (section 3.5)."""


class ConvS2SConfig(BaseModel):
    """Sizes of a convolutional translator; the defaults are the paper's for WMT16 English to Romanian (section 4.2)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    family: Literal["convs2s"] = Field("convs2s", description="the model family")
    width: int = Field(512, gt=0, description="features of an embedding and of the decoder's output")
    channels: int = Field(512, gt=0, description="features between the convolutions")
    encoder_layers: int = Field(20, gt=0, description="gated convolutions of the encoder")
    decoder_layers: int = Field(20, gt=0, description="gated convolutions of the decoder, each with attention")
    kernel: int = Field(3, gt=0, description="positions that a convolution sees: odd")
    dropout: float = Field(0.1, ge=0, lt=1, description="on embeddings, before each convolution and on the output")
    positions: AddedName = Field("learned", description=f"how a token knows its position: {listed(*POSITIONS)}")
    max_positions: int = Field(1024, gt=0, description="positions that are learned")
    score: ScoreName = Field("dot", description=f"how queries and keys are compared: {listed(*SCORES)}")
    score_width: int = Field(0, ge=0, description="inner features of the score, positions of location; 0: its own")
    normalize: NormalizerName = Field("softmax", description=f"how scores become weights: {listed(*NORMALIZERS)}")
    share: Literal["all", "target", "none"] = Field(
        "none",
        description="one matrix for source and target embeddings and the projection (all), the last two, or none",
    )

    @model_validator(mode="after")
    def _fits(self) -> ConvS2SConfig:
        if self.kernel % 2 == 0:
            raise ValueError(
                f"kernel ({self.kernel}) must be odd, so that a position has as many neighbours on either side; "
                f"try {self.kernel + 1}"
            )
        return self


def build(config: ConvS2SConfig, source_vocabulary: int, target_vocabulary: int, pad: int = 0) -> ConvS2S:
    """A new, randomly initialised model; both vocabularies must be equal when embeddings are shared by all."""
    c = config
    check_shared(c.share, source_vocabulary, target_vocabulary)

    def table(size: int) -> nn.Embedding:
        made = nn.Embedding(size, c.width, padding_idx=pad)
        nn.init.normal_(made.weight, std=0.1)
        nn.init.zeros_(made.weight[pad])
        return made

    def side(made: nn.Embedding) -> Embedding:
        positions = POSITIONS[c.positions](c.width, c.max_positions)
        return Embedding(made, positions, c.dropout)

    def convolution(causal: bool) -> GatedConvolution:
        return GatedConvolution(Convolution(c.channels, 2 * c.channels, c.kernel, c.dropout, 4.0, causal), c.dropout)

    target_table = table(target_vocabulary)
    source_table = target_table if c.share == "all" else table(source_vocabulary)
    output = nn.Linear(c.width, target_vocabulary)
    nn.init.normal_(output.weight, std=math.sqrt((1.0 - c.dropout) / c.width))
    nn.init.zeros_(output.bias)
    if c.share != "none":
        output.weight = target_table.weight
    return ConvS2S(
        side(source_table),
        Stack(c.width, c.channels, c.dropout, [convolution(False) for _ in range(c.encoder_layers)]),
        side(target_table),
        Stack(c.width, c.channels, c.dropout, [convolution(True) for _ in range(c.decoder_layers)]),
        [Attention(c.width, c.channels, NORMALIZERS[c.normalize]()) for _ in range(c.decoder_layers)],
        SCORES[c.score](c.width, size=c.score_width),
        output,
        c.dropout,
    )


class GatedConvolution(nn.Module):
    """A convolution whose one half gates the other, A · sigmoid(B) (section 3.2; Dauphin et al. 2017)."""

    def __init__(self, convolution: Convolution, dropout: float) -> None:
        super().__init__()
        self.convolution, self.dropout = convolution, Dropout(dropout)

    def forward(self, x: Tensor, layout: Layout, past: Tensor | None) -> tuple[Tensor, Tensor]:
        y, past = self.convolution(self.dropout(x), layout, past)
        return F.glu(y, dim=-1), past


class Attention(nn.Module):
    """Where a decoder layer looks: its state and the token just read beside the encoder's outputs (section 3.3)."""

    def __init__(self, width: int, channels: int, normalize: Normalizer) -> None:
        super().__init__()
        self.normalize = normalize
        self.query = WeightNormed(channels, width, 0.0)
        self.output = WeightNormed(width, channels, 0.0)

    def forward(
        self,
        x: Tensor,
        embedded: Tensor,
        layout: Layout,
        score: Score,
        memory: KeysValues,
        mask: Lengths,
        observe: Observer | None,
    ) -> Tensor:
        queries = score.queries(layout.batch((self.query(x) + embedded) * _HALF)[:, None])  # (B, 1, T, D)
        asked = wanted(observe, "cross"), layout, memory.layout, self.normalize
        mixed, weights = run(Call(queries, memory.keys, memory.values, score, mask, *asked, observe=observe))
        if observe is not None and weights is not None:
            observe.weights["cross"].append(weights)
        found: Tensor = self.output(layout.unbatch(mixed[:, 0]))
        return found


class Stack(nn.Module):
    """What the encoder and the decoder have alike: maps into and out of the channels, and the convolutions between."""

    def __init__(self, width: int, channels: int, dropout: float, layers: list[GatedConvolution]) -> None:
        super().__init__()
        self.into, self.out = WeightNormed(width, channels, dropout), WeightNormed(channels, width, 0.0)
        self.layers = nn.ModuleList(layers)


@dataclass(frozen=True)
class ConvS2SState:
    """The memory with its prepared keys, for all layers; per decoder layer the positions its convolution still sees."""

    memory: KeysValues
    memory_lengths: Tensor
    past: tuple[Tensor | None, ...]
    position: int = 0

    def select(self, rows: Tensor) -> ConvS2SState:
        past = tuple(None if p is None else p.index_select(0, rows) for p in self.past)
        return ConvS2SState(self.memory.select(rows), self.memory_lengths.index_select(0, rows), past, self.position)


class ConvS2S(nn.Module):
    """Encoder, decoder and projection; made by `build`."""

    def __init__(
        self,
        source: Embedding,
        encoder: Stack,
        target: Embedding,
        decoder: Stack,
        attentions: list[Attention],
        score: Score,
        output: nn.Linear,
        dropout: float,
    ) -> None:
        super().__init__()
        self.source, self.target, self.output = source, target, output
        self.encoder, self.decoder = encoder, decoder
        self.attentions = nn.ModuleList(attentions)
        self.score = score
        """Of all layers, since they look at the same keys, which are prepared once."""
        self.dropout = Dropout(dropout)

    def encode(self, source: Tensor, layout: Layout, observe: Observer | None = None) -> tuple[Tensor, Tensor]:
        """Source ids (B, S) or (L,) -> keys z and values (z + e) sqrt(1/2), each (…, D)."""
        embedded = self.source(source, layout.positions(), layout.width)
        x = self.encoder.into(embedded)
        for layer in self.encoder.layers:
            x = (x + layer(x, layout, None)[0]) * _HALF
        z = self.encoder.out(x)
        # Every decoder layer sends a gradient here; their sum is brought to the size of one (section 3.5).
        share = 1.0 / (2.0 * len(self.attentions))
        z = z * share + z.detach() * (1.0 - share)
        return z, (z + embedded) * _HALF

    def start(self, memory: tuple[Tensor, Tensor], layout: Layout, capacity: int | None = None) -> ConvS2SState:
        """The state before the first token; it has one size, whatever the capacity."""
        keys, values = (layout.batch(x)[:, None] for x in memory)  # (B, 1, S, D)
        lengths = layout.lengths.clamp(min=1).to(values.dtype)
        if isinstance(layout, Packed):
            lengths = F.pad(lengths, (0, 1), value=1.0)[layout.sequences()][None, None, :, None]
        else:
            lengths = lengths[:, None, None, None]
        # A mean over S positions has 1/S of a position's variance: S sqrt(1/S) undoes it (section 3.5).
        return ConvS2SState(
            KeysValues(self.score.keys(keys), values * lengths.sqrt(), layout),
            layout.lengths,
            (None,) * len(self.attentions),
        )

    def decode(
        self, tokens: Tensor, state: ConvS2SState, layout: Layout | None = None, observe: Observer | None = None
    ) -> tuple[Tensor, ConvS2SState]:
        """Target ids (B, T) or (L,) -> hidden (…, D) and the next state."""
        layout = layout or whole(tokens)
        embedded = self.target(tokens, layout.positions() + state.position, state.position + layout.width)
        mask = Lengths(state.memory_lengths)
        x, kept = self.decoder.into(embedded), []
        for layer, attention, past in zip(self.decoder.layers, self.attentions, state.past, strict=True):
            y, past = layer(x, layout, past)
            kept.append(past)
            y = (y + attention(y, embedded, layout, self.score, state.memory, mask, observe)) * _HALF
            x = (x + y) * _HALF
        hidden = self.dropout(self.decoder.out(x))
        return hidden, replace(state, past=tuple(kept), position=state.position + layout.width)

    def project(self, hidden: Tensor) -> Tensor:
        """Hidden (…, D) -> logits (…, V)."""
        logits: Tensor = self.output(hidden)
        return logits


FAMILIES = {
    "convs2s": Family(
        ConvS2SConfig,
        build,
        {"width": 16, "channels": 16, "encoder_layers": 2, "decoder_layers": 2},
        cross_attention=lambda config: (config.decoder_layers, 1),
        capacity=lambda config: capacity(config.score, config.score_width, config.positions, config.max_positions),
    )
}
