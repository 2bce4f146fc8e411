"""Golden sentences: what a model is asked when its bundle is made, and must answer the same way ever after."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

import torch
from torch import nn

from regard.bundle import Golden
from regard.data.store import Store
from regard.models import FAMILIES
from regard.recipe import Recipe
from regard.text import Tokenizer
from regard.train import OBJECTIVES

from .engine import USES

_COUNT = 8
Ids = Sequence[int]


def golden(model: nn.Module, recipe: Recipe, source: Tokenizer, target: Tokenizer, store: Store) -> list[Golden]:
    """A few lines of a store, spread over the lengths, with the answers to them."""
    pairs = recipe.data.texts == ()
    side = store.source if pairs else store.target
    lengths = side.lengths
    order = sorted((i for i in range(len(store)) if pairs or lengths[i] > 1), key=lambda i: int(lengths[i]))
    lines = [order[i * (len(order) - 1) // max(1, _COUNT - 1)] for i in range(min(_COUNT, len(order)))]
    question = OBJECTIVES[recipe.objective].example
    return answered([question(source, side.text(i)) for i in dict.fromkeys(lines)], model, recipe, source, target)


def answered(
    lines: Sequence[str], model: nn.Module, recipe: Recipe, source: Tokenizer, target: Tokenizer
) -> list[Golden]:
    """These lines with the model's answers."""
    ids = [source.encode(line) for line in lines]
    return [
        Golden(source=line, source_ids=tuple(read), target_ids=tuple(found), output=target.decode(found))
        for line, read, found in zip(lines, ids, answers(model, recipe, source, ids), strict=True)
    ]


@torch.inference_mode()
def answers(model: nn.Module, recipe: Recipe, source: Tokenizer, rows: Sequence[Ids]) -> list[list[int]]:
    """What the model makes of rows of ids: translations, how they go on, what masks stand for, or labels."""
    page = import_module(USES[FAMILIES[recipe.model.family].kind].page)
    found: list[list[int]] = page.answers(model, recipe, source, rows)
    return found
