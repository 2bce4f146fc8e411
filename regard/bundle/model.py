"""The model of a bundle in PyTorch, with its weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.errors import BundleError, RegardError
from regard.models.blocks import new_model

if TYPE_CHECKING:
    from .load import Bundle, Weights

_TABLES = 1 << 28
"""Numbers in the tables that a model computes for itself, such as sinusoids, that are still taken for reasonable."""


def filled(bundle: Bundle, weights: Weights) -> nn.Module:
    """The bundle's model with these weights, after every name and shape was held against a model without memory."""
    with torch.device("meta"):
        try:
            empty = new_model(bundle.recipe.model, bundle.source, bundle.target)
        except RegardError:
            raise
        except Exception as error:  # whatever a page raises for sizes that no recipe of ours has
            raise BundleError(f"{bundle.path}: no model can be made of its recipe: {error}") from error
    if (tables := sum(buffer.numel() for buffer in empty.buffers())) > _TABLES:
        raise BundleError(f"{bundle.path}: its recipe asks for tables of {tables:,} numbers; get the bundle again.")
    weights.check({name: tuple(parameter.shape) for name, parameter in empty.named_parameters()})
    with _Unfilled():
        model = new_model(bundle.recipe.model, bundle.source, bundle.target)
    for name, parameter in model.named_parameters():
        parameter.data.copy_(torch.from_numpy(weights[name]))
    return model.eval()


class _Unfilled(TorchFunctionMode):
    """While inside, new parameters are not drawn at random: they are about to be overwritten."""

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if function in (Tensor.uniform_, Tensor.normal_):
            return args[0]
        return function(*args, **(kwargs or {}))
