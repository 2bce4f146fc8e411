"""One training step's forward pass: a batch in, its summed loss out.

This is the module that is wrapped for many processes and compiled, so everything that needs a gradient is inside it.
Sizes: B sentences, S and T longest source and target, L all tokens of a side, fill included.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.data.batches import Batch
from regard.models.interface import layout_of

from .objectives import projected_loss

__all__ = ["Inputs", "Step", "inputs"]

_ROWS, _COLUMNS, _TOKENS = 8, 4, 128
"""What rectangles and packs are filled up to a multiple of.

Matrix libraries compile a product for each shape they meet, and forget the oldest: with fewer shapes they meet each
again before it is forgotten. What is added is padding, and rows of length 0.
"""


@dataclass(frozen=True)
class Inputs:
    """A batch as tensors on the model's device: ids (B, S) and (B, T), or packed (L,); targets below 0 are padding."""

    kind: str
    source: Tensor
    source_lengths: Tensor
    tokens: Tensor
    targets: Tensor
    target_lengths: Tensor
    widths: tuple[int, int]
    """S and T."""


def inputs(batch: Batch, device: torch.device) -> Inputs:
    """The batch on a device, filled up to one of few shapes."""
    packed = batch.layout == "packed"

    def filled(x: NDArray[Any], value: int = 0) -> Tensor:
        steps = (_TOKENS,) if packed else (_ROWS, _COLUMNS)
        room = [(0, -size % step) for size, step in zip(x.shape, steps, strict=False)]
        return torch.from_numpy(np.pad(x, room, constant_values=value)).to(device, non_blocking=True)

    def lengths(x: NDArray[Any]) -> Tensor:
        room = 0 if packed else -len(x) % _ROWS
        return torch.from_numpy(np.pad(x, (0, room))).to(device, non_blocking=True)

    targets = batch.target_output
    if not packed:
        targets = np.where(np.arange(targets.shape[1]) < batch.target_lengths[:, None], targets, -1)
    source, tokens = filled(batch.source), filled(batch.target_input)
    widths = (
        (int(batch.source_lengths.max()), int(batch.target_lengths.max()))
        if packed
        else (source.shape[1], tokens.shape[1])
    )
    return Inputs(
        batch.layout,
        source,
        lengths(batch.source_lengths),
        tokens,
        filled(targets, -1),
        lengths(batch.target_lengths),
        widths,
    )


class Step(nn.Module):
    """A model with its objective: `Inputs` -> the summed label-smoothed loss of their target tokens."""

    def __init__(self, model: nn.Module, smoothing: float, chunk: int) -> None:
        super().__init__()
        self.model, self.smoothing, self.chunk = model, smoothing, chunk

    def forward(self, x: Inputs) -> Tensor:
        model: Any = self.model
        reading = layout_of(x.kind, x.source_lengths, x.widths[0], len(x.source))
        writing = layout_of(x.kind, x.target_lengths, x.widths[1], len(x.tokens))
        state = model.start(model.encode(x.source, reading), reading)
        hidden, _ = model.decode(x.tokens, state, writing)
        output: nn.Linear = model.output
        return projected_loss(
            hidden.flatten(0, -2), output.weight, output.bias, x.targets.flatten(), self.smoothing, self.chunk
        )
