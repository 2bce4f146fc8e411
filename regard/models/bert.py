"""BERT (Devlin et al. 2019): the Transformer's encoder alone, which fills in masked tokens, or says a line's class.

Sizes: B lines, S tokens, H heads, D width, V vocabulary or classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from regard.nn import Dropout, Embedding, LayerNorm, Layout
from regard.nn.attention import Lengths
from regard.nn.convolution import POOLS
from regard.nn.positions import shared_by_layers

from ..nn.state import Observer
from .blocks import Block, embedding_of, final_norm, initialise, stack_of
from .choices import PoolName, StackConfig, own_capacity
from .interface import Family, check_one_vocabulary


class _BodyConfig(StackConfig):
    """The paper's base model, but for its norm after each residual sum, which warms up badly."""

    max_positions: int = Field(512, gt=0, description="positions that are learned: the longest line and its end")


class BERTConfig(_BodyConfig):
    """The body, and its defaults."""

    family: Literal["bert"] = Field("bert", description="the model family")


class BERTClassifierConfig(_BodyConfig):
    """The same body, and how a line becomes one vector."""

    family: Literal["bert-classifier"] = Field("bert-classifier", description="the model family")
    pool: PoolName = Field(
        "end", description="a line's vector: what stands at its end (as the paper's [CLS]), or mean, of all positions"
    )
    head_dropout: float = Field(0.1, ge=0, lt=1, description="on a line's vector")


def build(config: BERTConfig, source_vocabulary: int, target_vocabulary: int, pad: int = 0) -> BERT:
    """A new, randomly initialised model; there is one side, so both vocabularies are one."""
    check_one_vocabulary(source_vocabulary, target_vocabulary)
    body = _body(config, source_vocabulary, pad)
    output = nn.Linear(config.width, target_vocabulary)
    output.weight = body.embedding.table.weight
    model = BERT(body, nn.Linear(config.width, config.width), LayerNorm(config.width), output)
    initialise(model, config.layers, pad)
    return model


def build_classifier(
    config: BERTClassifierConfig, source_vocabulary: int, target_vocabulary: int, pad: int = 0
) -> BERTClassifier:
    """A new, randomly initialised model whose classes are the target's tokens."""
    c = config
    body, output = _body(c, source_vocabulary, pad), nn.Linear(c.width, target_vocabulary)
    model = BERTClassifier(body, nn.Linear(c.width, c.width), Dropout(c.head_dropout), output, c.pool)
    initialise(model, c.layers, pad)
    return model


def _body(c: _BodyConfig, vocabulary: int, pad: int) -> Body:
    layers = stack_of(c, causal=False)
    return Body(embedding_of(c, nn.Embedding(vocabulary, c.width, padding_idx=pad)), layers, final_norm(c))


class Body(nn.Module):
    """What both read with: ids (B, S) or (L,) -> hidden (…, D)."""

    __call__: Callable[..., Tensor]

    def __init__(self, embedding: Embedding, layers: list[Block], norm: nn.Module) -> None:
        super().__init__()
        self.embedding, self.layers, self.norm = embedding, nn.ModuleList(layers), norm

    def forward(self, source: Tensor, layout: Layout, observe: Observer | None = None) -> Tensor:
        x = self.embedding(source, layout.positions(), layout.width)
        mask = Lengths(layout.lengths)
        for layer in self.layers:
            x, _ = layer(x, layout, mask, observe=observe)
        found: Tensor = self.norm(x, layout)
        return found


class BERT(nn.Module):
    """Body and masked language model; made by `build`."""

    def __init__(self, body: Body, inner: nn.Linear, norm: nn.Module, output: nn.Linear) -> None:
        super().__init__()
        self.body, self.inner, self.norm, self.output = body, inner, norm, output

    def encode(self, source: Tensor, layout: Layout, observe: Observer | None = None) -> Tensor:
        """Ids (B, S) or (L,) -> hidden (…, D)."""
        return self.body(source, layout, observe)

    def head(self, hidden: Tensor) -> Tensor:
        """Hidden (…, D) -> what `output` takes, (…, D)."""
        found: Tensor = self.norm(F.gelu(self.inner(hidden)))
        return found

    def project(self, hidden: Tensor) -> Tensor:
        """Hidden (…, D) -> logits (…, V) of the token at each position."""
        logits: Tensor = self.output(self.head(hidden))
        return logits


class BERTClassifier(nn.Module):
    """Body and classes; made by `build_classifier`."""

    def __init__(self, body: Body, pooler: nn.Linear, dropout: nn.Module, output: nn.Linear, pool: str) -> None:
        super().__init__()
        self.body, self.pooler, self.dropout, self.output, self.pool = body, pooler, dropout, output, pool

    def encode(self, source: Tensor, layout: Layout, observe: Observer | None = None) -> Tensor:
        """Ids (B, S) or (L,) -> hidden (…, D)."""
        return self.body(source, layout, observe)

    def classify(self, source: Tensor, layout: Layout, observe: Observer | None = None) -> Tensor:
        """Ids (B, S) or (L,) -> what `output` takes, (B, D)."""
        pooled = POOLS[self.pool](self.encode(source, layout, observe), layout)
        found: Tensor = self.dropout(self.pooler(pooled).tanh())
        return found

    def project(self, hidden: Tensor) -> Tensor:
        """(…, D) -> logits (…, V) of the classes."""
        logits: Tensor = self.output(hidden)
        return logits


_SMALL = {"width": 16, "heads": 2, "layers": 2, "max_positions": 32}
FAMILIES = {
    "bert": Family(
        BERTConfig,
        build,
        _SMALL,
        "reader",
        capacity=own_capacity,
        vectors=True,
        shares_parts=lambda config: shared_by_layers(config.positions),
    ),
    "bert-classifier": Family(
        BERTClassifierConfig,
        build_classifier,
        _SMALL,
        "classifier",
        capacity=own_capacity,
        vectors=True,
        shares_parts=lambda config: shared_by_layers(config.positions),
    ),
}
