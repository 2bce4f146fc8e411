"""Changes of a Transformer's attention while it computes: heads weaker, stronger or off, and weights put by hand.

A change is handed in with the observer of a pass and is gone with it: no module knows of it. A head that is off adds
nothing to what its layer's output map reads, which is the same as zeros in that map's columns: so the compiled engine
takes it, by weights that NumPy has changed before they are packed.

Sizes: B sentences, H heads, T rows (what looks), S columns (what is looked at).
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from regard.errors import DataError, ModelError
from regard.models.transformer import TransformerConfig
from regard.recipe import Recipe

if TYPE_CHECKING:
    from torch import Tensor

Part = Literal["encoder", "cross", "decoder"]
Weights = Mapping[str, NDArray[np.float32]]
_MOST_EDITS = 1000
_MOST_STRENGTH = 100.0


@dataclass(frozen=True, order=True)
class Head:
    """One head: the part of the attention, the layer and the head, both from 1; written `encoder.2.3`."""

    part: Part
    layer: int
    head: int

    def __str__(self) -> str:
        return f"{self.part}.{self.layer}.{self.head}"

    @property
    def module(self) -> str:
        """The name of its attention in the model."""
        side = "encoder" if self.part == "encoder" else "decoder"
        return f"{side}.{self.layer - 1}.{'cross' if self.part == 'cross' else 'attention'}"


@dataclass(frozen=True)
class Edit:
    """A weight put by hand; all from 1, as in `Part.to_csv`, and 0 stands for every head, or every row.

    The other weights of the row are scaled, so that the row still sums to one.
    """

    part: Part
    layer: int
    head: int
    row: int
    column: int
    weight: float


@dataclass(frozen=True)
class Changes:
    """What is changed: how strong heads are (0: off, 1: as ever), weights, and what parameters are multiplied by."""

    strengths: Mapping[Head, float]
    edits: Sequence[Edit] = ()
    parameters: Mapping[str, float] | None = None

    def __bool__(self) -> bool:
        return bool(self.strengths or self.edits or self.parameters)

    @property
    def only_off(self) -> bool:
        """Whether heads are off and nothing else is changed, which the compiled engine can do."""
        return not self.edits and not self.parameters and not any(self.strengths.values())


def config_of(recipe: Recipe) -> TransformerConfig:
    """The settings of a recipe's Transformer. Raises ModelError for another family, whose attention has no heads."""
    if recipe.model.family != "transformer":
        raise ModelError(f"a {recipe.model.family} model has no heads to switch off; take a transformer.")
    if recipe.model.decoder_mixer == "ssru":
        raise ModelError('this model has model.decoder_mixer = "ssru", a decoder without heads; take another.')
    return cast(TransformerConfig, recipe.model)


def all_heads(config: TransformerConfig) -> list[Head]:
    """Every head of a model, layer by layer."""
    return [
        Head(part, layer, head)
        for part in get_args(Part)
        for layer, count in enumerate(config.heads_in(part), start=1)
        for head in range(1, count + 1)
    ]


def heads_named(names: Iterable[str], config: TransformerConfig) -> list[Head]:
    """Heads by their names, each once; a name may leave the head out for all of its layer: `decoder.2`.

    Raises DataError for what the model has not.
    """
    known = all_heads(config)
    by_name: dict[str, list[Head]] = {str(head): [head] for head in known}
    for head in known:
        by_name.setdefault(f"{head.part}.{head.layer}", []).append(head)
    found: dict[Head, None] = {}
    for name in names:
        if name not in by_name:
            raise DataError(
                f"head {name!r}: this model has no such head; name one as PART.LAYER.HEAD, from {known[0]} to "
                f"{known[-1]}, or PART.LAYER for all of a layer."
            )
        found |= dict.fromkeys(by_name[name])
    return list(found)


def checked(changes: Changes, config: TransformerConfig) -> Changes:
    """The changes, if the model has what they name and the numbers make sense; raises DataError else."""
    heads_named(map(str, changes.strengths), config)
    numbers = [*changes.strengths.values(), *(changes.parameters or {}).values()]
    if any(not abs(number) <= _MOST_STRENGTH for number in numbers):
        raise DataError(
            f"heads and parameters are multiplied by numbers from -{_MOST_STRENGTH:g} to {_MOST_STRENGTH:g}."
        )
    if len(changes.edits) > _MOST_EDITS:
        raise DataError(f"{len(changes.edits):,} weights are put by hand; at most {_MOST_EDITS:,} can be.")
    for edit in changes.edits:
        heads_named([f"{edit.part}.{edit.layer}.{edit.head or 1}"], config)
        if edit.row < 0 or edit.column < 1 or not 0 <= edit.weight <= 1:
            raise DataError(
                f"weight {edit.weight:g} at row {edit.row} and column {edit.column}: a weight is from 0 to 1, rows and "
                "columns count from 1, and row 0 stands for all."
            )
    return changes


def change_of(changes: Changes, begin: int = 0) -> Callable[[str, int, Tensor], Tensor]:
    """What an observer does to weights (B, H, T, S), of which the first row is that of position `begin`."""
    strengths: dict[tuple[str, int], list[tuple[int, float]]] = {}
    for head, strength in changes.strengths.items():
        strengths.setdefault((head.part, head.layer - 1), []).append((head.head - 1, strength))
    edits: dict[tuple[str, int], list[Edit]] = {}
    for edit in changes.edits:
        edits.setdefault((edit.part, edit.layer - 1), []).append(edit)

    def change(part: str, layer: int, weights: Tensor) -> Tensor:
        if asked := edits.get((part, layer)):
            weights = _edited(weights, asked, begin if part != "encoder" else 0)
        if scaled := strengths.get((part, layer)):
            factors = weights.new_ones(weights.shape[1], 1, 1)
            for number, strength in scaled:
                factors[number] = strength
            weights = weights * factors
        return weights

    return change


def _edited(weights: Tensor, edits: Sequence[Edit], begin: int) -> Tensor:
    """Weights with some put by hand; what is left of one goes to the row's others, in their old proportions.

    What is hidden by a mask has no weight, and is given none.
    """
    _, heads, rows, columns = weights.shape
    put = weights.new_full((heads, rows, columns), -1.0)
    for edit in edits:
        at = slice(None) if edit.row == 0 else slice(max(edit.row - 1 - begin, 0), max(edit.row - begin, 0))
        put[slice(None) if edit.head == 0 else edit.head - 1, at, edit.column - 1 : edit.column] = edit.weight
    chosen = (put >= 0) & (weights > 0)  # (B, H, T, S)
    fixed = put.where(chosen, 0.0)
    fixed = fixed / fixed.sum(-1, keepdim=True).clamp(min=1.0)  # several of a row may ask for more than there is
    others = weights.masked_fill(chosen, 0.0)
    left = 1.0 - fixed.sum(-1, keepdim=True)
    scaled = others * (left / others.sum(-1, keepdim=True).clamp(min=1e-12))
    return (scaled + fixed).where(chosen.any(-1, keepdim=True), weights)


def without(weights: Weights, config: TransformerConfig, off: Iterable[Head]) -> Weights:
    """A model's weights, as arrays by name, with zeros in the columns of the output maps that read these heads."""
    changed: dict[str, NDArray[np.float32]] = {}
    width = config.widths[1]
    for head in off:
        name = f"{head.module}.output.weight"
        changed.setdefault(name, np.array(weights[name]))[:, (head.head - 1) * width : head.head * width] = 0.0
    return ChainMap(changed, cast("dict[str, NDArray[np.float32]]", weights))  # the others stay where they lie
