"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017), encoder and decoder.

Sizes: B sentences, S source tokens, T target tokens, H heads, D width, V vocabulary.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn

from regard.errors import ModelError
from regard.nn import (
    ACTIVATIONS,
    GATES,
    NORM_KINDS,
    NORMS,
    Cache,
    Dropout,
    FeedForward,
    GatedFeedForward,
    Identity,
    KeysValues,
    Layout,
    look_up,
    whole,
)
from regard.nn.attention import NORMALIZERS, SCORES, Causal, Lengths, Mask, MultiHead
from regard.nn.positions import BIASES, POSITIONS, ROTARY, Bias, NoPosition, biases, shared_by_layers

from .choices import ActivationName, NormalizerName, NormName, PositionName, ScoreName, capacity, listed
from .interface import Family, Observer

__all__ = ["FAMILIES", "Transformer", "TransformerConfig", "TransformerState", "build", "parameter_count"]


_DOTS = [name for name, score in SCORES.items() if score.is_dot]


class TransformerConfig(BaseModel):
    """A row of the paper's Table 3, or what came after; the defaults are its base model."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    family: Literal["transformer"] = Field("transformer", description="the model family")
    width: int = Field(512, gt=0, description="d_model: features of a token, a multiple of 2")
    encoder_layers: int = Field(6, gt=0, description="N of the encoder")
    decoder_layers: int = Field(6, gt=0, description="N of the decoder")
    heads: int = Field(8, gt=0, description="h: attentions side by side")
    feedforward: int = Field(2048, gt=0, description="d_ff: inner features of the feed-forward network")
    key_width: int = Field(0, ge=0, description="d_k of a head; 0: width / heads")
    value_width: int = Field(0, ge=0, description="d_v of a head; 0: width / heads")
    key_value_heads: int = Field(
        0,
        ge=0,
        description="heads of keys and values, shared by neighbours: 1: multi-query; 0: as many as heads",
    )
    key_value: Literal["projected", "split"] = Field(
        "projected",
        description="keys and values: projected, or split: the two halves of what is looked at (widths left at 0)",
    )
    dropout: float = Field(0.1, ge=0, lt=1, description="P_drop on sub-layer outputs and embedding sums")
    attention_dropout: float = Field(0.0, ge=0, lt=1, description="dropout of attention weights")
    activation_dropout: float = Field(0.0, ge=0, lt=1, description="dropout inside the feed-forward network")
    positions: PositionName = Field(
        "sinusoidal",
        description=f"how a token knows its place: added to it ({listed(*POSITIONS)}), to the scores of self-attention "
        f"({listed(*BIASES)}), or turning its queries and keys ({listed(*ROTARY)})",
    )
    positions_enter: Literal["added", "concatenated", "every-layer"] = Field(
        "added",
        description="positions of the first kind: added to embeddings, concatenated and mapped back to width, or "
        "added again before every layer",
    )
    max_positions: int = Field(1024, gt=0, description="places that learned positions have; sinusoids go on for ever")
    norm: Literal["post", "pre"] = Field("post", description="post: norm after the residual sum (paper); pre: before")
    norm_kind: NormName = Field(
        "layer", description=f"{listed(*NORM_KINDS)}: of a token's features, but for batch, which sees its neighbours"
    )
    score: ScoreName = Field("scaled_dot", description=f"how queries and keys are compared: {listed(*SCORES)}")
    score_width: int = Field(
        0,
        ge=0,
        description="inner features of additive and concat, rank of reduced_rank, places of location; 0: what suits",
    )
    normalize: NormalizerName = Field(
        "softmax", description=f"how scores become weights: {listed(*NORMALIZERS)} (the last three: hard attention)"
    )
    activation: ActivationName = Field(
        "relu",
        description=f"the feed-forward network's activation: {listed(*ACTIVATIONS)}; or a gate, with two thirds of the "
        f"inner features: {listed(*GATES)}",
    )
    share: Literal["all", "target", "none"] = Field(
        "all", description="one matrix for source and target embeddings and the projection (all), the last two, or none"
    )
    output_bias: bool = Field(False, description="a bias on the logits (Marian has one, the paper has none)")

    @model_validator(mode="after")
    def _fits(self) -> TransformerConfig:
        if (self.key_width == 0 or self.value_width == 0) and self.width % self.heads:
            raise ValueError(
                f"heads ({self.heads}) must divide width ({self.width}); try {_divisors(self.width, self.heads)}, or "
                "give key_width and value_width"
            )
        if self.heads % self.groups:
            raise ValueError(
                f"key_value_heads ({self.groups}) must divide heads ({self.heads}); "
                f"try {_divisors(self.heads, self.groups)}"
            )
        keys, values = self.widths
        if self.key_value == "split" and self.groups * (keys + values) != self.width:
            raise ValueError(
                f'key_value = "split" makes keys and values of the {self.width} features themselves, so '
                f"key_value_heads ({self.groups}) times key_width ({keys}) and value_width ({values}) together must "
                f"be {self.width}; leave both widths at 0"
            )
        if self.positions in {**BIASES, **ROTARY} and self.positions_enter != "added":
            raise ValueError(
                f'positions_enter = "{self.positions_enter}" is for positions that are added to a token '
                f'({listed(*POSITIONS)}), and "{self.positions}" act inside attention; leave it out'
            )
        needs_dot = self.positions in ROTARY or (self.positions in BIASES and BIASES[self.positions].needs_dot)
        if needs_dot and not SCORES[self.score].is_dot:
            raise ValueError(
                f'positions = "{self.positions}" need a score that is a dot product ({listed(*_DOTS)}), and '
                f'"{self.score}" is none; change one of the two'
            )
        if self.positions in ROTARY and (width := SCORES[self.score](keys, size=self.score_width).prepared) % 2:
            raise ValueError(
                f'positions = "{self.positions}" turn pairs of features, so what is compared must have an even width, '
                f"not {width}; change key_width or score_width"
            )
        if self.width % 2:
            raise ValueError(f"width ({self.width}) must be even, since sinusoids come in pairs; try {self.width + 1}")
        return self

    @property
    def groups(self) -> int:
        """Heads of keys and values."""
        return self.key_value_heads or self.heads

    @property
    def widths(self) -> tuple[int, int]:
        """Features of a head's keys and values."""
        head = self.width // (2 * self.groups if self.key_value == "split" else self.heads)
        return self.key_width or head, self.value_width or head

    @property
    def capacity(self) -> int | None:
        """The most positions that a line may have; None: any number."""
        return capacity(self.score, self.score_width, self.positions, self.max_positions)

    @property
    def beyond(self) -> dict[str, str]:
        """Parts that other libraries may not know, by the keys that name them: all that is not the paper's."""
        known = {
            "key_value_heads": (0, self.heads),
            "key_value": ("projected",),
            "positions": tuple(POSITIONS),
            "positions_enter": ("added",),
            "norm_kind": ("layer",),
            "score": ("scaled_dot",),
            "normalize": ("softmax",),
            "activation": tuple(ACTIVATIONS),
        }
        values = {key: getattr(self, key) for key in known}
        return {key: f"model.{key} = {json.dumps(value)}" for key, value in values.items() if value not in known[key]}


