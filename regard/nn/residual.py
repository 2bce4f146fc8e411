"""The residual connection around a sub-layer, with its norm and dropout (Vaswani et al. 2017, sections 3.1 and 5.4)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from .dropout import Dropout
from .layout import Layout
from .stand_ins import stand_in


class Norm(nn.Module):
    """A norm of features: x (…, D) -> (…, D); made with D."""

    def forward(self, x: Tensor, layout: Layout | None = None) -> Tensor:
        """The layout is for a norm that looks at other tokens too: it tells which are there (None: all)."""
        raise NotImplementedError

    def of_sum(self, x: Tensor, y: Tensor, dropout: Dropout, layout: Layout | None = None) -> Tensor:
        """The norm of x + Dropout(y), both of one shape."""
        return self(dropout.add(x, y), layout)

    __call__: Callable[..., Tensor]


class LayerNorm(nn.LayerNorm, Norm):
    """Layer norm over the features (Ba et al. 2016), compiled where it can be."""

    def forward(self, x: Tensor, layout: Layout | None = None) -> Tensor:
        if (fast := stand_in("layer_norm", x, self.weight)) is not None:
            found: Tensor = fast(x, self.weight, self.bias, self.eps)
            return found
        return super().forward(x)

    def of_sum(self, x: Tensor, y: Tensor, dropout: Dropout, layout: Layout | None = None) -> Tensor:
        """The norm of x + Dropout(y), both of one shape; compiled, in one pass and with the same bits."""
        dropping = dropout.training and dropout.probability > 0.0
        if dropping and (fast := stand_in("layer_norm", x, y, self.weight)) is not None:
            found: Tensor = fast(x, self.weight, self.bias, self.eps, y, dropout.probability)
            return found
        return self(dropout.add(x, y))


class RMSNorm(nn.RMSNorm, Norm):
    """x g / sqrt(mean(x²) + ε): a layer norm that does not centre (Zhang and Sennrich 2019, equation 4)."""

    def __init__(self, width: int) -> None:
        super().__init__(width, eps=1e-6)

    def forward(self, x: Tensor, layout: Layout | None = None) -> Tensor:
        return super().forward(x)


class BatchNorm(Norm):
    """Batch norm over the batch's real tokens (Ioffe and Szegedy 2015): the contrast, since neighbours are seen.

    In training a feature's mean and variance are those of the batch; in use they are running averages, which are kept
    among the weights though nothing trains them.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.running_mean = nn.Parameter(torch.zeros(width), requires_grad=False)
        self.running_variance = nn.Parameter(torch.ones(width), requires_grad=False)
        self.momentum, self.eps = 0.1, 1e-5

    def forward(self, x: Tensor, layout: Layout | None = None) -> Tensor:
        """x (…, D); the layout tells which tokens count (None: all)."""
        mean, variance = self._of(x, layout) if self.training else (self.running_mean, self.running_variance)
        scale = self.weight * torch.rsqrt(variance.clamp(min=0) + self.eps)
        return (x * scale + (self.bias - mean * scale)).to(x.dtype)

    def _of(self, x: Tensor, layout: Layout | None) -> tuple[Tensor, Tensor]:
        """The batch's own mean and variance, which also move the running ones."""
        exact = x.to(self.running_mean.dtype)
        counts = torch.ones_like(exact[..., :1]) if layout is None else layout.inside()[..., None].to(exact.dtype)
        among = tuple(range(x.dim() - 1))
        mean = (exact * counts).sum(among) / counts.sum()
        found = mean, ((exact - mean).square() * counts).sum(among) / counts.sum()
        with torch.no_grad():
            for running, new in zip((self.running_mean, self.running_variance), found, strict=True):
                running.lerp_(new, self.momentum)
        return found


class Identity(Norm):
    """x as it is: where a stack needs no norm at its end."""

    def forward(self, x: Tensor, layout: Layout | None = None) -> Tensor:
        return x


NORM_KINDS: dict[str, Callable[[int], Norm]] = {"layer": LayerNorm, "rms": RMSNorm, "batch": BatchNorm}


class PostNorm(nn.Module):
    """A residual connection, Norm(x + Dropout(f(x))), as in the paper, whose norm is a layer norm.

    A block says `x = residual.add(x, f(residual.enter(x)))`.
    """

    def __init__(self, width: int, dropout: float, kind: str = "layer") -> None:
        super().__init__()
        self.norm = NORM_KINDS[kind](width)
        self.dropout = Dropout(dropout)

    def enter(self, x: Tensor, layout: Layout | None = None) -> Tensor:
        """What the sub-layer f is given."""
        return x

    def add(self, x: Tensor, y: Tensor, layout: Layout | None = None) -> Tensor:
        """What f has made, y, with x."""
        return self.norm.of_sum(x, y, self.dropout, layout)


class PreNorm(PostNorm):
    """x + Dropout(f(Norm(x))); a stack of these ends with one more norm (Xiong et al. 2020)."""

    def enter(self, x: Tensor, layout: Layout | None = None) -> Tensor:
        return self.norm(x, layout)

    def add(self, x: Tensor, y: Tensor, layout: Layout | None = None) -> Tensor:
        return self.dropout.add(x, y)


NORMS: dict[str, type[PostNorm]] = {"post": PostNorm, "pre": PreNorm}
