"""What mixes positions and is neither attention nor a recurrence: convolutions and pooling.

Sizes: B sequences, T positions, L tokens of a pack, C features in, D features out, K width of the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .state import Layout, Packed, in_rows


class WeightNormed(nn.Module):
    """A linear map whose rows have a direction and a length of their own, w = g v / |v| (Salimans & Kingma 2016).

    Starts from N(0, `gain` (1 - dropout) / C) with bias 0, which keeps a layer's variance when dropout precedes it
    (Gehring et al. 2017, section 3.5).
    """

    __call__: Callable[..., Tensor]

    def __init__(self, features: int, out: int, dropout: float = 0.0, gain: float = 1.0) -> None:
        super().__init__()
        self.direction = nn.Parameter(torch.empty(out, features))
        nn.init.normal_(self.direction, std=math.sqrt(gain * (1.0 - dropout) / features))
        self.length = nn.Parameter(self.direction.detach().norm(dim=1, keepdim=True))
        self.bias = nn.Parameter(torch.zeros(out))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.length * F.normalize(self.direction, dim=1), self.bias)


class Convolution(nn.Module):
    """Each position's K neighbours and itself, mapped together: (…, C) -> (…, D).

    Neighbours outside of the sequence are zeros. A causal convolution sees the K - 1 positions before, any other
    (K - 1) / 2 positions to either side. It is one product of all neighbours side by side, (K·C, D).
    """

    def __init__(self, features: int, out: int, kernel: int, dropout: float, gain: float, causal: bool) -> None:
        super().__init__()
        self.kernel, self.causal = kernel, causal
        self.before = kernel - 1 if causal else (kernel - 1) // 2
        self.map = WeightNormed(kernel * features, out, dropout, gain)

    def forward(self, x: Tensor, layout: Layout, past: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The result (…, D), and the last K - 1 positions; `past` (B, K - 1, C) are those before x."""
        rows, positions = layout.batch(x), layout.positions()  # (B, T, C), or (1, L, C)
        if past is None:
            past = rows.new_zeros(rows.shape[0], self.before, rows.shape[2])
        else:
            positions = positions + self.before  # the past stands before them
        size, after = rows.shape[1], self.kernel - 1 - self.before
        wide = F.pad(torch.cat((past, rows), dim=1), (0, 0, 0, after))
        ends, seen = _ends(layout), []
        for j in range(self.kernel):
            shift, part = j - self.before, wide[:, j : j + size]
            if shift:
                beyond = positions + shift < 0 if shift < 0 else positions + shift >= ends
                part = part.masked_fill(beyond.expand(part.shape[:2])[..., None], 0.0)
            seen.append(part)
        return layout.unbatch(self.map(torch.cat(seen, dim=-1))), wide[:, size : size + self.before]


def _ends(layout: Layout) -> Tensor:
    """The length of each token's own sequence, in a shape that broadcasts with the rows' first two axes."""
    if isinstance(layout, Packed):
        return F.pad(layout.lengths, (0, 1))[layout.sequences()]  # (L,); a tail's belong to none
    return layout.lengths[:, None]


def end(x: Tensor, layout: Layout) -> Tensor:
    """The vector at each sequence's last position: (…, D) -> (B, D)."""
    padded = layout.pad(x)
    return padded[torch.arange(len(padded), device=x.device), (layout.lengths - 1).clamp(min=0)]


def mean(x: Tensor, layout: Layout) -> Tensor:
    """The mean over each sequence's positions: (…, D) -> (B, D); 0 for an empty one."""
    total = layout.pad(x).masked_fill(~in_rows(layout).inside()[..., None], 0.0).sum(1)
    return total / layout.lengths.clamp(min=1)[:, None].to(total.dtype)


POOLS: dict[str, Callable[[Tensor, Layout], Tensor]] = {"end": end, "mean": mean}
"""How a sequence becomes one vector."""
