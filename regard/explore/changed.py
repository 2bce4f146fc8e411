"""A Transformer that computes with changes of its attention, for everything that takes a model in PyTorch."""

from __future__ import annotations

import copy

from torch import Tensor, nn

from regard.errors import DataError
from regard.models.blocks import Transformer, TransformerState
from regard.nn.state import Layout, Observer

from .changes import Changes, change_of


class Changed(nn.Module):
    """An encoder-decoder: the same model, handed a change in every pass. The model itself is as it was."""

    def __init__(self, model: Transformer, changes: Changes) -> None:
        super().__init__()
        self.model, self.changes = with_parameters(model, changes), changes
        self.output: nn.Linear = self.model.output

    def encode(self, source: Tensor, layout: Layout, observe: Observer | None = None) -> Tensor:
        return self.model.encode(source, layout, self._watched(observe, 0))

    def start(self, memory: Tensor, layout: Layout, capacity: int | None = None) -> TransformerState:
        return self.model.start(memory, layout, capacity)

    def decode(
        self, tokens: Tensor, state: TransformerState, layout: Layout | None = None, observe: Observer | None = None
    ) -> tuple[Tensor, TransformerState]:
        return self.model.decode(tokens, state, layout, self._watched(observe, state.position))

    def project(self, hidden: Tensor) -> Tensor:
        return self.model.project(hidden)

    def _watched(self, observe: Observer | None, begin: int) -> Observer:
        """An observer of one pass that changes the weights, and gives them to the one that was handed in."""
        watched = Observer(change=change_of(self.changes, begin))
        if observe is not None:
            watched.weights, watched.losses = observe.weights, observe.losses
        return watched


def with_parameters(model: Transformer, changes: Changes) -> Transformer:
    """The model, or a copy that shares all parameters but those that are multiplied; DataError for no such name."""
    factors = changes.parameters
    if not factors:
        return model
    named = dict(model.named_parameters())
    if unknown := sorted(factors.keys() - named.keys()):
        raise DataError(
            f"parameter {unknown[0]!r}: this model has none of that name; take one such as {next(iter(named))}."
        )
    scaled = {name: nn.Parameter(named[name].detach() * factor, False) for name, factor in factors.items()}
    memo: dict[int, object] = {id(parameter): scaled.get(name, parameter) for name, parameter in named.items()}
    return copy.deepcopy(model, memo)
