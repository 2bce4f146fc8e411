"""A structured self-attentive sentence embedding (Lin et al. 2017): learned queries over one line; a classifier.

With `ngrams` a line's class is also what its n-grams say, as fastText's (Joulin et al. 2017) is.
Sizes: B lines, S tokens, E width of embeddings, D width of both directions together, R hops (learned queries), V
classes, N the longest n-gram, K features of an n-gram.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from regard.models.blocks import Projecting, zero_padding
from regard.models.choices import Chance, Config, Size, TokenWidth, family_of
from regard.nn.attention import mix, weigh
from regard.nn.convolution import POOLS
from regard.nn.layers import Dropout, Map
from regard.nn.positions import look_up
from regard.nn.recurrent import Stack, as_columns
from regard.nn.state import Layout, Observer, Padded, show


class SelfAttentiveConfig(Config):
    """Sizes of the classifier; the defaults are the paper's (section 4)."""

    family: Literal["self-attentive"] = Field("self-attentive", description="the model family")
    width: Size = Field(600, description="features of the recurrent layers, half of them for each direction")
    embedding: TokenWidth = 100
    layers: Size = Field(1, description="recurrent layers")
    pool: Literal["hops", "mean", "end"] = Field(
        "hops",
        description="a line's vector: hops of attention (paper); contrasts: the mean of all positions, or what both "
        "directions end with",
    )
    hops: Size = Field(30, description="r: learned queries, each a row of the annotation matrix")
    score_width: Size = Field(350, description="d_a: features that a position is compared by")
    hidden: int = Field(2000, ge=0, description="features between the embedding of a line and its class; 0: none")
    penalty: float = Field(1.0, ge=0, description="what hops that look alike cost: times |A A^T - 1|^2 of a line")
    dropout: Chance = Field(0.5, description="on embeddings, between layers and before the class")
    ngrams: int = Field(
        0,
        ge=0,
        le=8,
        description="tokens of the longest n-grams that vote on a line's class beside its embedding; 0: none do",
    )
    ngram_width: Size = Field(10, description="features of an n-gram")
    buckets: Size = Field(2**18, description="vectors of n-grams; those of one hash share one")
    ngram_dropout: Chance = Field(0.5, description="of n-grams, whole ones")
    ngram_power: float = Field(
        0.0,
        ge=0,
        le=1,
        description="n-grams vote by their sum over their number to this power; 0: the sum, 1: the mean (fastText)",
    )
    ngram_alone: float = Field(
        1.0,
        ge=0,
        le=1,
        description="the share of lines that the embedding or the n-grams judge alone in training; the others both do",
    )

    @model_validator(mode="after")
    def _fits(self) -> SelfAttentiveConfig:
        if self.width % 2:
            raise ValueError(f"width ({self.width}) must be even, half for each direction; try {self.width + 1}")
        return self


class Hops(nn.Module):
    """A = softmax(W_2 tanh(W_1 H^T)), M = A H (equations 6 and 7): R learned queries over the same keys and values."""

    def __init__(self, width: int, score_width: int, hops: int, penalty: float) -> None:
        super().__init__()
        self.key = Map(width, score_width, bias=False)
        self.query = nn.Parameter(torch.empty(hops, score_width))
        self.penalty = penalty

    __call__: Callable[..., Tensor]

    def forward(self, x: Tensor, lengths: Tensor, observe: Observer | None = None) -> Tensor:
        """States (B, S, D) -> the embedding (B, R, D); `observe` may have the annotation A as (B, R, 1, S)."""
        inside = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
        weights = weigh(self.query @ self.key(x).tanh().transpose(1, 2), inside[:, None])
        if observe is not None and self.training and self.penalty:
            observe.losses.append(partial(_alike, weights, self.penalty))
        show(observe, "encoder", weights[:, :, None])
        return mix(weights, x)


def _alike(annotation: Tensor, penalty: float, losses: Tensor, tokens: Tensor) -> Tensor:
    """The penalty |A A^T - 1|^2 (equation 8), summed over the lines that have a class (B,)."""
    a = annotation.to(losses.dtype)
    alike = a @ a.transpose(1, 2) - torch.eye(a.shape[1], dtype=a.dtype, device=a.device)
    return (alike.square().sum((1, 2)) * (tokens > 0)).sum() * penalty


