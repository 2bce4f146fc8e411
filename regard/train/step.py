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
from torch.nn import functional as F

from regard.data.batches import Batch
from regard.errors import ModelError
from regard.models.interface import Layout, Observer, Part, layout_of
from regard.nn.stand_ins import unavailable

from .objectives import OBJECTIVES, Objective, Side, projected_loss, token_losses

__all__ = ["Inputs", "Step", "inputs"]

_ROWS, _COLUMNS, _TOKENS, _LINES = 8, 4, 128, 256
_ANY = 16
"""What is filled up to a multiple: the rows and columns of rectangles, the tokens of packs, a pack's lines on a GPU.

Matrix libraries compile a product for each shape they meet and forget the oldest; so does a compiler with a step.
With fewer shapes they meet each again before it is forgotten. What is added is padding, and rows of length 0. Our own
products compile nothing for a shape: where they are used, packs have a multiple of _ANY.
"""


_LOOKS: dict[tuple[Side, Side], Part] = {
    ("source", "source"): "encoder",
    ("target", "target"): "decoder",
    ("target", "source"): "cross",
}
"""Whose tokens look at whose -> the attention that does it."""


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

    def layout(self, side: Side) -> Layout:
        """Where the lines of a side lie."""
        if side == "source":
            return layout_of(self.kind, self.source_lengths, self.widths[0], len(self.source))
        return layout_of(self.kind, self.target_lengths, self.widths[1], len(self.tokens))


def inputs(batch: Batch, device: torch.device, full: int = 0, *, places: int | None = None) -> Inputs:
    """The batch on a device, filled up to one of few shapes; with `full`, packs have a multiple of so many tokens.

    What is filled up is no wider than `places`, the most that the model knows; with 0 the batch is as it is.
    """
    packed = batch.layout == "packed"
    few = _ANY if unavailable("linear", device.type, torch.bfloat16) is None else _TOKENS
    steps = (full or few,) if packed else (_ROWS, _COLUMNS)
    lines = (_LINES if full else 1) if packed else _ROWS

    def filled(x: NDArray[Any], steps: tuple[int, ...], value: int = 0) -> Tensor:
        room = [(0, -size % step if places != 0 else 0) for size, step in zip(x.shape, steps, strict=False)]
        if x.ndim == 2 and places is not None:
            room[1] = (0, max(0, min(room[1][1], places - x.shape[1])))
        made = torch.from_numpy(np.pad(x, room, constant_values=value))
        # From pinned memory a copy to a GPU goes on while the one before is still computed with.
        return made.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else made.to(device)

    def width(lengths: NDArray[Any]) -> int:
        longest = int(lengths.max())
        whole = 1 << (longest - 1).bit_length() if full else longest
        return whole if places is None else max(longest, min(whole, places))

    targets = batch.target_output
    if not packed:
        targets = np.where(np.arange(targets.shape[1]) < batch.target_lengths[:, None], targets, -1)
    source, tokens = filled(batch.source, steps), filled(batch.target_input, steps)
    return Inputs(
        batch.layout,
        source,
        filled(batch.source_lengths, (lines,)),
        tokens,
        filled(targets, steps, -1),
        filled(batch.target_lengths, (lines,)),
        (width(batch.source_lengths), width(batch.target_lengths)) if packed else (source.shape[1], tokens.shape[1]),
    )


