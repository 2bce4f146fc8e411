"""float32 weights beside the bfloat16 ones that a model computes with (Micikevicius et al. 2018, section 3.1).

The model is cast once an update, not at every use, and its gradients are summed in float32.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

__all__ = ["Weights", "mixed", "resolve_precision"]


def resolve_precision(precision: str, device: torch.device) -> bool:
    """Whether training computes in bfloat16; "auto" says yes where the hardware multiplies it faster."""
    if precision != "auto":
        return precision == "bfloat16"
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def mixed(device: torch.device, bfloat16: bool) -> torch.autocast:
    """The context in which a float32 model's matrix products run in bfloat16: for a model that is only used."""
    return torch.autocast(device.type, torch.bfloat16, enabled=bfloat16)


class Weights:
    """A model's weights as the optimiser sees them, float32; with `bfloat16` the model computes with copies."""

    def __init__(self, model: nn.Module, bfloat16: bool) -> None:
        self.used = dict(model.named_parameters())
        """What the model computes with."""
        self.masters: dict[str, nn.Parameter] = dict(self.used) if bfloat16 else self.used
        """What the optimiser changes."""
        self.gradients: dict[str, Tensor] = {}
        """Summed since the last update, in float32."""
        if bfloat16:
            # What nothing trains, such as running averages, is its own master and stays exact.
            for name, used in self.used.items():
                if used.requires_grad:
                    self.masters[name] = nn.Parameter(used.detach().float().clone())
                    used.data = used.data.bfloat16()

    def gather(self) -> None:
        """Add the gradients of the latest backward pass to `gradients`, and clear them in the model."""
        for name, used in self.used.items():
            if used.grad is None:
                continue
            if name in self.gradients:
                self.gradients[name] += used.grad
            else:
                self.gradients[name] = used.grad.to(self.masters[name].dtype)
            used.grad = None

    def discard(self) -> None:
        """Forget the gradients of a backward pass that did not come to its end."""
        for used in self.used.values():
            used.grad = None

    @torch.no_grad()
    def put(self, values: Mapping[str, Tensor]) -> None:
        """Let the model compute with these values; `put(masters)` brings the optimiser's own."""
        if values is not self.used:
            torch._foreach_copy_(list(self.used.values()), [values[name] for name in self.used])
