"""Multi-head attention (Vaswani et al. 2017, section 3.2.2), and the kernels that compute attention.

The first kernel that accepts a call runs it; the last, the reference, always does.
Sizes: B batch, H heads, G heads of keys and values, T queries, S keys, D width of the model, Dk key width and Dv value
width of a head, L tokens of a pack.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import ModelError

from ..layers import Dropout, Linear, refusal, stand_in
from ..positions import Bias, Rotary
from ..state import Cache, KeysValues, Layout, Observer, Packed, Part, Rows, changed, in_rows, show, wanted
from .core import Call, Causal, Mask, Normalizer, attend, observed, softmax
from .scores import ScaledDot, Score

_SHORT = 512
"""Up to this many keys, batched products beat the fused CPU kernel, whose backward is the slower part."""


# -- kernels -----------------------------------------------------------------------------------------------------------


class Kernel:
    """One way to compute attention."""

    name: str

    def refuses(self, call: Call) -> str | None:
        """None if this kernel can run the call, else the reason in a sentence."""
        return None

    def run(self, call: Call) -> tuple[Tensor, Tensor | None]:
        """The mixed values (B, H, T, Dv), and the weights (B, H, T, S) where they were wanted."""
        raise NotImplementedError


def _first(*reasons: tuple[bool, str]) -> str | None:
    """The first reason that holds; a loop, which PyTorch's compiler follows."""
    for holds, reason in reasons:
        if holds:
            return reason
    return None


def _unfused(call: Call) -> str | None:
    """Why no kernel but the reference can run a call."""
    mixes = call.bias is not None and call.bias.mixes
    return _first(
        (not call.score.is_dot, "the score is not a dot product"),
        (call.want_weights, "the weights are wanted, and a fused kernel never forms them"),
        (call.normalize is not softmax, "the weights are no softmax"),
        (mixes, "positions are added to what is mixed, and a fused kernel never forms the weights"),
    )


def _ragged(call: Call) -> str | None:
    """Why no kernel for packed sequences can run a call."""
    return _unfused(call) or _first(
        (call.packed() is None, "the sequences are not packed"),
        (call.mask is None or call.mask.causal is None, "the mask is neither causal nor the sequences' own ends"),
        (call.bias is not None, "positions are added to the scores"),
        (call.drop is not None, "weights are dropped"),
    )


class Compiled(Kernel):
    """Our own kernels for packed sequences, in C++ and, for GPUs, in Triton: no padding, no gathering."""

    name = "compiled"

    def refuses(self, call: Call) -> str | None:
        if (reason := _ragged(call)) is not None:
            return reason
        longest = max(x.width for x in call.packs())
        if call.queries.device.type == "cpu" and longest > 2 * _SHORT:
            return f"a sequence of {longest} is too long to hold all its weights at once"
        return refusal("attention", call.queries, call.keys, call.values)

    def run(self, call: Call) -> tuple[Tensor, Tensor | None]:
        fast = stand_in("attention", call.queries, call.keys, call.values)
        assert fast is not None
        assert call.mask is not None
        starts = (x.starts for x in call.packs())
        return fast(call.queries, call.keys, call.values, *starts, bool(call.mask.causal)), None


class Fused(Kernel):
    """PyTorch's fused scaled_dot_product_attention (flash or memory-efficient, as the device has it)."""

    name = "fused"

    def refuses(self, call: Call) -> str | None:
        short = call.queries.device.type == "cpu" and call.sizes()[1] <= _SHORT
        return _unfused(call) or _first((short, f"on CPU batched products are faster up to {_SHORT} keys"))

    def run(self, call: Call) -> tuple[Tensor, Tensor | None]:
        rows = call.in_rows()
        mask, added = rows.matrix(), rows.added()
        if added is not None:
            mask = added if mask is None else added.masked_fill(~mask, -torch.inf)
        dropped = 0.0 if call.drop is None else call.drop.probability
        # The scale already stands in the prepared queries.
        mixed = F.scaled_dot_product_attention(rows.queries, rows.keys, rows.values, mask, dropped, scale=1.0)
        return call.restored(mixed), None


class Reference(Kernel):
    """`attend`, as the papers write it."""

    name = "reference"

    def run(self, call: Call) -> tuple[Tensor, Tensor | None]:
        rows = call.in_rows()
        if rows.queries.dtype == torch.bfloat16 and rows.queries.device.type == "cpu":
            # Its many small shapes are not worth compiling products for, and the softmax is better in float32.
            rows = replace(rows, queries=rows.queries.float(), keys=rows.keys.float(), values=rows.values.float())
        with torch.autocast(rows.queries.device.type, enabled=False):
            learns = call.observe is not None and call.normalize is not softmax
            inside = in_rows(call.layout).inside() if call.layout is not None and learns else None
            settings = rows.matrix(), rows.added(), observed(call.normalize, call.observe, inside), call.drop
            mixed, weights = attend(rows.queries, rows.keys, rows.values, call.score.compare, *settings)
            if call.bias is not None and call.bias.mixes:
                mixed = mixed + call.bias.mixed(weights, *rows.positions())
        return call.restored(mixed).to(call.values.dtype), weights if call.want_weights else None


KERNELS: tuple[Kernel, ...] = (Compiled(), Fused(), Reference())


def choose(call: Call) -> tuple[Kernel, dict[str, str]]:
    """The kernel that will run this call, and why each one before it refused."""
    refusals: dict[str, str] = {}
    for kernel in KERNELS:
        if (reason := kernel.refuses(call)) is None:
            return kernel, refusals
        refusals[kernel.name] = reason
    raise AssertionError("the reference never refuses")


def run(call: Call) -> tuple[Tensor, Tensor | None]:
    """Run a call on the first kernel that accepts it; query heads that share a key head come to one each."""
    if (share := call.queries.shape[1] // call.keys.shape[1]) > 1:
        keys, values = (x.repeat_interleave(share, 1) for x in (call.keys, call.values))
        call = replace(call, keys=keys, values=values)
    return choose(call)[0].run(call)


def probe(
    device: str = "cpu",
    keys: int = 32,
    want_weights: bool = False,
    dtype: torch.dtype = torch.float32,
    packed: bool = False,
) -> Call:
    """A call of the given size, for asking `choose` what would run."""
    block = torch.zeros(1, 1, keys, 64, device=device, dtype=dtype)
    layout = Packed(torch.tensor([keys], device=device), keys, keys) if packed else None
    return Call(block, block, block, ScaledDot(64), Causal(), want_weights, layout)


# -- heads -------------------------------------------------------------------------------------------------------------


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

    def begin(self, capacity: int | None) -> Cache:
        """What is kept of a sequence of which there is nothing yet."""
        return Cache(capacity=capacity)

    def of_itself(
        self, x: Tensor, layout: Layout, mask: Mask | None, past: Rows | None = None, observe: Observer | None = None
    ) -> tuple[Tensor, Cache | None]:
        """Self-attention of x (…, D), also to the past if there is one -> (…, D) and the longer past."""
        if not isinstance(past, Cache):
            return self(x, layout, self.prepare(x, layout), mask, observe, "encoder"), None
        position = past.length
        memory = self.prepare(x, layout, position)
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
        drop = self.drop if self.drop.drops else None
        asked = self.score, mask, wanted(observe, part), layout, memory.layout
        how = changed(observe, part, self.normalize), drop, self.bias, position, observe
        mixed, weights = run(Call(queries, memory.keys, memory.values, *asked, *how))
        show(observe, part, weights)
        return self.output(layout.unbatch(mixed.transpose(1, 2).flatten(-2)))
