"""The position-wise feed-forward network, FFN(x) = f(x W1 + b1) W2 + b2 (Vaswani et al. 2017, equation 2)."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F

from .dropout import Dropout

__all__ = ["ACTIVATIONS", "FeedForward"]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}


class FeedForward(nn.Module):
    """Two linear maps with an activation between them, at every position alike: (…, D) -> (…, D)."""

    def __init__(self, width: int, inner: int, activation: str, dropout: float) -> None:
        super().__init__()
        self.inner = nn.Linear(width, inner)
        self.outer = nn.Linear(inner, width)
        self.activation = ACTIVATIONS[activation]
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.dropout(self.activation(self.inner(x))))  # type: ignore[no-any-return]
