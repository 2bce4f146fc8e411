"""GPT (Radford et al. 2018 and 2019): the Transformer's blocks with a causal mask and no memory; a language model.

Sizes: B rows, T tokens, H heads, D width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field
from torch import Tensor, nn

from regard.nn import Cache, Embedding, Layout, whole
from regard.nn.attention import Causal
from regard.nn.positions import shared_by_layers

from ..nn.state import Observer
from .blocks import Block, embedding_of, final_norm, initialise, stack_of
from .choices import StackConfig, own_capacity
from .interface import Family, check_one_vocabulary


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
    blocks = stack_of(c, causal=True)
    model = GPT(embedding_of(c, table), blocks, final_norm(c), output)
    initialise(model, c.layers, pad)
    return model


@dataclass(frozen=True)
class GPTState:
    """Per block the keys and values of the text so far, of which `position` tokens are in."""

    past: tuple[Cache, ...]
    position: int = 0

    def select(self, rows: Tensor) -> GPTState:
        return GPTState(tuple(p.select(rows) for p in self.past), self.position)


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
        x = self.embedding(tokens, layout.positions() + state.position, state.position + layout.width)
        mask = Causal(state.position)
        past = []
        for block, cache in zip(self.blocks, state.past, strict=True):
            x, cache = block(x, layout, mask, cache, observe=observe)
            past.append(cache)
        return self.norm(x, layout), GPTState(tuple(past), state.position + layout.width)

    def project(self, hidden: Tensor) -> Tensor:
        """Hidden (…, D) -> logits (…, V) of the next token."""
        logits: Tensor = self.output(hidden)
        return logits


FAMILIES = {
    "gpt": Family(
        GPTConfig,
        build,
        {"width": 16, "heads": 2, "layers": 2, "max_positions": 32},
        "language-model",
        capacity=own_capacity,
        vectors=True,
        shares_parts=lambda config: shared_by_layers(config.positions),
    )
}
