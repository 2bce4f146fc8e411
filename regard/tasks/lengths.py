"""How long a line a recipe's model can take, known before any text is prepared for it."""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from regard.errors import ModelError, RecipeError
from regard.models import FAMILIES
from regard.models.interface import capacity_of, layout_of
from regard.nn.stand_ins import only_references
from regard.recipe import Recipe
from regard.text import PAD
from regard.train import OBJECTIVES

__all__ = ["longest_of"]

_VOCABULARY = 50


def longest_of(recipe: Recipe) -> tuple[int, int]:
    """The most tokens of a source and of a target, ends counted, that the model takes; 0: any number.

    A model of these sizes without memory is asked. Raises RecipeError where a window of a stream is longer.
    """
    with FakeTensorMode(), only_references(), torch.random.fork_rng(devices=()):
        model = FAMILIES[recipe.model.family].build(recipe.model, _VOCABULARY, _VOCABULARY, PAD).eval()
        if (most := capacity_of(model)) is None:
            return 0, 0
        if recipe.data.context > most:
            raise RecipeError(
                f"data.context ({recipe.data.context}) is more than the {most} positions of the model; lower it, or "
                "raise model.max_positions."
            )
        if OBJECTIVES[recipe.objective].reads == "text":
            return 0, 0 if recipe.data.context else most
        source, target = (not _takes(model, recipe, *tokens) for tokens in ((most + 1, 1), (1, most + 1)))
    return most if source else 0, most if target and not recipe.corpus.target_kind.one_token else 0


@torch.no_grad()
def _takes(model: Any, recipe: Recipe, *tokens: int) -> bool:
    """Whether the model takes a pair of so many source and target tokens."""
    (source, reading), (target, writing) = (
        (torch.zeros(1, n, dtype=torch.long), layout_of("padded", torch.tensor([n]), n)) for n in tokens
    )
    try:
        OBJECTIVES[recipe.objective].hidden(model, source, reading, target, writing)
    except ModelError:
        return False
    return True
