"""The residual connection around a sub-layer, with its norm and dropout (Vaswani et al. 2017, sections 3.1 and 5.4)."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from .dropout import Dropout

__all__ = ["NORMS", "PostNorm", "PreNorm"]


class PostNorm(nn.Module):
    """LayerNorm(x + Dropout(f(x))), as in the paper."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, f: Callable[[Tensor], Tensor]) -> Tensor:
        return self.norm(x + self.dropout(f(x)))  # type: ignore[no-any-return]


class PreNorm(PostNorm):
    """x + Dropout(f(LayerNorm(x))); a stack of these ends with one more norm (Xiong et al. 2020)."""

    def forward(self, x: Tensor, f: Callable[[Tensor], Tensor]) -> Tensor:
        return x + self.dropout(f(self.norm(x)))  # type: ignore[no-any-return]


NORMS: dict[str, type[PostNorm]] = {"post": PostNorm, "pre": PreNorm}
