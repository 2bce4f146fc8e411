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

from regard.nn import Layout, whole
from regard.nn.positions import shared_by_layers

from ..nn.state import Observer
from .blocks import Transformer, TransformerState, transformer_of
from .choices import EncoderDecoderConfig, own_capacity
from .interface import Family


class ParserConfig(EncoderDecoderConfig):
    """A Transformer's sizes."""

    family: Literal["parser"] = Field("parser", description="the model family")


def build(config: ParserConfig, source_vocabulary: int, target_vocabulary: int, pad: int = 0) -> Parser:
    """A new, randomly initialised model, for which every token is a word until it is told how tokens are spelt."""
    body = transformer_of(config, source_vocabulary, target_vocabulary, pad)
    return Parser(body, config.width, source_vocabulary, target_vocabulary)


@dataclass(frozen=True)
class ParserState:
    """The Transformer's state, the words (B, S, D), zeros behind the last, and how many of them are written (B,)."""

    inner: TransformerState
    words: Tensor
    written: Tensor

    def select(self, rows: Tensor) -> ParserState:
        return ParserState(
            self.inner.select(rows), self.words.index_select(0, rows), self.written.index_select(0, rows)
        )


class Parser(nn.Module):
    """A Transformer, and what of its tokens are words."""

    begins: Tensor
    """(source vocabulary,) the tokens that a word begins with."""
    stands: Tensor
    """(target vocabulary,) the tokens that stand for a word."""

    def __init__(self, body: Transformer, width: int, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        self.body, self.output = body, body.output
        self.word = nn.Linear(width, width)
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
        inside = torch.arange(layout.width, device=source.device) < layout.lengths[:, None]
        return self.body.encode(source, layout, observe), begins & inside

    def start(self, memory: tuple[Tensor, Tensor], layout: Layout, capacity: int | None = None) -> ParserState:
        """The state before the first token; see `Transformer.start`."""
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

    def project(self, hidden: Tensor) -> Tensor:
        """Hidden (…, D) -> logits (…, V)."""
        return self.body.project(hidden)


FAMILIES = {
    "parser": Family(
        ParserConfig,
        build,
        {"width": 16, "heads": 2, "feedforward": 32, "encoder_layers": 1, "decoder_layers": 1},
        cross_attention=lambda config: (config.decoder_layers, config.heads),
        capacity=own_capacity,
        needs_vocabulary=True,
        shares_parts=lambda config: shared_by_layers(config.positions),
    )
}
