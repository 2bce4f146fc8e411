"""Questions answered by a reader: the best span of a passage, or none where its end is likelier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from regard.errors import ModelError
from regard.language.open import Pipeline, open_bundle
from regard.recipe import Recipe
from regard.text import END, Tokenizer

from . import family
from .lines import Window, windows_of
from .model import LONGEST, PASSAGE, SpanReader, best_span, scores_of_rows
from .squad import Question


@dataclass(frozen=True)
class Answer:
    """What a reader finds in a passage; `text` is empty where it finds no answer."""

    text: str
    start: int  # in characters of the passage, 0 for no answer
    end: int  # behind the last character
    probability: float  # of this start and this end, in the part of the passage where they stand
    margin: float  # by how much the best span's score is above that of no answer

    def to_dict(self) -> dict[str, str | int | float]:
        """Plain values for JSON."""
        return dict(vars(self))


def answer(
    bundle: str | Path | Pipeline,
    questions: Sequence[Question],
    *,
    threshold: float = 0.0,
    always: bool = False,
    longest: int = LONGEST,
    precision: str = "auto",
    device: str = "cpu",
) -> list[Answer]:
    """The answer to each question: the span of at most `longest` tokens with the highest score of start and end.

    None where its margin is not above the `threshold`, but with `always` a span in any case, as SQuAD 1.1 wants it.
    Raises ModelError for a bundle that is no reader, DataError for a question that is too long.
    """
    if longest < 1:
        raise ModelError(f"longest is {longest}; it must be at least 1 token.")
    family.add()
    opened = open_bundle(bundle, ["span-reader"], device=device)
    model = cast(SpanReader, opened.model_for(precision))
    return answered(model, opened.recipe, opened.source, questions, -np.inf if always else threshold, longest)


def answered(
    model: SpanReader,
    recipe: Recipe,
    tokenizer: Tokenizer,
    questions: Sequence[Question],
    threshold: float = 0.0,
    longest: int = LONGEST,
) -> list[Answer]:
    """The same of a model that is at hand."""
    windows = windows_of(tokenizer, questions, longest_line(recipe), PASSAGE)
    found: list[list[tuple[Window, NDArray[np.float64]]]] = [[] for _ in questions]
    order = sorted(range(len(windows)), key=lambda i: len(windows[i].ids))  # alike ones together, to pad less
    for i, scores in zip(order, scores_of_rows(model, [[*windows[i].ids, END] for i in order]), strict=True):
        found[windows[i].question].append((windows[i], scores))
    return [_best(q.passage, each, threshold, longest) for q, each in zip(questions, found, strict=True)]


def longest_line(recipe: Recipe) -> int:
    """The most tokens of a question and its passage, their end among them: a longer passage is read in parts."""
    capacity = recipe.model.max_positions if recipe.model.positions == "learned" else recipe.data.filters.max_length
    return int(min(capacity, recipe.data.filters.max_length))


def _best(passage: str, parts: Sequence[tuple[Window, NDArray[np.float64]]], threshold: float, longest: int) -> Answer:
    """Of all parts of a passage the best span, against the part that is the least sure of having none."""
    spans = [(*best_span(scores, window.first, longest), window, scores) for window, scores in parts]
    score, first, last, window, scores = max(spans, key=lambda each: each[0])
    margin = float(score - min(each.sum() for _, each in ((w, s[-1]) for w, s in parts)))
    total = float(np.logaddexp.reduce(scores, axis=0).sum())
    if not margin > threshold:
        return Answer("", 0, 0, float(np.exp(scores[-1].sum() - total)), margin)
    start, end = window.spans[first - window.first][0], window.spans[last - window.first][1]
    text = passage[start:end]
    start += len(text) - len(text.lstrip())  # the space before a word belongs to its token
    text = text.strip()
    return Answer(text, start, start + len(text), float(np.exp(score - total)), margin)