class Ngrams(nn.Module):
    """A vector of each n-gram of 1 to N tokens, and their sum: what is said of a line without regard to order.

    An n-gram is found by its hash (Joulin et al. 2017, section 2.2), so that none has to be listed. The sum is divided
    by the number of n-grams to a power, so that those of a long line need not be surer than those of a short one.
    """

    def __init__(self, longest: int, width: int, buckets: int, power: float, dropout: float) -> None:
        super().__init__()
        self.table, self.dropout = nn.Embedding(buckets, width), Dropout(dropout)
        self.longest, self.power = longest, power

    __call__: Callable[..., Tensor]

    def hashes(self, ids: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Ids (B, S) -> the bucket of every n-gram (B, M), shorter ones first, and whether it is inside of its line."""
        code, found, inside = torch.zeros_like(ids), [], []
        for n in range(1, min(self.longest, ids.shape[1]) + 1):
            # Knuth's linear congruential generator, modulo 2 to the 64th; its high bits are the random ones.
            code = (code[:, : ids.shape[1] - n + 1] + ids[:, n - 1 :] + 1) * 6364136223846793005 + 1442695040888963407
            found.append((code >> 33) % self.table.num_embeddings)
            inside.append(torch.arange(n, ids.shape[1] + 1, device=ids.device) <= lengths[:, None])
        return torch.cat(found, 1), torch.cat(inside, 1)

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Ids (B, S) -> what each line's n-grams say, (B, K)."""
        found, inside = self.hashes(ids, lengths)
        counted = inside.to(torch.promote_types(self.table.weight.dtype, torch.float32))
        counted = self.dropout(counted * counted.sum(1, keepdim=True).clamp(min=1) ** -self.power)
        return (look_up(found, self.table) * counted[..., None]).sum(1)


class SelfAttentive(Projecting):
    """Bidirectional LSTM, hops and classes, which are the target's tokens; perhaps n-grams beside them.

    In training the class of some lines, or of all, is judged by the embedding or by the n-grams alone, as a coin says,
    so that neither leaves to the other what it could learn itself. Afterwards both say it together.
    """

    def __init__(
        self, config: SelfAttentiveConfig, source_vocabulary: int, target_vocabulary: int, pad: int = 0
    ) -> None:
        super().__init__()
        c, hops = config, config.pool == "hops"
        size = c.hops * c.width if hops else c.width
        self.table = nn.Embedding(source_vocabulary, c.embedding, padding_idx=pad)
        self.encoder = Stack("lstm", c.embedding, c.width, c.layers, c.dropout, "both")
        self.hops = Hops(c.width, c.score_width, c.hops, c.penalty) if hops else None
        self.inner = Map(size, c.hidden) if c.hidden else None
        self.ngrams = Ngrams(c.ngrams, c.ngram_width, c.buckets, c.ngram_power, c.ngram_dropout) if c.ngrams else None
        self.output = Map((c.hidden or size) + (c.ngram_width if c.ngrams else 0), target_vocabulary)
        self.dropout, self.pool, self.ngram_alone = Dropout(c.dropout), c.pool, c.ngram_alone
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -0.1, 0.1) if parameter.dim() == 1 else nn.init.xavier_uniform_(parameter)
        nn.init.uniform_(self.table.weight, -0.1, 0.1)
        zero_padding(self, pad)
        if self.ngrams is not None:  # weights near 1: a step of Adam moves the vote of an n-gram far enough
            nn.init.zeros_(self.ngrams.table.weight)
            nn.init.uniform_(self.output.weight.data[:, -c.ngram_width :], -1, 1)

    def embed(self, source: Tensor, layout: Layout, observe: Observer | None = None) -> Tensor:
        """Ids (B, S) or (L,) -> the embedding of each line (B, R, D); without hops R is 1."""
        x = self.dropout(look_up(as_columns(source, layout), self.table))
        x, ends = self.encoder(x, lengths=layout.lengths)
        if self.pool == "end":  # what each direction has when it has read all: the last layer's hidden state
            last: Tensor = ends[-1][0]
            return last[:, None]
        if self.hops is None:
            return POOLS[self.pool](x.transpose(0, 1), Padded(layout.lengths, len(x)))[:, None]
        return self.hops(x.transpose(0, 1), layout.lengths, observe)

    def classify(self, source: Tensor, layout: Layout, observe: Observer | None = None) -> Tensor:
        """Ids (B, S) or (L,) -> what `output` takes, (B, D)."""
        x = self.dropout(self.embed(source, layout, observe).flatten(1))
        x = x if self.inner is None else self.dropout(self.inner(x).relu())
        if self.ngrams is None:
            return x
        said = self.ngrams(as_columns(source, layout).t(), layout.lengths).to(x.dtype)
        if self.training:
            one, coin = torch.rand((2, len(x), 1), device=x.device)
            weight = torch.where(one < self.ngram_alone, 2.0 * (coin < 0.5), 1.0).to(x.dtype)
            x, said = weight * x, (2 - weight) * said
        return torch.cat((x, said), 1)


FAMILIES = {
    "self-attentive": family_of(
        SelfAttentiveConfig,
        SelfAttentive,
        {"width": 16, "embedding": 12, "hops": 3, "score_width": 8, "hidden": 12},
        "classifier",
    )
}
