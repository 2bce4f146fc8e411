"""Gold links beside attention: which words people say belong together, and how well a head finds them.

A link is a pair of word numbers, source and target, from 0; spaces separate words, as in gold sets.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from regard.errors import DataError
from regard.linking.aer import Gold, Link, alignment_error_rate
from regard.text.sentences import words

from .look import Attention, Part, Side


def check_links(gold: Gold, found: Attention) -> None:
    """Raises DataError for words that the lines do not have, and where there is no sure link."""
    most = len(found.source.split()), len(found.target.split())
    for source, target in sorted(gold.possible):
        if source >= most[0] or target >= most[1]:
            raise DataError(
                f"a gold link goes from word {source} of the source to word {target} of the target, counted from 0, "
                f"and they have {most[0]} and {most[1]} words between spaces; if links count from 1, say --gold-base 1."
            )
    if not gold.sure:
        raise DataError("the gold links have no sure one, so no error rate is defined; write one as 0-0.")


def spaced(found: Attention) -> Attention:
    """The same attention, whose words are those that spaces separate."""
    lines = {"encoder": (found.source,) * 2, "cross": (found.target, found.source), "decoder": (found.target,) * 2}
    parts = []
    for part in found.parts:
        rows, columns = lines.get(part.name, ("", found.source or found.target))
        parts.append(replace(part, rows=_spaced(part.rows, rows), columns=_spaced(part.columns, columns)))
    return replace(found, parts=tuple(parts))


def _spaced(side: Side, line: str) -> Side:
    """Words of `regard.text.sentences` put together where no space stands between them."""
    if not side.numbers:
        return side
    starts = [start for start, _ in words(line)]
    between = [word.span() for word in re.finditer(r"\S+", line)]
    texts, numbers, joined = list[str](), list[int](), list[np.ndarray]()
    for text, number, column in zip(side.words, side.numbers, side.shares.T, strict=True):
        at = -1 if number < 0 else next(i for i, (_, end) in enumerate(between) if starts[number] < end)
        if at >= 0 and numbers and numbers[-1] == at:
            joined[-1] = joined[-1] + column
            continue
        texts.append(text if at < 0 else line[slice(*between[at])])
        numbers.append(at)
        joined.append(column)
    return Side(side.names, tuple(texts), np.stack(joined, axis=1), tuple(numbers))


def links_of(part: Part, layer: int = 0, head: int = 0) -> list[Link]:
    """Each target word (row) with the source word that it looks at most in a layer and a head, from 1 (0: mean)."""
    merged = part.merged()
    weights = merged.matrix(layer, head)
    rows, columns = (np.array(side.numbers) for side in (merged.rows, merged.columns))
    spoken = np.flatnonzero(columns >= 0)
    found = []
    for row in np.flatnonzero(rows >= 0):
        best = spoken[weights[row, spoken].argmax()]
        if weights[row, best] > 0:
            found.append((int(columns[best]), int(rows[row])))
    return found


def error_rate(part: Part, gold: Gold, layer: int = 0, head: int = 0) -> float:
    """The alignment error rate, in percent, of the links that a layer and a head show."""
    return alignment_error_rate([links_of(part, layer, head)], [gold], resamples=0)["aer"].value
