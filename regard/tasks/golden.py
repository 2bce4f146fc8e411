"""Golden sentences: what a model is asked when its bundle is made, and must answer the same way ever after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from regard.bundle import Golden
from regard.data.store import Store
from regard.models import FAMILIES
from regard.models.interface import Classifier, EncoderDecoder, Kind, LanguageModel, MaskedLM
from regard.recipe import Recipe
from regard.search.table import SearchConfig
from regard.text import BEGIN, END, MASK, Tokenizer
from regard.train import OBJECTIVES

from .decode import decode
from .engine import backend_of, context_of, exact_copy, mask_of
from .fill import filled, labels_of
from .generate import continued

_COUNT = 8
_GO_ON = 12
"""Tokens that a golden text is gone on with."""

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
    return ANSWERS[FAMILIES[recipe.model.family].kind](model, recipe, source, rows)


def _translations(model: EncoderDecoder, recipe: Recipe, source: Tokenizer, rows: Sequence[Ids]) -> list[list[int]]:
    # Such a model has one vocabulary for both sides.
    return [best.ids for best, *_ in decode(backend_of(model, mask=mask_of(recipe, source)), rows, recipe.search)]


def _continuations(model: LanguageModel, recipe: Recipe, source: Tokenizer, rows: Sequence[Ids]) -> list[list[int]]:
    greedy = SearchConfig(beam=1, max_length=_GO_ON)
    exact = exact_copy(model)
    capacity = context_of(recipe)
    # Of a stream as of a line: what is asked is a beginning, and its answer at most the rest of a line.
    first = END if recipe.data.context else BEGIN
    return [continued(exact, row, greedy, first=first, end=END, capacity=capacity)[0].ids for row in rows]


def _fillings(model: MaskedLM, recipe: Recipe, source: Tokenizer, rows: Sequence[Ids]) -> list[list[int]]:
    mask = source.id_of(MASK)
    assert mask is not None  # such a model is trained with one
    found = filled(exact_copy(model), [[*row, END] for row in rows], mask, len(rows))
    return [chances.argmax(-1).tolist() for chances in found]


def _labels(model: Classifier, recipe: Recipe, source: Tokenizer, rows: Sequence[Ids]) -> list[list[int]]:
    chances = labels_of(exact_copy(model), [[*row, END] for row in rows], len(rows))
    return [[i] for i in chances.argmax(-1).tolist()]


ANSWERS: dict[Kind, Callable[[Any, Recipe, Tokenizer, Sequence[Ids]], list[list[int]]]] = {
    "encoder-decoder": _translations,
    "mask-predictor": _translations,
    "language-model": _continuations,
    "reader": _fillings,
    "classifier": _labels,
}
"""What a model of each kind is used for, whatever it was trained to make small."""