def _divisors(number: int, near: int) -> str:
    """The two divisors of a number that are nearest to another."""
    found = sorted((n for n in range(1, number + 1) if number % n == 0), key=lambda n: (abs(n - near), n))
    return listed(*sorted(found[:2]))


def build(config: TransformerConfig, source_vocabulary: int, target_vocabulary: int, pad: int = 0) -> Transformer:
    """A new, randomly initialised model; both vocabularies must be equal when embeddings are shared by all."""
    if config.share == "all" and source_vocabulary != target_vocabulary:
        raise ModelError(
            f'model.share = "all" needs one vocabulary, but the source has {source_vocabulary} tokens and the target '
            f'{target_vocabulary}; set text.joint = true, or model.share = "target"'
        )
    c = config
    keys, values = c.widths

    prepared = SCORES[c.score](keys, size=c.score_width).prepared

    def attention(positions: str = "", bias: Bias | None = None) -> MultiHead:
        """With what acts inside it, of these positions; none act between a sequence and the memory."""
        score = SCORES[c.score](keys, size=c.score_width)
        rotary = ROTARY[positions](score.prepared, c.max_positions) if positions in ROTARY else None
        return MultiHead(
            c.width,
            c.heads,
            keys,
            values,
            score,
            key_value_heads=c.groups,
            split=c.key_value == "split",
            normalize=NORMALIZERS[c.normalize](),
            dropout=c.attention_dropout,
            bias=bias,
            rotary=rotary,
        )

    def feedforward() -> nn.Module:
        kind = GatedFeedForward if c.activation in GATES else FeedForward
        return kind(c.width, c.feedforward, c.activation, c.activation_dropout)

    def residual() -> nn.Module:
        return NORMS[c.norm](c.width, c.dropout, c.norm_kind)

    def final_norm() -> nn.Module:
        return NORM_KINDS[c.norm_kind](c.width) if c.norm == "pre" else Identity()

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
    scheme = POSITIONS.get(c.positions, NoPosition)  # what acts inside attention is not added
    positions = [scheme(c.width, c.max_positions) for _ in range(2 if c.positions == "learned" else 1)]
    model = Transformer(
        Embedding(source_table, positions[0], c.dropout, c.positions_enter),
        [
            EncoderLayer(attention(c.positions, bias), feedforward(), residual(), residual())
            for bias in biases(c.positions, c.encoder_layers, c.heads, prepared, values, causal=False)
        ],
        final_norm(),
        Embedding(target_table, positions[-1], c.dropout, c.positions_enter),
        [
            DecoderLayer(attention(c.positions, bias), attention(), feedforward(), residual(), residual(), residual())
            for bias in biases(c.positions, c.decoder_layers, c.heads, prepared, values, causal=True)
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
    """sqrt(D) times the token's vector, plus its place (section 3.4 and 3.5): ids (…) -> (…, D).

    Places may also stand beside the vector, (…, 2 D), which is then mapped to (…, D).
    """

    def __init__(self, table: nn.Embedding, positions: nn.Module, dropout: float, enter: str = "added") -> None:
        super().__init__()
        self.table = table
        self.positions = positions
        self.dropout = Dropout(dropout)
        self.scale = math.sqrt(table.embedding_dim)
        self.enter = enter
        if enter == "concatenated":
            self.join = nn.Linear(2 * table.embedding_dim, table.embedding_dim)
            nn.init.xavier_uniform_(self.join.weight)

    def forward(self, ids: Tensor, places: Tensor, longest: int) -> Tensor:
        vectors = look_up(ids, self.table) * self.scale
        # The table of sinusoids stays exact whatever the weights' type.
        placed = self.positions(places, longest).to(vectors.dtype)
        if self.enter == "concatenated":
            return self.dropout(self.join(torch.cat((vectors, placed.expand_as(vectors)), -1)))  # type: ignore[no-any-return]
        return self.dropout(vectors + placed)  # type: ignore[no-any-return]

    def again(self, x: Tensor, places: Tensor, longest: int) -> Tensor:
        """What enters a layer that is not the first, (…, D): with its places, where they enter every layer."""
        return x + self.positions(places, longest).to(x.dtype) if self.enter == "every-layer" else x


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward network (section 3.1)."""

    def __init__(self, attention: MultiHead, feedforward: nn.Module, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.attention, self.attention_residual = attention, first
        self.feedforward, self.feedforward_residual = feedforward, second

    def forward(self, x: Tensor, layout: Layout, mask: Mask, observe: Observer | None) -> Tensor:
        def attend(y: Tensor) -> Tensor:
            return self.attention(y, layout, self.attention.prepare(y, layout), mask, observe)  # type: ignore[no-any-return]

        x = self.attention_residual(x, attend, layout)
        return self.feedforward_residual(x, self.feedforward, layout)  # type: ignore[no-any-return]


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the memory, then the feed-forward network (section 3.1)."""

    def __init__(
        self,
        attention: MultiHead,
        cross: MultiHead,
        feedforward: nn.Module,
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
        observe: Observer | None,
    ) -> tuple[Tensor, Cache]:
        def attend(y: Tensor) -> Tensor:
            nonlocal past
            place = past.length
            new = self.attention.prepare(y, layout, place)
            past = past.append(new.keys, new.values)
            return self.attention(y, layout, past.filled(), mask, observe, "decoder", place)  # type: ignore[no-any-return]

        def look(y: Tensor) -> Tensor:
            return self.cross(y, layout, memory, memory_mask, observe, "cross")  # type: ignore[no-any-return]

        x = self.attention_residual(x, attend, layout)
        x = self.cross_residual(x, look, layout)
        return self.feedforward_residual(x, self.feedforward, layout), past


@dataclass(frozen=True)
class TransformerState:
    """Per decoder layer the memory's keys and values and those of the target so far; `place` target tokens are in."""

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

    def encode(self, source: Tensor, layout: Layout, observe: Observer | None = None) -> Tensor:
        """Source ids (B, S) or (L,) -> memory (…, D)."""
        places = layout.positions(), layout.width
        x = self.source(source, *places)
        mask = Lengths(layout.lengths)
        for i, layer in enumerate(self.encoder):
            x = layer(self.source.again(x, *places) if i else x, layout, mask, observe)
        return self.encoder_norm(x, layout)  # type: ignore[no-any-return]

    def start(self, memory: Tensor, layout: Layout, capacity: int | None = None) -> TransformerState:
        """The state before the first token, with fixed caches of `capacity` tokens, or growing ones."""
        prepared = tuple(layer.cross.prepare(memory, layout) for layer in self._layers())
        return TransformerState(prepared, layout.lengths, tuple(Cache(capacity=capacity) for _ in prepared))

    def decode(
        self,
        tokens: Tensor,
        state: TransformerState,
        layout: Layout | None = None,
        observe: Observer | None = None,
        added: Tensor | None = None,
    ) -> tuple[Tensor, TransformerState]:
        """Target ids (B, T) or (L,) -> hidden (…, D) and the next state; `added` (…, D) goes to what is read."""
        layout = layout or whole(tokens)
        places = layout.positions() + state.place, state.place + layout.width
        x = self.target(tokens, *places)
        x = x if added is None else x + added
        mask = Causal(state.place)
        memory_mask = Lengths(state.memory_lengths)
        past: list[Cache] = []
        for layer, cache, memory in zip(self._layers(), state.past, state.memory, strict=True):
            x = self.target.again(x, *places) if past else x
            x, cache = layer(x, layout, mask, cache, memory, memory_mask, observe)
            past.append(cache)
        return self.decoder_norm(x, layout), replace(state, past=tuple(past), place=state.place + layout.width)

    def project(self, hidden: Tensor) -> Tensor:
        """Hidden (…, D) -> logits (…, V)."""
        return self.output(hidden)  # type: ignore[no-any-return]

    def _layers(self) -> list[DecoderLayer]:
        return list(self.decoder)  # type: ignore[arg-type]


def parameter_count(model: nn.Module) -> int:
    """Trained numbers, each shared matrix counted once."""
    return sum(p.numel() for p in model.parameters())


FAMILIES = {
    "transformer": Family(
        TransformerConfig,
        build,
        {"width": 16, "heads": 2, "feedforward": 32, "encoder_layers": 1, "decoder_layers": 1},
        cross_attention=lambda config: (config.decoder_layers, config.heads),
        capacity=lambda config: config.capacity,
        vectors=True,
        shares_parts=lambda config: shared_by_layers(config.positions),
    )
}
