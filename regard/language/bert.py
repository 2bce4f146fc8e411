"""BERT (Devlin et al. 2019): the Transformer's encoder alone, which fills in masked tokens, or says a line's class.

Sizes: B lines, S tokens, H heads, D width, V vocabulary or classes.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from regard.models.blocks import Projecting
from regard.models.choices import SMALL_STACK, Chance, Size, StackConfig, family_of, one_of
from regard.models.interface import check_one_vocabulary
from regard.nn.convolution import POOLS
from regard.nn.layers import Dropout, LayerNorm, Map
from regard.nn.state import Layout, Observer

from .stacks import Body, initialise


class _BodyConfig(StackConfig):
    """The paper's base model, but for its norm after each residual sum, which warms up badly."""

    max_positions: Size = Field(512, description="positions that are learned: the longest line and its end")


class BERTConfig(_BodyConfig):
    """The body, and its defaults."""

    family: Literal["bert"] = Field("bert", description="the model family")


class BERTClassifierConfig(_BodyConfig):
    """The same body, and how a line becomes one vector."""

    family: Literal["bert-classifier"] = Field("bert-classifier", description="the model family")
    pool: Annotated[str, one_of("convolution.POOLS")] = Field(
        "end", description="a line's vector: what stands at its end (as the paper's [CLS]), or mean, of all positions"
    )
    head_dropout: Chance = Field(0.1, description="on a line's vector")


class _Reader(Projecting):
    """Body and a map of its width; `encode` is the body's."""

    def __init__(self, config: _BodyConfig, source_vocabulary: int, pad: int) -> None:
        super().__init__()
        self.body = Body(config, source_vocabulary, pad)

    def encode(self, source: Tensor, layout: Layout, observe: Observer | None = None) -> Tensor:
        return self.body(source, layout, observe)


class BERT(_Reader):
    """Body and masked language model."""

    def __init__(self, config: BERTConfig, source_vocabulary: int, target_vocabulary: int, pad: int = 0) -> None:
        """Randomly initialised; there is one side, so both vocabularies are one."""
        check_one_vocabulary(source_vocabulary, target_vocabulary)
        super().__init__(config, source_vocabulary, pad)
        output = Map(config.width, target_vocabulary)
        output.weight = self.body.embedding.table.weight
        self.inner, self.norm, self.output = Map(config.width, config.width), LayerNorm(config.width), output
        initialise(self, config.layers, pad)

    def head(self, hidden: Tensor) -> Tensor:
        """Hidden (…, D) -> what `output` takes, (…, D)."""
        return self.norm(F.gelu(self.inner(hidden)))

    def project(self, hidden: Tensor) -> Tensor:
        """Hidden (…, D) -> logits (…, V) of the token at each position."""
        return self.output(self.head(hidden))


class BERTClassifier(_Reader):
    """Body and classes, which are the target's tokens."""

    def __init__(
        self, config: BERTClassifierConfig, source_vocabulary: int, target_vocabulary: int, pad: int = 0
    ) -> None:
        super().__init__(config, source_vocabulary, pad)
        output = Map(config.width, target_vocabulary)
        self.pooler, self.dropout = Map(config.width, config.width), Dropout(config.head_dropout)
        self.output, self.pool = output, config.pool
        initialise(self, config.layers, pad)

    def classify(self, source: Tensor, layout: Layout, observe: Observer | None = None) -> Tensor:
        """Ids (B, S) or (L,) -> what `output` takes, (B, D)."""
        pooled = POOLS[self.pool](self.encode(source, layout, observe), layout)
        return self.dropout(self.pooler(pooled).tanh())


FAMILIES = {
    "bert": family_of(BERTConfig, BERT, SMALL_STACK, "reader", vectors=True),
    "bert-classifier": family_of(BERTClassifierConfig, BERTClassifier, SMALL_STACK, "classifier", vectors=True),
}
