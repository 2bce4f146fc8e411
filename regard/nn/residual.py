"""The residual connection around a sub-layer, with its norm and dropout (Vaswani et al. 2017, sections 3.1 and 5.4)."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from . import native
from .dropout import Dropout

__all__ = ["NORMS", "LayerNorm", "PostNorm", "PreNorm"]


class LayerNorm(nn.LayerNorm):
    """Layer norm over the features (Ba et al. 2016), compiled where it can be."""

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-1] % 16 == 0 and native.takes(x, self.weight):
            return native.layer_norm(x, self.weight, self.bias, self.eps)
        return super().forward(x)


class PostNorm(nn.Module):
    """LayerNorm(x + Dropout(f(x))), as in the paper."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = LayerNorm(width)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, f: Callable[[Tensor], Tensor]) -> Tensor:
        return self.norm(self.dropout.add(x, f(x)))  # type: ignore[no-any-return]


class PreNorm(PostNorm):
    """x + Dropout(f(LayerNorm(x))); a stack of these ends with one more norm (Xiong et al. 2020)."""

    def forward(self, x: Tensor, f: Callable[[Tensor], Tensor]) -> Tensor:
        return self.dropout.add(x, f(self.norm(x)))


NORMS: dict[str, type[PostNorm]] = {"post": PostNorm, "pre": PreNorm}
