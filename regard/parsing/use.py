"""What a chart parser's bundle is verified and scored by: see `regard.tasks.engine.Use`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from regard.recipe import Recipe

from .chart import answers as answers
from .judge import judge as judge_trees

Judge = Callable[[Sequence[str], Sequence[Sequence[str]]], tuple[dict[str, object], Iterable[str]]]


def judge(path: Path, recipe: Recipe) -> Judge:
    """Judges trees as the page of targets that are trees does: `regard.parsing.judge`."""
    return partial(judge_trees, path)
