"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017), encoder and decoder.

Sizes: B sentences, S source pieces, T target pieces, H heads, D width, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn

from regard.errors import ModelError
from regard.nn import NORMS, Cache, Dropout, FeedForward, KeysValues, LayerNorm, Layout, Padded, look_up
from regard.nn.attention import SCORES, Causal, Lengths, Mask, MultiHead
from regard.nn.positions import POSITIONS

__all__ = ["Transformer", "TransformerConfig", "TransformerState", "build", "parameter_count"]


class TransformerConfig(BaseModel):
    """A row of the paper's Table 3; the defaults are its base model."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    family: Literal["transformer"] = Field("transformer", description="the model family")
    width: int = Field(512, gt=0, description="d_model: features of a piece, a multiple of 2")
    encoder_layers: int = Field(6, gt=0, description="N of the encoder")
    decoder_layers: int = Field(6, gt=0, description="N of the decoder")
    heads: int = Field(8, gt=0, description="h: attentions side by side")
    feedforward: int = Field(2048, gt=0, description="d_ff: inner features of the feed-forward network")
    key_width: int = Field(0, ge=0, description="d_k of a head; 0: width / heads")
    value_width: int = Field(0, ge=0, description="d_v of a head; 0: width / heads")
    dropout: float = Field(0.1, ge=0, lt=1, description="P_drop on sub-layer outputs and embedding sums")
    activation_dropout: float = Field(0.0, ge=0, lt=1, description="dropout inside the feed-forward network")
    positions: Literal["sinusoidal", "sinusoidal-halves", "learned", "none"] = Field(
        "sinusoidal", description="how a piece knows its place: sinusoidal, sinusoidal-halves, learned or none"
    )
    max_positions: int = Field(1024, gt=0, description="places that learned positions have; sinusoids go on for ever")
    norm: Literal["post", "pre"] = Field("post", description="post: norm after the residual sum (paper); pre: before")
    score: Literal["scaled_dot", "dot"] = Field("scaled_dot", description="how queries and keys are compared")
    activation: Literal["relu", "gelu", "silu"] = Field("relu", description="the feed-forward network's activation")
    share: Literal["all", "target", "none"] = Field(
        "all", description="one matrix for source and target embeddings and the projection (all), the last two, or none"
    )
    output_bias: bool = Field(False, description="a bias on the logits (Marian has one, the paper has none)")

    @model_validator(mode="after")
    def _fits(self) -> TransformerConfig:
        if (self.key_width == 0 or self.value_width == 0) and self.width % self.heads:
            near = [h for h in range(1, self.width + 1) if self.width % h == 0]
            near.sort(key=lambda h: (abs(h - self.heads), h))
            nearest = " or ".join(map(str, sorted(near[:2])))
            raise ValueError(
                f"heads ({self.heads}) must divide width ({self.width}); try {nearest}, or "
                "give key_width and value_width"
            )
        if self.width % 2:
            raise ValueError(f"width ({self.width}) must be even, since sinusoids come in pairs; try {self.width + 1}")
        return self


def build(config: TransformerConfig, source_vocabulary: int, target_vocabulary: int, pad: int = 0) -> Transformer:
    """A new, randomly initialised model; both vocabularies must be equal when embeddings are shared by all."""
    if config.share == "all" and source_vocabulary != target_vocabulary:
        raise ModelError(
            f'model.share = "all" needs one vocabulary, but the source has {source_vocabulary} pieces and the target '
            f'{target_vocabulary}; set text.joint = true, or model.share = "target"'
        )
    c = config
    head = c.width // c.heads

    def attention() -> MultiHead:
        key_width = c.key_width or head
        return MultiHead(c.width, c.heads, key_width, c.value_width or head, SCORES[c.score](key_width))

    def feedforward() -> FeedForward:
        return FeedForward(c.width, c.feedforward, c.activation, c.activation_dropout)

    def residual() -> nn.Module:
        return NORMS[c.norm](c.width, c.dropout)

    def final_norm() -> nn.Module:
        return LayerNorm(c.width) if c.norm == "pre" else nn.Identity()

    target_table = nn.Embedding(target_vocabulary, c.width, padding_idx=pad)
    source_table = target_table if c.share == "all" else nn.Embedding(source_vocabulary, c.width, padding_idx=pad)
    for table in dict.fromkeys(
        (source_table, target_table)
    ):  # a set would draw in an order that changes from run to run
        nn.init.normal_(table.weight, std=c.width**-0.5)
        nn.init.zeros_(table.weight[pad])
    output = nn.Linear(c.width, target_vocabulary, bias=c.output_bias)
    nn.init.normal_(output.weight, std=c.width**-0.5)
    if c.output_bias:
        nn.init.zeros_(output.bias)
    if c.share != "none":
        output.weight = target_table.weight
    positions = [POSITIONS[c.positions](c.width, c.max_positions) for _ in range(2 if c.positions == "learned" else 1)]
    model = Transformer(
        Embedding(source_table, positions[0], c.dropout),
        [EncoderLayer(attention(), feedforward(), residual(), residual()) for _ in range(c.encoder_layers)],
        final_norm(),
        Embedding(target_table, positions[-1], c.dropout),
        [
            DecoderLayer(attention(), attention(), feedforward(), residual(), residual(), residual())
            for _ in range(c.decoder_layers)
        ],
        final_norm(),
        output,
    )
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2 and name.startswith(("encoder.", "decoder.")):
            nn.init.xavier_uniform_(parameter)
        elif parameter.dim() == 1 and name.endswith("bias"):
            nn.init.zeros_(parameter)
    return model


class Embedding(nn.Module):
    """sqrt(D) times the piece's vector, plus its place (section 3.4 and 3.5): ids (…) -> (…, D)."""

    def __init__(self, table: nn.Embedding, positions: nn.Module, dropout: float) -> None:
        super().__init__()
        self.table = table
        self.positions = positions
        self.dropout = Dropout(dropout)
        self.scale = math.sqrt(table.embedding_dim)

    def forward(self, ids: Tensor, places: Tensor, longest: int) -> Tensor:
        vectors = look_up(ids, self.table.weight) * self.scale
        # The table of sinusoids stays exact whatever the weights' type.
        return self.dropout(vectors + self.positions(places, longest).to(vectors.dtype))  # type: ignore[no-any-return]


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward network (section 3.1)."""

    def __init__(self, attention: MultiHead, feedforward: FeedForward, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.attention, self.attention_residual = attention, first
        self.feedforward, self.feedforward_residual = feedforward, second

    def forward(self, x: Tensor, layout: Layout, mask: Mask, record: list[Tensor] | None) -> Tensor:
        def attend(y: Tensor) -> Tensor:
            return self.attention(y, layout, self.attention.prepare(y, layout), mask, record)  # type: ignore[no-any-return]

        x = self.attention_residual(x, attend)
        return self.feedforward_residual(x, self.feedforward)  # type: ignore[no-any-return]


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the memory, then the feed-forward network (section 3.1)."""

    def __init__(
        self,
        attention: MultiHead,
        cross: MultiHead,
        feedforward: FeedForward,
        first: nn.Module,
        second: nn.Module,
        third: nn.Module,
    ) -> None:
        super().__init__()
        self.attention, self.attention_residual = attention, first
        self.cross, self.cross_residual = cross, second
        self.feedforward, self.feedforward_residual = feedforward, third

    def forward(
        self,
        x: Tensor,
        layout: Layout,
        mask: Mask,
        past: Cache,
        memory: KeysValues,
        memory_mask: Mask | None,
        record: list[Tensor] | None,
    ) -> tuple[Tensor, Cache]:
        def attend(y: Tensor) -> Tensor:
            nonlocal past
            new = self.attention.prepare(y, layout)
            past = past.append(new.keys, new.values)
            return self.attention(y, layout, past.filled(), mask)  # type: ignore[no-any-return]

        def look(y: Tensor) -> Tensor:
            return self.cross(y, layout, memory, memory_mask, record)  # type: ignore[no-any-return]

        x = self.attention_residual(x, attend)
        x = self.cross_residual(x, look)
        return self.feedforward_residual(x, self.feedforward), past


