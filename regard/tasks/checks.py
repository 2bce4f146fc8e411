"""What of a recipe would fail only after hours of training, found before it begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from regard.data.reading import line_of
from regard.data.store import Store
from regard.errors import DataError, ModelError, RecipeError
from regard.models import FAMILIES
from regard.models.interface import layout_of
from regard.nn.layers import only_references
from regard.recipe import Recipe
from regard.search.config import SearchConfig
from regard.search.table import search_of
from regard.text import PAD
from regard.train import OBJECTIVES

_VOCABULARY = 50


def longest_of(recipe: Recipe) -> tuple[int, int]:
    """The most tokens of a source and of a target, ends counted, that the model takes; 0: any number.

    A model of these sizes without memory is asked. Raises RecipeError where a window of a stream is longer.
    """
    family, context = FAMILIES[recipe.model.family], recipe.data.context
    if (most := family.capacity(recipe.model)) is None:
        return 0, 0
    if context > most:
        raise RecipeError(
            f"data.context ({context}) is more than the {most} positions of the model; lower it, or raise "
            "model.max_positions."
        )
    if OBJECTIVES[recipe.objective].reads == "text":
        return 0, 0 if context else most
    with FakeTensorMode(), only_references(), torch.random.fork_rng(devices=()):
        model = family.build(recipe.model, _VOCABULARY, _VOCABULARY, PAD).eval()
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


def check_search(recipe: Recipe) -> None:
    """Raises RecipeError for what `[search]` asks of a model that writes and its family cannot do."""
    family, search = FAMILIES[recipe.model.family], recipe.search
    if search == SearchConfig() or family.kind not in ("encoder-decoder", "mask-predictor"):
        return
    try:
        search_of(search, step_by_step=family.step_by_step)
    except ModelError as error:
        raise RecipeError(f"[search]: {error}") from None
    if search.coverage and not family.cross_attention(recipe.model)[0]:
        raise RecipeError(
            f"[search] coverage = {search.coverage:g}: counts what attention has read, and {recipe.model.family} does "
            "not look at the source; leave coverage out."
        )
    if search.shortlist:
        raise RecipeError(
            "[search] shortlist = true: a bundle has no shortlist when it is made; leave it out here, let the bundle "
            "learn one (`regard shortlist`), and translate with --shortlist."
        )


def check_shortest(recipe: Recipe, valid: Store) -> None:
    """Raises RecipeError where `[search]` asks for more tokens than it permits for a short line of the dev set."""
    side, search = valid.target if recipe.data.texts else valid.source, recipe.search
    if FAMILIES[recipe.model.family].kind != "encoder-decoder" or not (search.min_length and len(valid)):
        return
    line = int(np.argmin(side.lengths))
    if search.min_length > (most := int(side.lengths[line]) + search.extra_length):
        pair = valid.source_text(line), valid.target_text(line)
        where = line_of(recipe.corpus, pair, valid=bool(recipe.data.valid_files))
        raise RecipeError(
            f"[search] min_length = {search.min_length}: {where} permits at most {most} tokens (its own "
            f"{side.lengths[line]} and extra_length = {search.extra_length}); lower min_length or raise extra_length."
        )


def check_tests(recipe: Recipe) -> None:
    """Raises DataError for a test set whose file is not there, and for metrics that there are not."""
    for name, files in recipe.data.test.items():
        for file in files.files:
            if not Path(file).is_file():
                raise DataError(f"{file}: no such file, but data.test.{name} names it; correct or remove it.")
    if recipe.data.metrics and not recipe.data.trees:
        from .evaluate import wanted_of

        wanted_of(recipe.data.metrics)
