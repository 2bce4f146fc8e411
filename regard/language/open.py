"""A bundle opened to be used: its model, its vocabularies, and what kind of model it is."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from regard import bundle as bundles
from regard.bundle import Bundle
from regard.errors import RegardWarning, TextError
from regard.models import FAMILIES
from regard.models.interface import Kind
from regard.recipe import Recipe
from regard.tasks.engine import USES, check_kind, check_torch, context_of, exact_copy, instead_of, is_exact
from regard.tasks.lines import check_line
from regard.text import Tokenizer

if TYPE_CHECKING:
    from torch import nn


_NO_INT8 = "this is computed in PyTorch, which multiplies no int8"


class Pipeline:
    """A model with the text side of it; `exact` computes in float64, so that no result depends on its neighbours."""

    def __init__(self, model: nn.Module, recipe: Recipe, source: Tokenizer, target: Tokenizer) -> None:
        self.model, self.recipe, self.source, self.target = model, recipe, source, target
        self._exact: nn.Module | None = None
        self.bundle: Bundle | None = None
        """Where it was loaded from."""

    def model_for(self, precision: str = "auto") -> nn.Module:
        """The model to compute with: itself, or its float64 copy, made once and kept; see `regard.tasks.engine`."""
        if precision == "int8":
            warnings.warn(instead_of(precision, _NO_INT8), RegardWarning, stacklevel=3)
        if not is_exact(precision):
            return self.model
        if self._exact is None:
            self._exact = exact_copy(self.model)
        return self._exact

    @property
    def capacity(self) -> int:
        """The most tokens that the model takes at once; 0 for no limit."""
        return context_of(self.recipe)

    def encode(self, line: str, number: int = 1) -> list[int]:
        """Ids of a line of text. Raises TextError, naming the line, for what cannot be read."""
        check_line(line, f"line {number}")
        return self.source.encode(line)

    def check_length(self, ids: Sequence[int], number: int) -> None:
        """Raises TextError for a line, its end counted, that is too long for the model."""
        if self.capacity and len(ids) > self.capacity:
            raise TextError(
                f"line {number} has {len(ids):,} tokens with its end, and this model takes at most {self.capacity:,}: "
                "split the line."
            )


def open_bundle(bundle: str | Path | Pipeline, wanted: Sequence[Kind], *, device: str = "cpu") -> Pipeline:
    """Load a bundle of one of these kinds onto a device; what is open already is only checked."""
    if isinstance(bundle, Pipeline):
        check_kind(bundle.recipe, wanted, bundle.bundle.path if bundle.bundle else "the model")
        return bundle
    found = bundles.load(bundle)
    check_kind(found.recipe, wanted, bundle)
    check_torch(f"`regard {USES[FAMILIES[found.recipe.model.family].kind].command}`")
    from regard.models.blocks import device_named

    opened = Pipeline(found.model().to(device_named(device)), found.recipe, found.source, found.target)
    opened.bundle = found
    return opened
