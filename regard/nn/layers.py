"""What acts on each token alone: linear maps, dropout, norms, residual connections, feed-forward networks.

A compiled kernel may stand in for each of them, or for other parts of `nn`: those of the table `STAND_INS`, which
`regard.kernels.table` fills. Beside each place that asks stands the readable reference; tests hold the two equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F

from .state import Layout

# -- compiled kernels, and gradients of our own ------------------------------------------------------------------------


@dataclass(frozen=True)
class StandIn:
    """A compiled kernel, and what it does not take, in sentences."""

    run: Callable[..., Any]
    unavailable: Callable[[str, torch.dtype], str | None]
    """A type of device and of numbers -> why the kernel cannot run on this machine with them, or None."""
    refuses: Callable[..., str | None]
    """The tensors that `run` would be given -> why it cannot take these, or None."""
    gpu: StandIn | None = None
    """The one for GPUs, if there is another."""

    def on(self, device: str) -> StandIn:
        """The one for a type of device."""
        return self.gpu if self.gpu is not None and device == "cuda" else self


STAND_INS: dict[str, StandIn] = {}
"""Name of a piece of work -> who does it; while it is empty, PyTorch does all the work."""
_off = False


@contextmanager
def only_references() -> Iterator[None]:
    """Inside, PyTorch's own operations are used although compiled ones are there: to compare the two."""
    global _off
    before, _off = _off, True
    try:
        yield
    finally:
        _off = before


def references_only() -> bool:
    """Whether compiled kernels are switched off."""
    return _off


def stand_in(name: str, first: Tensor, *others: Tensor | None) -> Callable[..., Tensor] | None:
    """What does this piece of work for these tensors; None: the reference must."""
    if (entry := STAND_INS.get(name)) is None or _off:
        return None
    entry = entry.on(first.device.type)
    return None if entry.refuses(first, *others) is not None else entry.run


def refusal(name: str, *tensors: Tensor) -> str | None:
    """Why `stand_in` gives None, in a sentence."""
    return _missing(name) or STAND_INS[name].on(tensors[0].device.type).refuses(*tensors)


def unavailable(name: str, device: str, dtype: torch.dtype) -> str | None:
    """Why no tensors on this type of device with this type of numbers can be taken, in a sentence; None: some can."""
    return _missing(name) or STAND_INS[name].on(device).unavailable(device, dtype)


def _missing(name: str) -> str | None:
    if _off:
        return "compiled kernels are switched off"
    return None if name in STAND_INS else "no compiled kernel is there"


def refusals(device: str, dtype: torch.dtype) -> dict[str, str]:
    """Of each compiled kernel that cannot run on this type of device with this type of numbers, the reason."""
    return {name: reason for name in STAND_INS if (reason := unavailable(name, device, dtype)) is not None}


class Saves(Protocol):
    """What an autograd function of ours keeps of its forward pass for its backward pass."""

    saved_tensors: tuple[Tensor, ...]
    scale: float

    def save_for_backward(self, *tensors: Tensor) -> None: ...


def applied(function: type[Function], *arguments: object) -> Tensor:
    """What an autograd function of our own makes of its arguments, with a type that PyTorch's declaration lacks."""
    made: Tensor = function.apply(*arguments)
    return made


class Map(nn.Linear):
    """x W^T + b (…, N) of x (…, D): PyTorch's own."""

    __call__: Callable[..., Tensor]


class Linear(Map):
    """The same, from a compiled kernel where one stands in."""

    def forward(self, x: Tensor) -> Tensor:
        fast = stand_in("linear", x, self.weight, self.bias)
        return super().forward(x) if fast is None else fast(x, self.weight, self.bias)


# -- dropout -----------------------------------------------------------------------------------------------------------


def keep_mask(shape: torch.Size, probability: float, device: torch.device) -> tuple[Tensor, float]:
    """A mask, true with chance 1 - `probability` (to 2^-16), and the scale 1 / that chance: the expectation is exact.

    The generator draws 64 bits at a time, four elements each; on a CPU, where drawing dominates, that is several times
    faster than one Bernoulli draw an element.
    """
    count, dropped = shape.numel(), round(probability * 65536)
    words = torch.empty((count + 3) // 4, dtype=torch.int64, device=device).random_(-(2**63), None)
    return words.view(torch.int16)[:count].view(shape) >= dropped - 32768, 65536 / (65536 - dropped)


class _Drop(Function):
    @staticmethod
    def forward(ctx: Saves, x: Tensor, probability: float) -> Tensor:
        mask, ctx.scale = keep_mask(x.shape, probability, x.device)
        ctx.save_for_backward(mask)
        return (x * mask).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Saves, *gradients: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return (gradients[0] * mask).mul_(ctx.scale), None


class Dropout(nn.Module):
    """Zeroes each element with the given probability while training and scales the rest; the identity otherwise.

    Srivastava et al. 2014; on a CPU it spends 16 random bits an element, see `keep_mask`.
    """

    __call__: Callable[..., Tensor]

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    @property
    def drops(self) -> bool:
        """Whether anything is zeroed now."""
        return self.training and self.probability > 0.0

    def forward(self, x: Tensor) -> Tensor:
        if not self.drops:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.probability)  # drawing is cheap there, and a compiler fuses it
        fast = stand_in("dropout", x)
        return applied(_Drop, x, self.probability) if fast is None else fast(None, x, self.probability)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """x plus the dropped y: a residual connection."""
        fast = stand_in("dropout", x, y) if self.drops and x.shape == y.shape else None
        return x + self(y) if fast is None else fast(x, y, self.probability)


