"""A Transformer that is told at which word it stands, for trees: deterministic attention (Ma, Liu et al. 2017, 2018).

A line of symbols such as (S (NP XX XX )NP … has a symbol for each word of the source, in the words' order; so whoever
has written i of them stands before word i, and need not learn to look there. What the encoder made of that word is
added to the decoder's input; all else is the Transformer's, which may look at the other words as ever.

Sizes: B sentences, S source tokens, T target tokens, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from regard.models.blocks import Projecting, Transformer, TransformerState
from regard.models.choices import SMALL, EncoderDecoderConfig, family_of
from regard.nn.layers import Map
from regard.nn.state import Layout, Observer, Rows, in_rows, whole


class ParserConfig(EncoderDecoderConfig):
    """A Transformer's sizes."""

    family: Literal["parser"] = Field("parser", description="the model family")


@dataclass(frozen=True)
class ParserState(Rows):
    """The Transformer's state, the words (B, S, D), zeros behind the last, and how many of them are written (B,)."""

    inner: TransformerState
    words: Tensor
    written: Tensor


class Parser(Projecting):
    """A Transformer, and what of its tokens are words; every one is, until it is told how tokens are spelt."""

    begins: Tensor
    """(source vocabulary,) the tokens that a word begins with."""
    stands: Tensor
    """(target vocabulary,) the tokens that stand for a word."""

    def __init__(self, config: ParserConfig, source_vocabulary: int, target_vocabulary: int, pad: int = 0) -> None:
        super().__init__()
        self.body = Transformer(config, source_vocabulary, target_vocabulary, pad)
        self.output, self.word = self.body.output, Map(config.width, config.width)
        nn.init.xavier_uniform_(self.word.weight)
        nn.init.zeros_(self.word.bias)
        self.register_buffer("begins", torch.ones(source_vocabulary, dtype=torch.bool), persistent=False)
        self.register_buffer("stands", torch.ones(target_vocabulary, dtype=torch.bool), persistent=False)

    def spell(self, source: Sequence[str], target: Sequence[str]) -> None:
        """See `NeedsVocabulary`: a word begins with U+2581, and what is no bracket stands for a word."""
        self.begins.copy_(torch.tensor([token.startswith("\u2581") for token in source]))
        stands = [token.startswith("\u2581") and token[1:2] not in "()" for token in target]
        self.stands.copy_(torch.tensor(stands))

    def encode(self, source: Tensor, layout: Layout, observe: Observer | None = None) -> tuple[Tensor, Tensor]:
        """Source ids (B, S) or (L,) -> the Transformer's memory, and which of its tokens begin a word (B, S)."""
        begins = layout.pad(self.begins[source][..., None])[..., 0]
        return self.body.encode(source, layout, observe), begins & in_rows(layout).inside()

    def start(self, memory: tuple[Tensor, Tensor], layout: Layout, capacity: int | None = None) -> ParserState:
        seen, begins = memory
        order = begins.logical_not().to(torch.uint8).argsort(stable=True)  # the words' beginnings come first
        words = layout.pad(seen).take_along_dim(order[..., None], 1)
        words = words * begins.take_along_dim(order, 1)[..., None]
        return ParserState(self.body.start(seen, layout, capacity), words, torch.zeros_like(layout.lengths))

    def decode(
        self, tokens: Tensor, state: ParserState, layout: Layout | None = None, observe: Observer | None = None
    ) -> tuple[Tensor, ParserState]:
        """Target ids (B, T) or (L,) -> hidden (…, D) and the next state; see `Transformer.decode`."""
        layout = layout or whole(tokens)
        stands = layout.pad(self.stands[tokens][..., None])[..., 0]
        written = state.written[:, None] + stands.cumsum(1)  # (B, T)
        last = state.words.shape[1] - 1
        word = state.words.take_along_dim(written.clamp(max=last)[..., None], 1) * (written <= last)[..., None]
        added = self.word(layout.flatten(word))
        hidden, inner = self.body.decode(tokens, state.inner, layout, observe, added=added)
        ends = (layout.lengths - 1)[:, None]
        return hidden, replace(state, inner=inner, written=written.take_along_dim(ends, 1)[:, 0])


FAMILIES = {"parser": family_of(ParserConfig, Parser, SMALL, needs_vocabulary=True)}
