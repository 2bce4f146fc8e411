"""Surveys the corpus of a recipe: its prepared store, or a sample of the raw files that stands for it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from regard.data.reading import pairs_of
from regard.recipe import Recipe
from regard.text import write_lines

from .checks import check_search, check_tests, longest_of
from .prepare import Prepared, check_lines, prepare
from .tokenizers import given_by

Progress = Callable[[str, int], None]
Pair = tuple[str, str]

_SAMPLE = 20_000
"""Pairs that stand for the corpus where it is not prepared."""


@dataclass(frozen=True)
class Survey:
    """What a corpus holds; token counts are an epoch's, ends counted."""

    held: Prepared
    """The store, or that of the sample."""
    tokens: tuple[int, int]
    """Of the source's and the target's vocabulary."""
    pairs: int
    source_tokens: int
    target_tokens: int
    bytes: int
    """Of the store."""
    exact: bool
    """Whether all of it was counted; else these are estimates from the sample."""

    @property
    def longest(self) -> int:
        """Tokens of the longest line of either side, its end counted."""
        train = self.held.train
        return int(max(train.source_lengths.max(), train.target_lengths.max())) + 1


def survey(recipe: Recipe, out: Path, folder: Path, progress: Progress | None) -> Survey:
    """The survey of a recipe's corpus for a run into `out`; a sample, where one is needed, is prepared in `folder`."""
    check_tests(recipe)
    check_search(recipe)
    held = _found(recipe, out)
    if held is None:
        return _of_sample(recipe, folder, progress)
    train = held.train
    return Survey(
        held,
        (len(held.source_tokenizer), len(held.target_tokenizer)),
        len(train),
        int(train.source_lengths.sum()) + len(train),
        int(train.target_lengths.sum()) + len(train),
        _size(train.path.parent),
        exact=True,
    )


def _of_sample(recipe: Recipe, folder: Path, progress: Progress | None) -> Survey:
    pairs, sample = _sampled(pairs_of(recipe.data), progress)
    files = [folder / "sample.source", folder / "sample.target"]
    for side, file in enumerate(files):
        write_lines(file, (pair[side] for pair in sample))
    names = {"text": str(files[1])} if recipe.data.texts else {"source": str(files[0]), "target": str(files[1])}
    none = dict.fromkeys(("valid_source", "valid_target", "valid_text", "cache"))
    sampled = recipe.corpus.model_copy(update={**names, **none, "labels": "", "valid_lines": max(1, len(sample) // 10)})
    text = recipe.spelling.model_copy(update={"shrink": True})
    held = prepare(sampled, text, folder, given=given_by(recipe), progress=progress)
    for store in (held.train, held.valid):
        check_lines(store, recipe.corpus, longest_of(recipe), valid=False)
    # What the subwords were not learnt from tells how many tokens a line has: what they were learnt from has fewer.
    unseen, share = held.valid, pairs / len(sample)
    kept = pairs * held.report.kept / held.report.read
    if not recipe.data.valid_files:
        kept -= min(recipe.data.valid_lines, pairs / 10)
    whole = recipe.text.shrink and pairs <= _SAMPLE
    source, target = (
        len(learnt) if whole or kind in ("characters", "words") else recipe.text.size
        for learnt, kind in (
            (held.source_tokenizer, recipe.text.kind),
            (held.target_tokenizer, recipe.text.target_kind or recipe.text.kind),
        )
    )
    return Survey(
        held,
        (source, target),
        round(kept),
        round(kept * (float(unseen.source_lengths.mean()) + 1)),
        round(kept * (float(unseen.target_lengths.mean()) + 1)),
        round(_size(held.train.path.parent) * share),
        exact=False,
    )


class _NotThere(Exception):  # noqa: N818  (it is no error)
    """Something would have to be prepared."""


def _found(recipe: Recipe, out: Path) -> Prepared | None:
    """What `prepare` left for exactly these files and settings, or None."""
    if recipe.data.cache is None and not (out / "prepared" / "train").exists():
        return None
    if recipe.data.cache is not None and not Path(recipe.data.cache).is_dir():
        return None

    def stop(what: str, number: int) -> None:
        # `prepare` tells of its progress only when it makes something, and keeps nothing that is cut off.
        raise _NotThere

    try:
        given, longest = given_by(recipe), longest_of(recipe)
        return prepare(recipe.corpus, recipe.spelling, out, given=given, longest=longest, progress=stop)
    except _NotThere:
        return None


def _sampled(pairs: Iterator[Pair], progress: Progress | None) -> tuple[int, list[Pair]]:
    """How many pairs there are, and up to `_SAMPLE` of them, each with the same chance."""
    chance = random.Random(0)
    kept: list[Pair] = []
    count = 0
    for count, pair in enumerate(pairs, start=1):
        if len(kept) < _SAMPLE:
            kept.append(pair)
        elif (place := chance.randrange(count)) < _SAMPLE:
            kept[place] = pair
        if progress is not None and count % 10_000 == 0:
            progress("pairs read", count)
    return count, kept


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
