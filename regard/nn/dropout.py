"""Dropout that spends 16 random bits an element instead of a whole random number (Srivastava et al. 2014).

The generator draws 64 bits at a time, four elements each; on a CPU, where drawing dominates, that is several times
faster than one Bernoulli draw an element. The probability is rounded to a multiple of 2^-16, and the scale is that of
the rounded probability, so the expectation is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .autograd import applied
from .stand_ins import stand_in


def keep_mask(shape: torch.Size, probability: float, device: torch.device) -> tuple[Tensor, float]:
    """A mask, true with chance 1 - `probability` (to 2^-16), and the scale 1 / that chance."""
    count = shape.numel()
    dropped = round(probability * 65536)
    words = torch.empty((count + 3) // 4, dtype=torch.int64, device=device).random_(-(2**63), None)
    bits = words.view(torch.int16)[:count].view(shape)
    return bits >= dropped - 32768, 65536 / (65536 - dropped)


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, probability: float) -> Tensor:
        mask, scale = keep_mask(x.shape, probability, x.device)
        ctx.save_for_backward(mask)
        ctx.scale = scale
        return (x * mask).mul_(scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return (gradients[0] * mask).mul_(ctx.scale), None


class Dropout(nn.Module):
    """Zeroes each element with the given probability while training and scales the rest; the identity otherwise."""

    __call__: Callable[..., Tensor]

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.probability == 0.0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.probability)  # drawing is cheap there, and a compiler fuses it
        if (fast := stand_in("dropout", x)) is not None:
            found: Tensor = fast(None, x, self.probability)
            return found
        dropped: Tensor = applied(_Drop, x, self.probability)
        return dropped

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """x plus the dropped y: a residual connection."""
        dropping = self.training and self.probability > 0.0 and x.shape == y.shape
        if dropping and (fast := stand_in("dropout", x, y)) is not None:
            found: Tensor = fast(x, y, self.probability)
            return found
        return x + self(y)
