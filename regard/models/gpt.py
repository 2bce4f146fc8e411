"""GPT (Radford et al. 2018 and 2019): the Transformer's blocks with a causal mask and no memory; a language model.

Sizes: B rows, T pieces, H heads, D width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn

from regard.errors import ModelError
from regard.nn import NORMS, Cache, Dropout, FeedForward, LayerNorm, Layout, Padded, look_up
from regard.nn.attention import SCORES, Causal, Mask, MultiHead
from regard.nn.positions import POSITIONS

__all__ = ["GPT", "Block", "Embedding", "GPTConfig", "GPTState", "build", "initialise"]


class GPTConfig(BaseModel):
    """The defaults are GPT-2's smallest model."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    family: Literal["gpt"] = Field("gpt", description="the model family")
    width: int = Field(768, gt=0, description="features of a piece, a multiple of 2")
    layers: int = Field(12, gt=0, description="blocks")
    heads: int = Field(12, gt=0, description="attentions side by side")
    feedforward: int = Field(0, ge=0, description="inner features of the feed-forward network; 0: 4 times the width")
    dropout: float = Field(0.1, ge=0, lt=1, description="on sub-layer outputs and embedding sums")
    positions: Literal["learned", "sinusoidal", "none"] = Field("learned", description="how a piece knows its place")
    max_positions: int = Field(1024, gt=0, description="places that learned positions have: the longest context")
    norm: Literal["pre", "post"] = Field(
        "pre", description="pre: norm before each sub-layer (GPT-2); post: after (GPT)"
    )
    activation: Literal["relu", "gelu", "silu"] = Field("gelu", description="the feed-forward network's activation")
    tied: bool = Field(True, description="one matrix for embeddings and projection")

    @model_validator(mode="after")
    def _fits(self) -> GPTConfig:
        if self.width % self.heads or self.width % 2:
            raise ValueError(
                f"heads ({self.heads}) must divide width ({self.width}), which must be even; "
                f"try width {-(-self.width // (2 * self.heads)) * 2 * self.heads}"
            )
        return self


def build(config: GPTConfig, source_vocabulary: int, target_vocabulary: int, pad: int = 0) -> GPT:
    """A new, randomly initialised model (GPT-2, section 2.3); there is one side, so both vocabularies are one."""
    c = config
    if source_vocabulary != target_vocabulary:
        raise ModelError(
            f"a language model has one vocabulary, and here are {source_vocabulary} and {target_vocabulary} pieces; "
            "set text.joint = true"
        )
    table = nn.Embedding(target_vocabulary, c.width, padding_idx=pad)
    output = nn.Linear(c.width, target_vocabulary, bias=False)
    if c.tied:
        output.weight = table.weight
    blocks = []
    for _ in range(c.layers):
        head = c.width // c.heads
        attention = MultiHead(c.width, c.heads, head, head, SCORES["scaled_dot"](head))
        feedforward = FeedForward(c.width, c.feedforward or 4 * c.width, c.activation, 0.0)
        blocks.append(Block(attention, feedforward, *(NORMS[c.norm](c.width, c.dropout) for _ in range(2))))
    embedding = Embedding(table, POSITIONS[c.positions](c.width, c.max_positions), c.dropout)
    model = GPT(embedding, blocks, LayerNorm(c.width) if c.norm == "pre" else nn.Identity(), output)
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


class Embedding(nn.Module):
    """The piece's vector and that of its place: ids (…) -> (…, D)."""

    def __init__(self, table: nn.Embedding, positions: nn.Module, dropout: float) -> None:
        super().__init__()
        self.table, self.positions, self.dropout = table, positions, Dropout(dropout)

    def forward(self, ids: Tensor, places: Tensor, longest: int) -> Tensor:
        vectors = look_up(ids, self.table.weight)
        return self.dropout(vectors + self.positions(places, longest).to(vectors.dtype))  # type: ignore[no-any-return]


class Block(nn.Module):
    """Masked self-attention, then the feed-forward network."""

    def __init__(self, attention: MultiHead, feedforward: FeedForward, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.attention, self.attention_residual = attention, first
        self.feedforward, self.feedforward_residual = feedforward, second

    def forward(
        self, x: Tensor, layout: Layout, mask: Mask, past: Cache, record: list[Tensor] | None
    ) -> tuple[Tensor, Cache]:
        def attend(y: Tensor) -> Tensor:
            nonlocal past
            new = self.attention.prepare(y, layout)
            past = past.append(new.keys, new.values)
            return self.attention(y, layout, past.filled(), mask, record)  # type: ignore[no-any-return]

        x = self.attention_residual(x, attend)
        return self.feedforward_residual(x, self.feedforward), past


@dataclass(frozen=True)
class GPTState:
    """Per block the keys and values of the text so far, of which `place` pieces are in."""

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
        """The state before the first piece, with fixed caches of `capacity` pieces, or growing ones."""
        return GPTState(tuple(Cache(capacity=capacity) for _ in self.blocks))

    def decode(
        self, tokens: Tensor, state: GPTState, layout: Layout | None = None, record: list[Tensor] | None = None
    ) -> tuple[Tensor, GPTState]:
        """Ids (B, T) or (L,) -> hidden (…, D) and the next state; `record` gets each layer's weights (B, H, T, S)."""
        if layout is None:
            layout = Padded(tokens.new_full((tokens.shape[0],), tokens.shape[1]), tokens.shape[1])
        x = self.embedding(tokens, layout.positions() + state.place, state.place + layout.width)
        mask = Causal(state.place)
        past = []
        for block, cache in zip(self.blocks, state.past, strict=True):
            x, cache = block(x, layout, mask, cache, record)
            past.append(cache)
        return self.norm(x), GPTState(tuple(past), state.place + layout.width)

    def project(self, hidden: Tensor) -> Tensor:
        """Hidden (…, D) -> logits (…, V) of the next piece."""
        return self.output(hidden)  # type: ignore[no-any-return]
