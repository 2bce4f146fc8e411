"""Multi-head attention (Vaswani et al. 2017, section 3.2.2).

Sizes: B batch, H heads, G heads of keys and values, T queries, S keys, D width of the model, Dk key width and Dv value
width of a head.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from regard.errors import ModelError

from ..dropout import Dropout
from ..layout import Layout
from ..linear import Linear
from ..positions.bias import Bias
from ..positions.rotary import Rotary
from ..state import Cache, KeysValues, Observer, Part, wanted
from .core import softmax
from .kernels import Call, run
from .masks import Mask
from .normalize import Normalizer
from .scores import Score


@dataclass(frozen=True)
class Heads:
    """H heads of queries, and G of keys and values, over features of a width D."""

    width: int
    number: int
    key_width: int
    value_width: int
    key_value_heads: int = 0
    """G; 0: as many as of queries."""
    split: bool = False
    """Keys and values are the two halves of the features."""


class MultiHead(nn.Module):
    """H attentions side by side, each on its own projection of queries, keys and values.

    Keys and values come from the same memory, so their projections are one product. With fewer heads of keys and values
    than of queries, neighbouring heads share them: one for all is multi-query attention (Shazeer 2019), a few are
    grouped-query attention (Ainslie et al. 2023). With `split` there is no projection: the memory's own first features
    are its keys, the others its values (key-value attention, Daniluk et al. 2017).
    """

    def __init__(
        self,
        heads: Heads,
        score: Score,
        *,
        normalize: Normalizer = softmax,
        dropout: float = 0.0,
        bias: Bias | None = None,
        rotary: Rotary | None = None,
    ) -> None:
        """`dropout` is of weights; `bias` and `rotary` are how positions act, for attention of a sequence to itself."""
        super().__init__()
        width, split = heads.width, heads.split
        self.heads, self.key_width, self.value_width = heads.number, heads.key_width, heads.value_width
        self.groups = heads.key_value_heads or heads.number
        both = self.groups * (self.key_width + self.value_width)
        if self.heads % self.groups:
            raise ModelError(
                f"{self.heads} heads cannot share the keys and values of {self.groups}; take a divisor of {self.heads}"
            )
        if split and both != width:
            raise ModelError(f"keys and values that are halves of {width} features cannot have {both} together")
        if rotary is not None and not score.is_dot:
            raise ModelError(f"rotary positions need a score that is a dot product, and {type(score).__name__} is none")
        self.query = Linear(width, self.heads * self.key_width)
        self.key_value = nn.Identity() if split else Linear(width, both)  # all heads' keys, then all their values
        self.output = Linear(self.heads * self.value_width, width)
        self.score, self.normalize, self.bias, self.rotary = score, normalize, bias, rotary
        self.drop = Dropout(dropout)

    def _split(self, x: Tensor, layout: Layout, heads: int) -> Tensor:
        rows = layout.batch(x)
        return rows.view(*rows.shape[:2], heads, -1).transpose(1, 2)  # (B, T, H·D) -> (B, H, T, D)

    def _turned(self, x: Tensor, layout: Layout, position: int) -> Tensor:
        return x if self.rotary is None else self.rotary(x, layout.positions() + position, layout.width + position)

    def prepare(self, memory: Tensor, layout: Layout, position: int = 0) -> KeysValues:
        """The keys and values of a memory, (…, D) -> (B, G, S, Dk) and (B, G, S, Dv), which a state keeps.

        The first of them stands at `position` of its sequence.
        """
        widths = self.groups * self.key_width, self.groups * self.value_width
        keys, values = self.key_value(memory).split(widths, dim=-1)
        keys = self._turned(self.score.keys(self._split(keys, layout, self.groups)), layout, position)
        return KeysValues(keys, self._split(values, layout, self.groups), layout)

    def of_itself(
        self, x: Tensor, layout: Layout, mask: Mask | None, past: Cache | None = None, observe: Observer | None = None
    ) -> tuple[Tensor, Cache | None]:
        """Self-attention of x (…, D), also to the past if there is one -> (…, D) and the longer past."""
        position = past.length if past is not None else 0
        memory = self.prepare(x, layout, position)
        if past is None:
            return self(x, layout, memory, mask, observe, "encoder"), None
        past = past.append(memory.keys, memory.values)
        return self(x, layout, past.filled(), mask, observe, "decoder", position), past

    def forward(
        self,
        x: Tensor,
        layout: Layout,
        memory: KeysValues,
        mask: Mask | None,
        observe: Observer | None = None,
        part: Part = "encoder",
        position: int = 0,
    ) -> Tensor:
        """Queries from x, (…, D), mixed with the memory's values -> (…, D).

        Weights (B, H, T, S) go to `observe`, as those of this part of the model, if they are wanted.
        The first query stands at `position` of its sequence.
        """
        queries = self._turned(self.score.queries(self._split(self.query(x), layout, self.heads)), layout, position)
        call = Call(
            queries,
            memory.keys,
            memory.values,
            self.score,
            mask,
            wanted(observe, part),
            layout,
            memory.layout,
            self.normalize,
            self.drop if self.training and self.drop.probability else None,
            self.bias,
            position,
            observe,
        )
        mixed, weights = run(call)
        if observe is not None and weights is not None:
            observe.weights[part].append(weights)
        return self.output(layout.unbatch(mixed.transpose(1, 2).flatten(-2)))
