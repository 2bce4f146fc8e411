"""What training asks of models of one side: the answers that a bundle is verified by, and its scores in the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from regard.models import FAMILIES
from regard.models.interface import Classifier, Kind, LanguageModel, MaskedLM
from regard.recipe import Recipe
from regard.search.table import SearchConfig
from regard.tasks.engine import context_of, exact_copy
from regard.text import BEGIN, END, MASK, Tokenizer

from .fill import filled, labels_of
from .generate import continued
from .measure import measure
from .open import open_bundle

_GO_ON = 12
"""Tokens that a golden text is gone on with."""

Ids = Sequence[int]


def answers(model: nn.Module, recipe: Recipe, source: Tokenizer, rows: Sequence[Ids]) -> list[list[int]]:
    """How rows of ids go on, what their masks stand for, or their labels."""
    return _ANSWERS[FAMILIES[recipe.model.family].kind](model, recipe, source, rows)


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


_ANSWERS: dict[Kind, Callable[[Any, Recipe, Tokenizer, Sequence[Ids]], list[list[int]]]] = {
    "language-model": _continuations,
    "reader": _fillings,
    "classifier": _labels,
}


Judge = Callable[[Sequence[str], Sequence[Sequence[str]]], tuple[dict[str, object], None]]
"""Lines, and their labels if there are any -> scores; such a bundle writes nothing."""


def judge(path: Path, recipe: Recipe) -> Judge:
    """What scores a bundle by the probabilities that it gives."""
    opened = open_bundle(path, ["language-model", "classifier"])

    def judge(source: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[dict[str, object], None]:
        scores = measure(opened, source, None if recipe.data.texts else references[0])
        return {"lines": len(source), "scores": {name: score.to_dict() for name, score in scores.items()}}, None

    return judge
