"""Kernels: the first one that accepts a call runs it; the last, the reference, always does.

Sizes: B batch, H heads, T queries, S keys, D key width, E value width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from .core import attend
from .masks import Mask
from .scores import Score

__all__ = ["KERNELS", "Call", "Fused", "Kernel", "Reference", "choose", "probe", "run"]

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
    bias: Tensor | None = None
    want_weights: bool = False

    def matrix(self) -> Tensor | None:
        """The mask as a matrix that broadcasts with (B, H, T, S), or None."""
        if self.mask is None:
            return None
        return self.mask.matrix(self.queries.shape[-2], self.keys.shape[-2], self.queries.device)


class Kernel(Protocol):
    """One way to compute attention."""

    name: str

    def refuses(self, call: Call) -> str | None:
        """None if this kernel can run the call, else the reason in a sentence."""
        ...

    def run(self, call: Call) -> tuple[Tensor, Tensor | None]:
        """The mixed values (B, H, T, E), and the weights (B, H, T, S) where they were wanted."""
        ...


class Fused:
    """PyTorch's fused scaled_dot_product_attention (flash or memory-efficient, as the device has it)."""

    name = "fused"

    def refuses(self, call: Call) -> str | None:
        if not call.score.is_dot:
            return "the score is not a dot product"
        if call.want_weights:
            return "the weights are wanted, and a fused kernel never forms them"
        if call.bias is not None:
            return "a bias is added to the scores"
        if call.queries.device.type == "cpu" and call.keys.shape[-2] <= _SHORT:
            return f"on CPU batched products are faster up to {_SHORT} keys"
        return None

    def run(self, call: Call) -> tuple[Tensor, Tensor | None]:
        # The scale already stands in the prepared queries.
        return F.scaled_dot_product_attention(
            call.queries, call.keys, call.values, attn_mask=call.matrix(), scale=1.0
        ), None


class Reference:
    """`attend`, as the papers write it."""

    name = "reference"

    def refuses(self, call: Call) -> str | None:
        return None

    def run(self, call: Call) -> tuple[Tensor, Tensor | None]:
        queries, keys, values = call.queries, call.keys, call.values
        if queries.dtype == torch.bfloat16 and queries.device.type == "cpu":
            # Its many small shapes are not worth compiling products for, and the softmax is better in float32.
            queries, keys, values = queries.float(), keys.float(), values.float()
        with torch.autocast(queries.device.type, enabled=False):
            mixed, weights = attend(queries, keys, values, call.score.compare, call.matrix(), call.bias)
        return mixed, weights if call.want_weights else None


KERNELS: tuple[Kernel, ...] = (Fused(), Reference())


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
    """Run a call on the first kernel that accepts it."""
    return choose(call)[0].run(call)


def probe(device: str = "cpu", keys: int = 32, want_weights: bool = False, dtype: torch.dtype = torch.float32) -> Call:
    """A call of the given size, for asking `choose` what would run."""
    from .scores import ScaledDot

    block = torch.zeros(1, 1, keys, 64, device=device, dtype=dtype)
    return Call(block, block, block, ScaledDot(64), want_weights=want_weights)
