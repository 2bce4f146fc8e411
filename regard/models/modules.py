"""What is asked of any model as a module of PyTorch: its size, its device, the layout of what it reads."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import regard.kernels.table  # noqa: F401  (fills the table of compiled kernels that `nn` asks)
from regard.errors import ModelError
from regard.nn.attention.scores import Score
from regard.nn.layers import Map
from regard.nn.positions import Added
from regard.nn.state import Layout, Packed, Padded

from .interface import HasParameters


class Projecting(nn.Module):
    """A model that ends in one linear map, which makes the logits."""

    output: Map

    def project(self, hidden: Tensor) -> Tensor:
        """Hidden (…, D) -> logits (…, V)."""
        return self.output(hidden)


def zero_padding(model: nn.Module, pad: int) -> None:
    """Make the vector of the padding zero in every table of the model."""
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            nn.init.zeros_(module.weight[pad])


def begin_uniform(model: nn.Module, most: float, pad: int) -> None:
    """Draw all parameters from -`most` to `most`, in their order; the padding's vectors are zero."""
    for parameter in model.parameters():
        nn.init.uniform_(parameter, -most, most)
    zero_padding(model, pad)


def layout_of(kind: str, lengths: Tensor, width: int, tokens: int = 0) -> Layout:
    """The layout of a batch of this kind ("padded" or "packed"): its longest row, and the tokens of a packed one."""
    return Packed(lengths, width, tokens) if kind == "packed" else Padded(lengths, width)


def parameter_count(model: nn.Module) -> int:
    """Trained numbers, each shared matrix counted once."""
    return sum(p.numel() for p in model.parameters())


def capacity_of(model: nn.Module) -> int | None:
    """The most tokens that a row may have, where a part of the model has weights for no more; None: any number."""
    parts = (part.capacity for part in model.modules() if isinstance(part, (Added, Score)))
    return min((most for most in parts if most is not None), default=None)


def device_of(model: HasParameters) -> torch.device:
    """Where the model's parameters lie."""
    return next(iter(model.named_parameters()))[1].device


def device_named(name: str) -> torch.device:
    """The device of this name, "auto" being a GPU where there is one; raises ModelError if it is not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device).tolist()  # "meta" has shapes and no numbers
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(
            f'train.device = "{name}", or --device {name}, cannot be used: this machine or build of PyTorch has no '
            f"such device to compute on ({reason}); take auto, cpu, cuda or cuda:N."
        ) from None
    return device