class Step(nn.Module):
    """A model with its objective: `Inputs` -> the summed label-smoothed loss of their targets.

    With `compiled` PyTorch compiles both of its parts, for each shape anew: for packs of constant size on a GPU.
    """

    def __init__(
        self,
        model: nn.Module,
        smoothing: float,
        chunk: int,
        compiled: bool = False,
        objective: Objective = OBJECTIVES["translate"],
        importance: Tensor | None = None,
        price: Tensor | None = None,
    ) -> None:
        """`importance`: what a target of each token counts, (V,); None: all count alike.

        `price`: what a target adds to the objective for looking at each token, (V,), in nats; None: nothing.
        """
        super().__init__()
        self.register_buffer("importance", importance, persistent=False)
        self.register_buffer("price", price, persistent=False)
        self.importance: Tensor | None
        self.price: Tensor | None
        self.objective = objective
        self.model, self.smoothing, self.chunk, self.compiled = model, smoothing, chunk, compiled
        self._run = torch.compile(self.hidden, dynamic=False) if compiled and price is None else self.hidden

    def hidden(self, x: Inputs, observe: Observer | None = None) -> Tensor:
        """The model's output for every target, (B, T, D), (B, D) or (L, D); `observe` is given what it wants to see."""
        return self.objective.hidden(self.model, x.source, x.layout("source"), x.tokens, x.layout("target"), observe)

    def targets(self, x: Inputs) -> Tensor:
        """The target of every row of `hidden`, (N,)."""
        if self.objective.places == "one":
            return x.targets[: len(x.source_lengths)] if x.kind == "packed" else x.targets[:, 0]
        return x.targets.flatten()

    def forward(self, x: Inputs) -> Tensor:
        pays = self.price is not None and self.training
        observe = Observer(_LOOKS[self.objective.looks]) if pays else Observer()
        hidden, targets = self._run(x, observe).flatten(0, -2), self.targets(x)
        lines = self._lines(x) if self.training and (observe.losses or pays) else None
        if self.objective.places == "some":
            kept = (targets >= 0).nonzero()[:, 0]
            count = len(kept)
            kept = F.pad(kept, (0, -count % _TOKENS))  # the first place again, as padding: few shapes here too
            hidden, lines = hidden[kept], None if lines is None else lines[kept]
            targets = F.pad(targets[kept[:count]], (0, len(kept) - count), value=-1)
        output: Any = self.model.output
        settings = hidden, output.weight, output.bias, targets, self.smoothing, self.chunk
        counts = None if self.importance is None else self.importance[targets.clamp(min=0)]
        loss = projected_loss(*settings, self.compiled, counts)
        if lines is None:
            return loss
        added = self._auxiliary(lines, x, observe, *settings)
        return loss + added - added.detach()  # what is told is the model's own loss

    def _lines(self, x: Inputs) -> Tensor:
        """Which line of the batch each target is of, (N,); B: of none."""
        lines = torch.arange(len(x.source_lengths), device=x.targets.device)
        if self.objective.places == "one":
            return lines
        if x.kind == "packed":
            pack: Any = x.layout("target")
            return pack.sequences()  # type: ignore[no-any-return]
        return lines.repeat_interleave(x.targets.shape[1])

    def _auxiliary(self, lines: Tensor, x: Inputs, observe: Observer, *settings: Any) -> Tensor:
        """What the model's parts add to the loss, and the price of where it looked."""
        count = len(x.source_lengths)

        def of_lines(each: Tensor) -> Tensor:
            return each.new_zeros(count + 1).index_add(0, lines, each)[:count]

        tokens = of_lines((settings[3] >= 0).float())
        added = []
        if observe.losses:
            losses = of_lines(token_losses(*settings))
            added += [each(losses, tokens) for each in observe.losses]
        for layers in observe.weights.values():
            added.append((self._paid(x, layers) * tokens).sum())
        return torch.stack(added).sum()

    def _paid(self, x: Inputs, layers: list[Tensor]) -> Tensor:
        """What a target of each line pays for where the line's queries looked, (B,): the mean over layers and heads."""
        if not layers:
            raise ModelError(
                "train.attention_penalty is a price of looking, and this model has no attention; leave it out."
            )
        assert self.price is not None
        queries, keys = (x.layout(side) for side in self.objective.looks)
        ids = x.source if self.objective.looks[1] == "source" else x.tokens
        price = keys.rectangle(keys.rows(self.price[ids][..., None]))[..., 0]  # (B, S)
        paid = []
        for weights in layers:  # (B, H, T, S)
            inside = torch.arange(weights.shape[2], device=price.device) < queries.lengths[:, None]
            each = (weights * price[:, None, None]).sum(-1).mean(1)  # (B, T)
            paid.append((each * inside).sum(1) / inside.sum(1).clamp(min=1))
        return torch.stack(paid).mean(0)
