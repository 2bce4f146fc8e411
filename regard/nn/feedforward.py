"""The position-wise feed-forward network, FFN(x) = f(x W1 + b1) W2 + b2 (Vaswani et al. 2017, equation 2)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn
from torch.nn import functional as F

from .dropout import Dropout
from .linear import Linear
from .stand_ins import stand_in

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),  # GPT-2's, by its name there
    "silu": F.silu,
}
GATES: dict[str, Callable[[Tensor], Tensor]] = {"reglu": F.relu, "geglu": F.gelu, "swiglu": F.silu}


class FeedForward(nn.Module):
    """Two linear maps with an activation between them, at every position alike: (…, D) -> (…, D)."""

    def __init__(self, width: int, inner: int, activation: str, dropout: float) -> None:
        super().__init__()
        self.inner = Linear(width, inner)
        self.outer = Linear(inner, width)
        self.activation = ACTIVATIONS[activation]
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        if self.activation is F.relu and not (self.training and self.dropout.probability):
            weights = self.inner.weight, self.inner.bias, self.outer.weight, self.outer.bias
            if (fast := stand_in("feedforward", x, *weights)) is not None:
                found: Tensor = fast(x, *weights)
                return found
        return self.outer(self.dropout(self.activation(self.inner(x))))


class GatedFeedForward(nn.Module):
    """(f(x W) ⊙ x V) U (Shazeer 2020, equation 6): two inner products, one the gate of the other; (…, D) -> (…, D).

    They have two thirds of the inner features each, up to a multiple of 8, so that there are as many weights.
    """

    def __init__(self, width: int, inner: int, gate: str, dropout: float) -> None:
        super().__init__()
        size = -(-2 * inner // 24) * 8
        self.inner = Linear(width, 2 * size)  # the gate's features, then those that it lets through
        self.outer = Linear(size, width)
        self.gate = GATES[gate]
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        gate, through = self.inner(x).chunk(2, -1)
        return self.outer(self.dropout(self.gate(gate) * through))