@dataclass(frozen=True)
class TransformerState:
    """Per decoder layer the memory's keys and values and those of the target so far; `place` target pieces are in."""

    memory: tuple[KeysValues, ...]
    memory_lengths: Tensor
    past: tuple[Cache, ...]
    place: int = 0

    def select(self, rows: Tensor) -> TransformerState:
        return TransformerState(
            tuple(m.select(rows) for m in self.memory),
            self.memory_lengths.index_select(0, rows),
            tuple(p.select(rows) for p in self.past),
            self.place,
        )


class Transformer(nn.Module):
    """Encoder, decoder and projection; made by `build`."""

    def __init__(
        self,
        source: Embedding,
        encoder: list[EncoderLayer],
        encoder_norm: nn.Module,
        target: Embedding,
        decoder: list[DecoderLayer],
        decoder_norm: nn.Module,
        output: nn.Linear,
    ) -> None:
        super().__init__()
        self.source, self.target, self.output = source, target, output
        self.encoder, self.decoder = nn.ModuleList(encoder), nn.ModuleList(decoder)
        self.encoder_norm, self.decoder_norm = encoder_norm, decoder_norm

    def encode(self, source: Tensor, layout: Layout, record: list[Tensor] | None = None) -> Tensor:
        """Source ids (B, S) or (L,) -> memory (…, D); `record` receives each layer's self-attention (B, H, S, S)."""
        x = self.source(source, layout.positions(), layout.width)
        mask = Lengths(layout.lengths)
        for layer in self.encoder:
            x = layer(x, layout, mask, record)
        return self.encoder_norm(x)  # type: ignore[no-any-return]

    def start(self, memory: Tensor, layout: Layout, capacity: int | None = None) -> TransformerState:
        """The state before the first piece, with fixed caches of `capacity` pieces, or growing ones."""
        prepared = tuple(layer.cross.prepare(memory, layout) for layer in self._layers())
        return TransformerState(prepared, layout.lengths, tuple(Cache(capacity=capacity) for _ in prepared))

    def decode(
        self,
        tokens: Tensor,
        state: TransformerState,
        layout: Layout | None = None,
        record: list[Tensor] | None = None,
    ) -> tuple[Tensor, TransformerState]:
        """Target ids (B, T) or (L,) -> hidden (…, D) and the next state; `record` gets cross-attention (B, H, T, S)."""
        if layout is None:
            layout = Padded(tokens.new_full((tokens.shape[0],), tokens.shape[1]), tokens.shape[1])
        x = self.target(tokens, layout.positions() + state.place, state.place + layout.width)
        mask = Causal(state.place)
        memory_mask = Lengths(state.memory_lengths)
        past = []
        for layer, cache, memory in zip(self._layers(), state.past, state.memory, strict=True):
            x, cache = layer(x, layout, mask, cache, memory, memory_mask, record)
            past.append(cache)
        return self.decoder_norm(x), replace(state, past=tuple(past), place=state.place + layout.width)

    def project(self, hidden: Tensor) -> Tensor:
        """Hidden (…, D) -> logits (…, V)."""
        return self.output(hidden)  # type: ignore[no-any-return]

    def _layers(self) -> list[DecoderLayer]:
        return list(self.decoder)  # type: ignore[arg-type]


def parameter_count(model: nn.Module) -> int:
    """Trained numbers, each shared matrix counted once."""
    return sum(p.numel() for p in model.parameters())
