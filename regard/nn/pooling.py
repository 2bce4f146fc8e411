"""One vector for a whole sequence.

Sizes: B sequences, T longest sequence, D features.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .layout import Layout


def end(x: Tensor, layout: Layout) -> Tensor:
    """The vector at each sequence's last position: (…, D) -> (B, D)."""
    padded = layout.pad(x)
    return padded[torch.arange(len(padded), device=x.device), (layout.lengths - 1).clamp(min=0)]


def mean(x: Tensor, layout: Layout) -> Tensor:
    """The mean over each sequence's positions: (…, D) -> (B, D); 0 for an empty one."""
    padded = layout.pad(x)
    inside = torch.arange(layout.width, device=x.device) < layout.lengths[:, None]
    total = padded.masked_fill(~inside[..., None], 0.0).sum(1)
    return total / layout.lengths.clamp(min=1)[:, None].to(total.dtype)


POOLS: dict[str, Callable[[Tensor, Layout], Tensor]] = {"end": end, "mean": mean}
