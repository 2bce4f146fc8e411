"""A bundle that knows which target tokens go with each source token, learnt from the pairs of lines it is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard import bundle as bundles
from regard.errors import DataError
from regard.tasks.engine import check_kind
from regard.tasks.lines import check_counts
from regard.text import Shortlist

from .lists import learn

_KEPT_BACK, _MOST_KEPT_BACK = 50, 1000
"""One pair of so many, and at most so many, are not learnt from: the list is measured on them."""

Pairs = Sequence[tuple[list[int], list[int]]]


@dataclass(frozen=True)
class Learnt:
    """What a shortlist was learnt from, and what it is like on pairs that it was not learnt from."""

    pairs: int
    vocabulary: int  # target tokens that there are
    measured: int  # pairs that the following is of
    tokens: float  # in the list of a line, on average
    covered: float  # share of the tokens of translations that are in their lines' lists

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dict(vars(self))


def shortlist(
    path: str | Path,
    source: Sequence[str],
    target: Sequence[str],
    *,
    each: int = 100,
    always: int = 100,
    most: int = 500_000,
) -> Learnt:
    """Give the bundle at `path` a shortlist: see `regard.tuning.lists.learn`.

    Of more than `most` pairs, so many are taken from all over; those with an empty side are left out. Raises TextError
    for unequal counts of lines, DataError where there is nothing to learn from, ModelError for a bundle that does not
    translate.
    """
    check_counts(source, target, "target")
    for name, value, least in (("each", each, 1), ("always", always, 0), ("pairs", most, 1)):
        if value < least:
            raise DataError(f"--{name} is {value}; it must be at least {least}.")
    bundle = bundles.load(path)
    check_kind(bundle.recipe, ["encoder-decoder"], bundle.path)
    chosen = [i * len(source) // most for i in range(most)] if len(source) > most else range(len(source))
    ids = [
        side.encode_lines([lines[i] for i in chosen])
        for side, lines in ((bundle.source, source), (bundle.target, target))
    ]
    pairs = [(ours, theirs) for ours, theirs in zip(*ids, strict=True) if ours and theirs]
    if len(pairs) < 2:
        raise DataError(f"{len(pairs)} pairs of lines have text on both sides; there is nothing to learn from.")
    step = max(min(_KEPT_BACK, len(pairs)), len(pairs) // _MOST_KEPT_BACK)
    kept_back = pairs[step - 1 :: step]
    learning = [pair for i, pair in enumerate(pairs, start=1) if i % step]
    found = learn(learning, bundle.source, bundle.target, each=each, always=always)
    bundles.add_shortlist(bundle, found)
    tokens, covered = _measured(found, kept_back)
    return Learnt(len(learning), len(bundle.target), len(kept_back), tokens, covered)


def _measured(found: Shortlist, pairs: Pairs) -> tuple[float, float]:
    lists = [set(found.of(source).tolist()) for source, _ in pairs]
    there = sum(i in own for own, (_, target) in zip(lists, pairs, strict=True) for i in target)
    return sum(map(len, lists)) / len(lists), there / sum(len(target) for _, target in pairs)
