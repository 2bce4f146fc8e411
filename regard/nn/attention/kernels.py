"""Kernels: the first one that accepts a call runs it; the last, the reference, always does.

Sizes: B batch, H heads, T queries, S keys, D key width, E value width. A packed call is a batch of one row with all
sequences behind each other, and layouts that say where each one lies.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from ..dropout import Dropout
from ..layout import Layout, Packed
from ..positions.bias import Bias
from ..stand_ins import refusal, stand_in
from ..state import Observer
from .core import attend, softmax
from .masks import Mask, matrix
from .normalize import Normalizer, observed
from .scores import Score

_SHORT = 512
"""Up to this many keys, batched products beat the fused CPU kernel, whose backward is the slower part."""


@dataclass(frozen=True)
class Call:
    """One attention call: prepared queries (B, H, T, D), prepared keys (B, H, S, D), values (B, H, S, E)."""

    queries: Tensor
    keys: Tensor
    values: Tensor
    score: Score
    mask: Mask | None = None
    want_weights: bool = False
    layout: Layout | None = None
    """Where the queries' sequences lie; None: each row is one."""
    key_layout: Layout | None = None
    """The same of keys and values; None: as the queries'."""
    normalize: Normalizer = softmax
    drop: Dropout | None = None
    """What drops weights, while training."""
    bias: Bias | None = None
    position: int = 0
    """The position of the first query, for the bias; that of the first key is 0."""
    observe: Observer | None = None
    """Who learns from what a normaliser draws."""

    def packed(self) -> tuple[Packed, Packed] | None:
        """Both layouts of a packed call; None if it is padded."""
        keys = self.key_layout or self.layout
        if isinstance(self.layout, Packed) and isinstance(keys, Packed):
            return self.layout, keys
        return None

    def padded(self) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values with each sequence in a row of its own."""
        if (pack := self.packed()) is None:
            return self.queries, self.keys, self.values
        queries, keys = pack
        return _laid_out(self.queries, queries), _laid_out(self.keys, keys), _laid_out(self.values, keys)

    def restored(self, mixed: Tensor) -> Tensor:
        """What padded sequences gave, (B, H, T, E), as the queries lie."""
        if (pack := self.packed()) is None:
            return mixed
        flat = pack[0].flatten(mixed.transpose(1, 2).flatten(-2))  # (L, H·E)
        return flat.view(1, len(flat), mixed.shape[1], -1).transpose(1, 2)

    def matrix(self) -> Tensor | None:
        """The mask of padded sequences as a matrix that broadcasts with (B, H, T, S), or None."""
        if self.mask is None:
            return None
        pack = self.packed()
        rows = len(pack[0].lengths) if pack else len(self.queries)
        return matrix(self.mask, rows, *self.sizes(), self.queries.device)

    def sizes(self) -> tuple[int, int]:
        """T and S of padded sequences."""
        pack = self.packed()
        return (pack[0].width, pack[1].width) if pack else (self.queries.shape[-2], self.keys.shape[-2])

    def positions(self) -> tuple[Tensor, Tensor]:
        """The positions of the padded queries (T,) and keys (S,)."""
        queries, keys = (torch.arange(n, device=self.queries.device) for n in self.sizes())
        return queries + self.position, keys


def _laid_out(x: Tensor, layout: Layout) -> Tensor:
    """(1, H, L, D) -> (B, H, T, D)."""
    padded = layout.pad(x[0].transpose(0, 1).flatten(-2))
    return padded.view(*padded.shape[:2], x.shape[1], -1).transpose(1, 2)


class Kernel(Protocol):
    """One way to compute attention."""

    name: str

    def refuses(self, call: Call) -> str | None:
        """None if this kernel can run the call, else the reason in a sentence."""
        ...

    def run(self, call: Call) -> tuple[Tensor, Tensor | None]:
        """The mixed values (B, H, T, E), and the weights (B, H, T, S) where they were wanted."""
        ...


def _unfused(call: Call) -> str | None:
    """Why no kernel but the reference can run a call."""
    if not call.score.is_dot:
        return "the score is not a dot product"
    if call.want_weights:
        return "the weights are wanted, and a fused kernel never forms them"
    if call.normalize is not softmax:
        return "the weights are no softmax"
    if call.bias is not None and call.bias.mixes:
        return "positions are added to what is mixed, and a fused kernel never forms the weights"
    return None


def _ragged(call: Call) -> str | None:
    """Why no kernel for packed sequences can run a call."""
    if (reason := _unfused(call)) is not None:
        return reason
    if call.packed() is None:
        return "the sequences are not packed"
    if call.mask is None or call.mask.causal is None:
        return "the mask is neither causal nor the sequences' own ends"
    if call.bias is not None:
        return "positions are added to the scores"
    if call.drop is not None:
        return "weights are dropped"
    return None


class Compiled:
    """Our own C++ kernel for packed sequences (native.cpp): no padding, no gathering, float32 inside."""

    name = "compiled"

    def refuses(self, call: Call) -> str | None:
        if (reason := _ragged(call)) is not None:
            return reason
        if call.queries.device.type != "cpu":
            return "it is for CPUs"
        if (longest := max(x.width for x in call.packed() or ())) > 2 * _SHORT:
            return f"a sequence of {longest} is too long to hold all its weights at once"
        return refusal("attention", call.queries, call.keys, call.values)

    def run(self, call: Call) -> tuple[Tensor, Tensor | None]:
        pack = call.packed()
        assert pack is not None
        assert call.mask is not None
        causal = bool(call.mask.causal)
        fast = stand_in("attention", call.queries, call.keys, call.values)
        assert fast is not None
        return fast(call.queries, call.keys, call.values, pack[0].starts, pack[1].starts, causal), None


def _varlen() -> Callable[..., Any] | None:
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    return varlen_attn if {"scale", "window_size"} <= set(inspect.signature(varlen_attn).parameters) else None


_VARLEN = _varlen()  # now, for a compiler does not follow imports and signatures


class VariableLength:
    """PyTorch's variable-length flash attention for packed sequences on a GPU."""

    name = "variable-length"

    def refuses(self, call: Call) -> str | None:
        if (reason := _ragged(call)) is not None:
            return reason
        if call.queries.device.type != "cuda":
            return "it is for CUDA"
        if call.queries.dtype not in (torch.bfloat16, torch.float16):
            return "it is for bfloat16 and float16"
        if call.queries.shape[-1] != call.values.shape[-1]:
            return "keys and values differ in width"
        if _VARLEN is None:
            return "this PyTorch's torch.nn.attention.varlen is missing or older than its window_size"
        return None

    def run(self, call: Call) -> tuple[Tensor, Tensor | None]:
        pack = call.packed()
        assert pack is not None
        assert call.mask is not None
        assert _VARLEN is not None
        queries, keys, values = (x[0].transpose(0, 1) for x in (call.queries, call.keys, call.values))  # (L, H, D)
        starts, widths = (x.starts for x in pack), (x.width for x in pack)
        window = (-1, 0) if call.mask.causal else (-1, -1)
        mixed: Tensor = _VARLEN(queries, keys, values, *starts, *widths, scale=1.0, window_size=window)
        return mixed.transpose(0, 1)[None], None


