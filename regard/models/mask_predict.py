"""Mask-predict (Ghazvininejad et al. 2019): a Transformer that writes all positions at once, and the unsure ones again.

The contrast to everything that writes from left to right: the decoder sees the whole target, in which tokens are
masked, and says what stands at the masks. How long the target is must be said beforehand.

Sizes: B sentences, S source tokens, T target tokens, D width, V vocabulary, R the most that lengths differ by.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from regard.nn.attention import Lengths
from regard.nn.convolution import mean
from regard.nn.layers import Map
from regard.nn.state import AuxiliaryLoss, Layout, Observer, Rows, whole

from .blocks import Transformer, TransformerState
from .choices import SMALL, EncoderDecoderConfig, EncoderDecoderSizes, LayerDropout, Size, family_of


class MaskPredictConfig(EncoderDecoderSizes):
    """Sizes of the model; the defaults are the paper's base (section 4.1)."""

    family: Literal["mask-predict"] = Field("mask-predict", description="the model family")
    dropout: LayerDropout = 0.3
    length_range: Size = Field(32, description="R: the most tokens that a target is longer or shorter than its source")
    length_weight: float = Field(1.0, gt=0, description="of a sentence's length in the objective, a token having 1")

    @model_validator(mode="after")
    def _fits(self) -> MaskPredictConfig:
        self.body()
        return self

    def body(self) -> EncoderDecoderConfig:
        """The Transformer that it is made of."""
        return EncoderDecoderConfig(**self.model_dump(exclude={"length_range", "length_weight"}))


class LengthPredictor(nn.Module):
    """How much longer the target is than the source, as one of 2R + 1 classes, from the mean of the memory."""

    __call__: Callable[..., Tensor]

    def __init__(self, width: int, most: int, weight: float) -> None:
        super().__init__()
        self.map = Map(width, 2 * most + 1)
        nn.init.zeros_(self.map.bias)
        self.most, self.weight = most, weight

    def forward(self, memory: Tensor, layout: Layout) -> Tensor:
        """Memory (…, D) -> log-probabilities (B, 2R + 1) of the differences -R to R."""
        return self.map(mean(memory, layout)).float().log_softmax(-1)

    def loss(self, found: Tensor, differences: Tensor) -> AuxiliaryLoss:
        """The cross-entropy of what was found and what is right (B,), of those lines that have targets."""
        return partial(_length_loss, found, differences.clamp(-self.most, self.most) + self.most, self.weight)


def _length_loss(found: Tensor, right: Tensor, weight: float, losses: Tensor, tokens: Tensor) -> Tensor:
    return (F.nll_loss(found, right, reduction="none").to(losses.dtype) * (tokens > 0)).sum() * weight


@dataclass(frozen=True)
class MaskPredictState(Rows):
    """The Transformer's state before anything is written, and how likely each length is (B, 2R + 1)."""

    inner: TransformerState
    differences: Tensor


class MaskPredict(nn.Module):
    """A Transformer whose decoder looks to both sides, and the lengths."""

    def __init__(self, config: MaskPredictConfig, source_vocabulary: int, target_vocabulary: int, pad: int = 0) -> None:
        super().__init__()
        self.body = Transformer(config.body(), source_vocabulary, target_vocabulary, pad)
        self.lengths = LengthPredictor(config.width, config.length_range, config.length_weight)

    @property
    def output(self) -> Map:
        """The last map of `project`, (V, D)."""
        return self.body.output

    def encode(self, source: Tensor, layout: Layout, observe: Observer | None = None) -> Tensor:
        return self.body.encode(source, layout, observe)

    def project(self, hidden: Tensor) -> Tensor:
        """Hidden (…, D) -> logits (…, V) of the token at each position."""
        return self.body.project(hidden)

    def start(self, memory: Tensor, layout: Layout, capacity: int | None = None) -> MaskPredictState:
        """What every pass over the target looks at; its size does not change, whatever the capacity."""
        return MaskPredictState(self.body.start(memory, layout), self.lengths(memory, layout))

    def decode(
        self, tokens: Tensor, state: MaskPredictState, layout: Layout | None = None, observe: Observer | None = None
    ) -> tuple[Tensor, MaskPredictState]:
        """Whole targets with masks, (B, T) or (L,) -> hidden (…, D), and the state as it was."""
        layout = layout or whole(tokens)
        if observe is not None and self.training:
            longer = layout.lengths - state.inner.memory_lengths
            observe.losses.append(self.lengths.loss(state.differences, longer))
        hidden, _ = self.body.decode(tokens, state.inner, layout, observe, mask=Lengths(layout.lengths))
        return hidden, state

    def likely_lengths(self, state: MaskPredictState, number: int) -> Tensor:
        """The likeliest `number` lengths of each target, its end counted: (B, number)."""
        differences = state.differences.topk(min(number, state.differences.shape[1])).indices - self.lengths.most
        return (state.inner.memory_lengths[:, None] + differences).clamp(min=1)


FAMILIES = {"mask-predict": family_of(MaskPredictConfig, MaskPredict, SMALL, "mask-predictor", step_by_step=False)}
