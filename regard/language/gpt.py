"""GPT (Radford et al. 2018 and 2019): the Transformer's blocks with a causal mask and no memory; a language model.

Sizes: B rows, T tokens, H heads, D width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field
from torch import Tensor, nn

from regard.models.blocks import Projecting, final_norm
from regard.models.choices import SMALL_STACK, StackConfig, Tied, family_of
from regard.models.interface import check_one_vocabulary
from regard.nn.attention import Causal
from regard.nn.layers import Map
from regard.nn.state import Cache, Layout, Observer, Rows, whole

from .stacks import embedding_of, initialise, stack_of


class GPTConfig(StackConfig):
    """The defaults are GPT-2's smallest model."""

    family: Literal["gpt"] = Field("gpt", description="the model family")
    tied: Tied = True


@dataclass(frozen=True)
class GPTState(Rows):
    """Per block the keys and values of the text so far, of which `position` tokens are in."""

    past: tuple[Cache, ...]
    position: int = 0


class GPT(Projecting):
    """Blocks and projection."""

    def __init__(self, config: GPTConfig, source_vocabulary: int, target_vocabulary: int, pad: int = 0) -> None:
        """Randomly initialised (GPT-2, section 2.3); there is one side, so both vocabularies are one."""
        super().__init__()
        c = config
        check_one_vocabulary(source_vocabulary, target_vocabulary)
        table = nn.Embedding(target_vocabulary, c.width, padding_idx=pad)
        output = Map(c.width, target_vocabulary, bias=False)
        if c.tied:
            output.weight = table.weight
        blocks = stack_of(c, causal=True)
        self.embedding, self.blocks, self.norm, self.output = embedding_of(c, table), blocks, final_norm(c), output
        initialise(self, c.layers, pad)

    def start(self, capacity: int | None = None) -> GPTState:
        return GPTState(tuple(Cache(capacity=capacity) for _ in self.blocks))

    def decode(
        self, tokens: Tensor, state: GPTState, layout: Layout | None = None, observe: Observer | None = None
    ) -> tuple[Tensor, GPTState]:
        layout = layout or whole(tokens)
        x = self.embedding(tokens, layout.positions() + state.position, state.position + layout.width)
        mask = Causal(state.position)
        past = []
        for block, cache in zip(self.blocks, state.past, strict=True):
            x, cache = block(x, layout, mask, cache, observe=observe)
            past.append(cache)
        return self.norm(x, layout), GPTState(tuple(past), state.position + layout.width)


FAMILIES = {"gpt": family_of(GPTConfig, GPT, SMALL_STACK, "language-model", vectors=True)}
