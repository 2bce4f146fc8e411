"""Convolutional sequence to sequence (Gehring et al. 2017): gated convolutions, attention in every decoder layer.

Sizes: B sentences, S source tokens, T target tokens, D width of embeddings, C channels of a convolution, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from regard.nn.attention import NORMALIZERS, SCORES, Lengths, Normalizer, Score
from regard.nn.attention.core import Call
from regard.nn.attention.multihead import run
from regard.nn.convolution import Convolution, WeightNormed
from regard.nn.layers import Dropout, Map
from regard.nn.positions import POSITIONS, Embedding
from regard.nn.state import KeysValues, Layout, Observer, Packed, Rows, show, wanted, whole

from .blocks import Projecting, check_shared
from .choices import AddedName, Chance, Config, NormalizerName, ScoreName, ScoreWidth, Share, Size, family_of

_HALF = math.sqrt(0.5)
"""What a sum of two is multiplied by to keep its variance (section 3.5)."""


class ConvS2SConfig(Config):
    """Sizes of a convolutional translator; the defaults are the paper's for WMT16 English to Romanian (section 4.2)."""

    family: Literal["convs2s"] = Field("convs2s", description="the model family")
    width: Size = Field(512, description="features of an embedding and of the decoder's output")
    channels: Size = Field(512, description="features between the convolutions")
    encoder_layers: Size = Field(20, description="gated convolutions of the encoder")
    decoder_layers: Size = Field(20, description="gated convolutions of the decoder, each with attention")
    kernel: Size = Field(3, description="positions that a convolution sees: odd")
    dropout: Chance = Field(0.1, description="on embeddings, before each convolution and on the output")
    positions: AddedName = "learned"
    max_positions: Size = Field(1024, description="positions that are learned")
    score: ScoreName = "dot"
    score_width: ScoreWidth = 0
    normalize: NormalizerName = "softmax"
    share: Share = "none"

    @model_validator(mode="after")
    def _fits(self) -> ConvS2SConfig:
        if self.kernel % 2 == 0:
            raise ValueError(
                f"kernel ({self.kernel}) must be odd, so that a position has as many neighbours on either side; "
                f"try {self.kernel + 1}"
            )
        return self

    @property
    def cross_attention(self) -> tuple[int, int]:
        return self.decoder_layers, 1


class GatedConvolution(nn.Module):
    """A convolution whose one half gates the other, A · sigmoid(B) (section 3.2; Dauphin et al. 2017)."""

    def __init__(self, channels: int, kernel: int, dropout: float, causal: bool) -> None:
        super().__init__()
        self.convolution = Convolution(channels, 2 * channels, kernel, dropout, 4.0, causal)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, layout: Layout, past: Tensor | None) -> tuple[Tensor, Tensor]:
        y, past = self.convolution(self.dropout(x), layout, past)
        return F.glu(y, dim=-1), past


class Attention(nn.Module):
    """Where a decoder layer looks: its state and the token just read beside the encoder's outputs (section 3.3)."""

    __call__: Callable[..., Tensor]

    def __init__(self, width: int, channels: int, normalize: Normalizer) -> None:
        super().__init__()
        self.normalize = normalize
        self.query = WeightNormed(channels, width)
        self.output = WeightNormed(width, channels)

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
        show(observe, "cross", weights)
        return self.output(layout.unbatch(mixed[:, 0]))


class Stack(nn.Module):
    """What the encoder and the decoder have alike: maps into and out of the channels, and the convolutions between."""

    def __init__(self, c: ConvS2SConfig, layers: int, causal: bool) -> None:
        super().__init__()
        made = [GatedConvolution(c.channels, c.kernel, c.dropout, causal) for _ in range(layers)]
        self.into, self.out = WeightNormed(c.width, c.channels, c.dropout), WeightNormed(c.channels, c.width)
        self.layers = nn.ModuleList(made)


@dataclass(frozen=True)
class ConvS2SState(Rows):
    """The memory with its prepared keys, for all layers; per decoder layer the positions its convolution still sees."""

    memory: KeysValues
    memory_lengths: Tensor
    past: tuple[Tensor | None, ...]
    position: int = 0


class ConvS2S(Projecting):
    """Encoder, decoder and projection."""

    def __init__(self, config: ConvS2SConfig, source_vocabulary: int, target_vocabulary: int, pad: int = 0) -> None:
        """Randomly initialised; both vocabularies must be equal when embeddings are shared by all."""
        super().__init__()
        c = config
        check_shared(c.share, source_vocabulary, target_vocabulary)

        def table(size: int) -> nn.Embedding:
            made = nn.Embedding(size, c.width, padding_idx=pad)
            nn.init.normal_(made.weight, std=0.1)
            nn.init.zeros_(made.weight[pad])
            return made

        def side(made: nn.Embedding) -> Embedding:
            return Embedding(made, POSITIONS[c.positions](c.width, c.max_positions), c.dropout)

        target_table = table(target_vocabulary)
        source_table = target_table if c.share == "all" else table(source_vocabulary)
        output = Map(c.width, target_vocabulary)
        nn.init.normal_(output.weight, std=math.sqrt((1.0 - c.dropout) / c.width))
        nn.init.zeros_(output.bias)
        if c.share != "none":
            output.weight = target_table.weight
        source, encoder = side(source_table), Stack(c, c.encoder_layers, causal=False)
        self.source, self.target, self.output = source, side(target_table), output
        self.encoder, self.decoder = encoder, Stack(c, c.decoder_layers, causal=True)
        self.attentions = nn.ModuleList(
            Attention(c.width, c.channels, NORMALIZERS[c.normalize]()) for _ in range(c.decoder_layers)
        )
        self.score = SCORES[c.score](c.width, size=c.score_width)
        """Of all layers, since they look at the same keys, which are prepared once."""
        self.dropout = Dropout(c.dropout)

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
        keys, values = (layout.batch(x)[:, None] for x in memory)  # (B, 1, S, D)
        lengths = layout.lengths.clamp(min=1).to(values.dtype)
        if isinstance(layout, Packed):
            lengths = F.pad(lengths, (0, 1), value=1.0)[layout.sequences()][None, None, :, None]
        else:
            lengths = lengths[:, None, None, None]
        # A mean over S positions has 1/S of a position's variance: S sqrt(1/S) undoes it (section 3.5).
        prepared = KeysValues(self.score.keys(keys), values * lengths.sqrt(), layout)
        return ConvS2SState(prepared, layout.lengths, (None,) * len(self.attentions))

    def decode(
        self, tokens: Tensor, state: ConvS2SState, layout: Layout | None = None, observe: Observer | None = None
    ) -> tuple[Tensor, ConvS2SState]:
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


_SMALL = {"width": 16, "channels": 16, "encoder_layers": 2, "decoder_layers": 2}
FAMILIES = {"convs2s": family_of(ConvS2SConfig, ConvS2S, _SMALL)}
