"""GPT (Radford et al. 2018 and 2019): the Transformer's blocks with a causal mask and no memory; a language model.

Sizes: B rows, T tokens, H heads, D width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn

from regard.nn import (
    ACTIVATIONS,
    GATES,
    NORM_KINDS,
    NORMS,
    Cache,
    Embedding,
    FeedForward,
    GatedFeedForward,
    Identity,
    Layout,
    whole,
)
from regard.nn.attention import SCORES, Causal, Mask, MultiHead
from regard.nn.positions import BIASES, POSITIONS, ROTARY, NoPosition, biases, shared_by_layers

from .choices import ActivationName, NormName, PositionName, capacity, listed
from .interface import Family, Observer, check_one_vocabulary

__all__ = ["FAMILIES", "GPT", "Block", "GPTConfig", "GPTState", "StackConfig", "build", "initialise"]


class StackConfig(BaseModel):
    """A stack of blocks, as GPT and BERT have one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    width: int = Field(768, gt=0, description="features of a token, a multiple of 2")
    layers: int = Field(12, gt=0, description="blocks")
    heads: int = Field(12, gt=0, description="attentions side by side")
    key_value_heads: int = Field(
        0, ge=0, description="heads of keys and values, shared by neighbours: 1: multi-query; 0: as many as heads"
    )
    feedforward: int = Field(0, ge=0, description="inner features of the feed-forward network; 0: 4 times the width")
    dropout: float = Field(0.1, ge=0, lt=1, description="on sub-layer outputs and embedding sums")
    attention_dropout: float = Field(0.0, ge=0, lt=1, description="dropout of attention weights")
    positions: PositionName = Field(
        "learned",
        description=f"how a token knows its place: added to it ({listed(*POSITIONS)}), to the scores "
        f"({listed(*BIASES)}), or turning queries and keys ({listed(*ROTARY)})",
    )
    max_positions: int = Field(1024, gt=0, description="places that learned positions have: the longest context")
    norm: Literal["pre", "post"] = Field("pre", description="norm before each sub-layer, or after its residual sum")
    norm_kind: NormName = Field("layer", description=listed(*NORM_KINDS))
    activation: ActivationName = Field(
        "gelu",
        description=f"the feed-forward network's activation: {listed(*ACTIVATIONS)}; or a gate, with two thirds of the "
        f"inner features: {listed(*GATES)}",
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.width % (2 * self.heads):
            raise ValueError(
                f"heads ({self.heads}) must divide width ({self.width}) into even parts; "
                f"try width {-(-self.width // (2 * self.heads)) * 2 * self.heads}"
            )
        if self.key_value_heads and self.heads % self.key_value_heads:
            raise ValueError(
                f"key_value_heads ({self.key_value_heads}) must divide heads ({self.heads}); try 1, or leave it out"
            )
        return self

    @property
    def capacity(self) -> int | None:
        """The most positions that a line may have; None: any number."""
        return capacity("scaled_dot", 0, self.positions, self.max_positions)

    def attentions(self, causal: bool) -> list[MultiHead]:
        """Each layer's self-attention, with what acts inside it of the positions."""
        head = self.width // self.heads
        return [
            MultiHead(
                self.width,
                self.heads,
                head,
                head,
                SCORES["scaled_dot"](head),
                key_value_heads=self.key_value_heads,
                dropout=self.attention_dropout,
                bias=bias,
                rotary=ROTARY[self.positions](head, self.max_positions) if self.positions in ROTARY else None,
            )
            for bias in biases(self.positions, self.layers, self.heads, head, head, causal)
        ]

    def inner(self) -> nn.Module:
        """The feed-forward network."""
        kind = GatedFeedForward if self.activation in GATES else FeedForward
        return kind(self.width, self.feedforward or 4 * self.width, self.activation, 0.0)

    def residual(self) -> nn.Module:
        """What a sub-layer stands in."""
        return NORMS[self.norm](self.width, self.dropout, self.norm_kind)

    def final_norm(self) -> nn.Module:
        """What the last block is followed by."""
        return NORM_KINDS[self.norm_kind](self.width) if self.norm == "pre" else Identity()

    def embedding(self, table: nn.Embedding) -> Embedding:
        """The tokens' table and what is added of their places."""
        return Embedding(table, POSITIONS.get(self.positions, NoPosition)(self.width, self.max_positions), self.dropout)


class GPTConfig(StackConfig):
    """The defaults are GPT-2's smallest model."""

    family: Literal["gpt"] = Field("gpt", description="the model family")
    tied: bool = Field(True, description="one matrix for embeddings and projection")


def build(config: GPTConfig, source_vocabulary: int, target_vocabulary: int, pad: int = 0) -> GPT:
    """A new, randomly initialised model (GPT-2, section 2.3); there is one side, so both vocabularies are one."""
    c = config
    check_one_vocabulary(source_vocabulary, target_vocabulary)
    table = nn.Embedding(target_vocabulary, c.width, padding_idx=pad)
    output = nn.Linear(c.width, target_vocabulary, bias=False)
    if c.tied:
        output.weight = table.weight
    blocks = [Block(attention, c.inner(), c.residual(), c.residual()) for attention in c.attentions(causal=True)]
    model = GPT(c.embedding(table), blocks, c.final_norm(), output)
    initialise(model, c.layers, pad)
    return model


def initialise(model: nn.Module, layers: int, pad: int) -> None:
    """Matrices from N(0, 0.02²), those that end a residual branch smaller by the root of their number; biases 0."""
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            ends = name.endswith(("attention.output.weight", "feedforward.outer.weight"))
            nn.init.normal_(parameter, std=0.02 / (2 * layers) ** 0.5 if ends else 0.02)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            nn.init.zeros_(module.weight[pad])


class Block(nn.Module):
    """Masked self-attention, then the feed-forward network."""

    def __init__(self, attention: MultiHead, feedforward: nn.Module, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.attention, self.attention_residual = attention, first
        self.feedforward, self.feedforward_residual = feedforward, second

    def forward(
        self, x: Tensor, layout: Layout, mask: Mask, past: Cache, observe: Observer | None
    ) -> tuple[Tensor, Cache]:
        def attend(y: Tensor) -> Tensor:
            nonlocal past
            place = past.length
            new = self.attention.prepare(y, layout, place)
            past = past.append(new.keys, new.values)
            return self.attention(y, layout, past.filled(), mask, observe, "decoder", place)  # type: ignore[no-any-return]

        x = self.attention_residual(x, attend, layout)
        return self.feedforward_residual(x, self.feedforward, layout), past


@dataclass(frozen=True)
class GPTState:
    """Per block the keys and values of the text so far, of which `place` tokens are in."""

    past: tuple[Cache, ...]
    place: int = 0

    def select(self, rows: Tensor) -> GPTState:
        return GPTState(tuple(p.select(rows) for p in self.past), self.place)


class GPT(nn.Module):
    """Blocks and projection; made by `build`."""

    def __init__(self, embedding: Embedding, blocks: list[Block], norm: nn.Module, output: nn.Linear) -> None:
        super().__init__()
        self.embedding, self.blocks, self.norm, self.output = embedding, nn.ModuleList(blocks), norm, output

    def start(self, capacity: int | None = None) -> GPTState:
        """The state before the first token, with fixed caches of `capacity` tokens, or growing ones."""
        return GPTState(tuple(Cache(capacity=capacity) for _ in self.blocks))

    def decode(
        self, tokens: Tensor, state: GPTState, layout: Layout | None = None, observe: Observer | None = None
    ) -> tuple[Tensor, GPTState]:
        """Ids (B, T) or (L,) -> hidden (…, D) and the next state."""
        layout = layout or whole(tokens)
        x = self.embedding(tokens, layout.positions() + state.place, state.place + layout.width)
        mask = Causal(state.place)
        past = []
        for block, cache in zip(self.blocks, state.past, strict=True):
            x, cache = block(x, layout, mask, cache, observe)
            past.append(cache)
        return self.norm(x, layout), GPTState(tuple(past), state.place + layout.width)

    def project(self, hidden: Tensor) -> Tensor:
        """Hidden (…, D) -> logits (…, V) of the next token."""
        return self.output(hidden)  # type: ignore[no-any-return]


FAMILIES = {
    "gpt": Family(
        GPTConfig,
        build,
        {"width": 16, "heads": 2, "layers": 2, "max_positions": 32},
        "language-model",
        capacity=lambda config: config.capacity,
        vectors=True,
        shares_parts=lambda config: shared_by_layers(config.positions),
    )
}