@cache
def _flexible() -> Callable[..., Any]:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=False)


class Flexible:
    """PyTorch's FlexAttention, compiled, on a GPU: packs under any mask, and blocks that nobody sees are skipped."""

    name = "flexible"

    def refuses(self, call: Call) -> str | None:
        if (reason := _unfused(call)) is not None:
            return reason
        if call.packed() is None:
            return "the sequences are not packed"
        if call.drop is not None:
            return "weights are dropped"
        if call.queries.device.type != "cuda":
            return "it is for CUDA"
        if call.bias is not None and not call.bias.fixed:
            return "the positions added to the scores are learnt"
        if any(n & (n - 1) or n < 16 for n in (call.queries.shape[-1], call.values.shape[-1])):
            return "a head's width is not a power of 2 of at least 16"
        return None

    def run(self, call: Call, attention: Callable[..., Any] | None = None) -> tuple[Tensor, Tensor | None]:
        """`attention` stands in for the compiled flex_attention."""
        from torch.nn.attention.flex_attention import create_block_mask

        pack = call.packed()
        assert pack is not None
        (rows, queries), (key_rows, keys) = ((x.sequences(), x.positions()) for x in pack)

        def sees(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            row = rows[query]
            same = row == key_rows[key]
            if call.mask is None:
                return same
            return same & call.mask.sees(row.clamp(max=len(pack[0].lengths) - 1), queries[query], keys[key])

        score_mod = None
        if call.bias is not None:
            table = call.bias.scores(call.queries, *call.positions())  # (H, T, S)

            def score_mod(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
                return score + table[head, queries[query], keys[key]]

        size = call.queries.shape[2], call.keys.shape[2]
        block_mask = create_block_mask(sees, None, None, *size, device=call.queries.device)
        run = attention or _flexible()
        return run(call.queries, call.keys, call.values, score_mod, block_mask, 1.0), None


class Fused:
    """PyTorch's fused scaled_dot_product_attention (flash or memory-efficient, as the device has it)."""

    name = "fused"

    def refuses(self, call: Call) -> str | None:
        if (reason := _unfused(call)) is not None:
            return reason
        pack = call.packed()
        keys = pack[1].width if pack else call.keys.shape[-2]
        if call.queries.device.type == "cpu" and keys <= _SHORT:
            return f"on CPU batched products are faster up to {_SHORT} keys"
        return None

    def run(self, call: Call) -> tuple[Tensor, Tensor | None]:
        queries, keys, values = call.padded()
        mask = call.matrix()
        if call.bias is not None:
            added = call.bias.scores(queries, *call.positions()).to(queries.dtype)
            mask = added if mask is None else added.masked_fill(~mask, -torch.inf)
        dropped = 0.0 if call.drop is None else call.drop.probability
        # The scale already stands in the prepared queries.
        mixed = F.scaled_dot_product_attention(queries, keys, values, mask, dropped, scale=1.0)
        return call.restored(mixed), None


class Reference:
    """`attend`, as the papers write it."""

    name = "reference"

    def refuses(self, call: Call) -> str | None:
        return None

    def run(self, call: Call) -> tuple[Tensor, Tensor | None]:
        queries, keys, values = call.padded()
        if queries.dtype == torch.bfloat16 and queries.device.type == "cpu":
            # Its many small shapes are not worth compiling products for, and the softmax is better in float32.
            queries, keys, values = queries.float(), keys.float(), values.float()
        with torch.autocast(queries.device.type, enabled=False):
            bias = None if call.bias is None else call.bias.scores(queries, *call.positions()).to(queries.dtype)
            inside = None
            if call.observe is not None and call.layout is not None and call.normalize is not softmax:
                inside = torch.arange(queries.shape[2], device=queries.device) < call.layout.lengths[:, None]
            settings = call.matrix(), bias, observed(call.normalize, call.observe, inside), call.drop
            mixed, weights = attend(queries, keys, values, call.score.compare, *settings)
            if call.bias is not None and call.bias.mixes:
                mixed = mixed + call.bias.mixed(weights, *call.positions())
        return call.restored(mixed).to(call.values.dtype), weights if call.want_weights else None


KERNELS: tuple[Kernel, ...] = (Compiled(), VariableLength(), Flexible(), Fused(), Reference())


def choose(call: Call) -> tuple[Kernel, dict[str, str]]:
    """The kernel that will run this call, and why each one before it refused."""
    refusals: dict[str, str] = {}
    for kernel in KERNELS:
        reason = kernel.refuses(call)
        if reason is None:
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
    from .masks import Causal
    from .scores import ScaledDot

    block = torch.zeros(1, 1, keys, 64, device=device, dtype=dtype)
    layout = Packed(torch.tensor([keys], device=device), keys, keys) if packed else None
    return Call(block, block, block, ScaledDot(64), Causal(), want_weights, layout)