# -- norms, and the residual connection around a sub-layer -------------------------------------------------------------


class Norm(nn.Module):
    """A norm of features: x (…, D) -> (…, D); made with D."""

    __call__: Callable[..., Tensor]

    def forward(self, x: Tensor, layout: Layout | None = None) -> Tensor:
        """The layout is for a norm that looks at other tokens too: it tells which are there (None: all)."""
        raise NotImplementedError

    def of_sum(self, x: Tensor, y: Tensor, dropout: Dropout, layout: Layout | None = None) -> Tensor:
        """The norm of x + Dropout(y), both of one shape."""
        return self(dropout.add(x, y), layout)


class LayerNorm(nn.LayerNorm, Norm):
    """Layer norm over the features (Ba et al. 2016), compiled where it can be."""

    def forward(self, x: Tensor, layout: Layout | None = None) -> Tensor:
        fast = stand_in("layer_norm", x, self.weight)
        return super().forward(x) if fast is None else fast(x, self.weight, self.bias, self.eps)

    def of_sum(self, x: Tensor, y: Tensor, dropout: Dropout, layout: Layout | None = None) -> Tensor:
        """The norm of x + Dropout(y), both of one shape; compiled, in one pass and with the same bits."""
        if dropout.drops and (fast := stand_in("layer_norm", x, y, self.weight)) is not None:
            return fast(x, self.weight, self.bias, self.eps, y, dropout.probability)
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
        mean, variance = self._of(x, layout) if self.training else (self.running_mean, self.running_variance)
        scale = self.weight * torch.rsqrt(variance.clamp(min=0) + self.eps)
        return (x * scale + (self.bias - mean * scale)).to(x.dtype)

    def _of(self, x: Tensor, layout: Layout | None) -> tuple[Tensor, Tensor]:
        """The batch's own mean and variance, which also move the running ones."""
        exact = x.to(self.running_mean.dtype)
        counts = torch.ones_like(exact[..., :1]) if layout is None else layout.inside()[..., None].to(exact.dtype)
        among = tuple(range(x.dim() - 1))
        mean = (exact * counts).sum(among) / counts.sum()
        variance = ((exact - mean).square() * counts).sum(among) / counts.sum()
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_variance.lerp_(variance, self.momentum)
        return mean, variance


class Identity(Norm):
    """x as it is: where a stack needs no norm at its end."""

    def forward(self, x: Tensor, layout: Layout | None = None) -> Tensor:
        return x


NORM_KINDS: dict[str, Callable[[int], Norm]] = {"layer": LayerNorm, "rms": RMSNorm, "batch": BatchNorm}


class PostNorm(nn.Module):
    """A residual connection, Norm(x + Dropout(f(x))) (Vaswani et al. 2017, sections 3.1 and 5.4; there a layer norm).

    A block says `x = residual.add(x, f(residual.enter(x)))`.
    """

    def __init__(self, width: int, dropout: float, kind: str = "layer") -> None:
        super().__init__()
        self.norm = NORM_KINDS[kind](width)
        self.dropout = Dropout(dropout)
        self.skipped = 0.0  # how often a pass in training goes without f (stochastic depth, Huang et al. 2016)

    def enter(self, x: Tensor, layout: Layout | None = None) -> Tensor:
        """What the sub-layer f is given."""
        return x

    def add(self, x: Tensor, y: Tensor, layout: Layout | None = None) -> Tensor:
        """What f has made, y, with x."""
        return self.norm.of_sum(x, self.kept(y), self.dropout, layout)

    def kept(self, y: Tensor) -> Tensor:
        """y, or in training now and then zeros, and else more of it, so that the mean stays."""
        if not (self.training and self.skipped):
            return y
        return y * F.dropout(torch.ones((), device=y.device), self.skipped)


class PreNorm(PostNorm):
    """x + Dropout(f(Norm(x))); a stack of these ends with one more norm (Xiong et al. 2020)."""

    def enter(self, x: Tensor, layout: Layout | None = None) -> Tensor:
        return self.norm(x, layout)

    def add(self, x: Tensor, y: Tensor, layout: Layout | None = None) -> Tensor:
        return self.dropout.add(x, self.kept(y))


NORMS: dict[str, type[PostNorm]] = {"post": PostNorm, "pre": PreNorm}


# -- the position-wise feed-forward network ----------------------------------------------------------------------------

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),  # GPT-2's, by its name there
    "silu": F.silu,
}
GATES: dict[str, Callable[[Tensor], Tensor]] = {"reglu": F.relu, "geglu": F.gelu, "swiglu": F.silu}


class FeedForward(nn.Module):
    """FFN(x) = f(x W1 + b1) W2 + b2, at every position alike: (…, D) -> (…, D) (Vaswani et al. 2017, equation 2)."""

    def __init__(self, width: int, inner: int, activation: str, dropout: float) -> None:
        super().__init__()
        self.inner = Linear(width, inner)
        self.outer = Linear(inner, width)
        self.activation = ACTIVATIONS[activation]
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        if self.activation is F.relu and not self.dropout.drops:
            weights = self.inner.weight, self.inner.bias, self.outer.weight, self.outer.bias
            if (fast := stand_in("feedforward", x, *weights)) is not None:
                return fast(x, *weights)
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
