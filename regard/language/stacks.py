"""A single stack of a Transformer's blocks, made of its config: what GPT, BERT and readers have."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from regard.models.blocks import Block, added_of, feedforward_of, final_norm, residual_of, zero_padding
from regard.models.choices import StackConfig
from regard.nn.attention import SCORES, Heads, Lengths, MultiHead
from regard.nn.positions import ROTARY, Embedding, biases
from regard.nn.state import Layout, Observer


def stack_of(c: StackConfig, causal: bool) -> nn.ModuleList:
    """The blocks of a stack, each with what acts inside it of the positions."""
    head = c.width // c.heads
    heads = Heads(c.width, c.heads, head, head, c.key_value_heads)
    blocks = []
    for bias in biases(c.positions, c.layers, c.heads, (head, head), causal):
        rotary = ROTARY[c.positions](head, c.max_positions) if c.positions in ROTARY else None
        score = SCORES["scaled_dot"](head)
        attention = MultiHead(heads, score, dropout=c.attention_dropout, bias=bias, rotary=rotary)
        inner = feedforward_of(c.width, c.feedforward or 4 * c.width, c.activation, 0.0)
        blocks.append(Block(attention, inner, [residual_of(c), residual_of(c)]))
    return nn.ModuleList(blocks)


def embedding_of(c: StackConfig, table: nn.Embedding) -> Embedding:
    """The tokens' table and what is added of their positions."""
    return Embedding(table, added_of(c), c.dropout)


def initialise(model: nn.Module, layers: int, pad: int) -> None:
    """Matrices from N(0, 0.02²), those that end a residual branch smaller by the root of their number; biases 0."""
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            ends = name.endswith(("attention.output.weight", "feedforward.outer.weight"))
            nn.init.normal_(parameter, std=0.02 / (2 * layers) ** 0.5 if ends else 0.02)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)
    zero_padding(model, pad)


class Body(nn.Module):
    """What a line is read with, to both sides: ids (B, S) or (L,) -> hidden (…, D)."""

    __call__: Callable[..., Tensor]

    def __init__(self, c: StackConfig, vocabulary: int, pad: int) -> None:
        super().__init__()
        layers = stack_of(c, causal=False)
        self.embedding = embedding_of(c, nn.Embedding(vocabulary, c.width, padding_idx=pad))
        self.layers, self.norm = layers, final_norm(c)

    def forward(self, source: Tensor, layout: Layout, observe: Observer | None = None) -> Tensor:
        x = self.embedding(source, layout.positions(), layout.width)
        mask = Lengths(layout.lengths)
        for layer in self.layers:
            x, _ = layer(x, layout, mask, observe=observe)
        return self.norm(x, layout)
