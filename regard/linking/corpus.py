"""Parallel lines as arrays of word numbers, and every pair of words that meet in a line.

Sizes: N pairs of lines of one shape, S source words, T target words of a line; K pairs of words that meet anywhere.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.errors import DataError
from regard.machine import free_memory

Ints = NDArray[np.int64]
Words = Sequence[Sequence[Hashable]]

LONGEST = 1000
"""Words of a line: what is counted of a pair grows with the product of both lengths."""
MOST_CELLS = 2**31 - 1
"""Words of the source times words of the target, over all lines: they are numbered by 32 bits."""
_BYTES = 64
"""Of memory for each of them while they are numbered; measured with 20 million, rounded up."""
_BYTES_OF_WORD = 1000
"""Of memory for each different word of both sides, for how jumps leave it: arrays of 13 numbers, rounded up."""
_CELLS = 400_000  # of one group: small enough for the processor's cache

SAME, LIKE, LETTERS = 100.0, 30.0, 5
"""How much likelier two words that are spelt alike are to translate each other, before anything is learnt: the same
words (numbers, names, punctuation), and words whose first letters, so many of them, are the same."""


@dataclass(frozen=True)
class Group:
    """Pairs of lines that have as many words as each other."""

    lines: Ints  # (N,): which lines they are
    source: Ints  # (N, S)
    target: Ints  # (N, T)
    met: NDArray[np.int32]  # (N, T, S): the number of the pair of words


@dataclass(frozen=True)
class Corpus:
    """Lines by their shape, and the pairs of words that meet in them."""

    groups: Sequence[Group]
    source: NDArray[np.int32]  # (K,): of each pair of words the source word
    target: NDArray[np.int32]  # (K,): and the target word
    source_words: int
    target_words: int
    alike: NDArray[np.float32]  # (K,): how much likelier each pair of words is than others, by its spelling


def _numbered(lines: Words) -> tuple[list[Ints], list[Hashable]]:
    known: dict[Hashable, int] = {}
    return [np.array([known.setdefault(word, len(known)) for word in line], np.int64) for line in lines], [*known]


def _alike(sources: Ints, targets: Ints, words: tuple[list[Hashable], list[Hashable]]) -> NDArray[np.float32]:
    """(K,) of each pair of words SAME, LIKE or 1; what is no text, such as the number of a token, is like nothing."""
    known: dict[Hashable, int] = {}
    read, written = (np.array([known.setdefault(word, len(known)) for word in side]) for side in words)
    begins: dict[str, int] = {}
    first = np.array([_begin(word, begins, -1 - number) for number, word in enumerate(known)])
    same = read[sources] == written[targets]
    like = first[read][sources] == first[written][targets]
    text = np.array([isinstance(word, str) for word in known])[read][sources]
    return np.where(text & same, SAME, np.where(like & ~same, LIKE, 1.0)).astype(np.float32)


def _begin(word: Hashable, begins: dict[str, int], alone: int) -> int:
    """The number of what a word begins with; `alone` if it is not long enough, or not of letters."""
    long = isinstance(word, str) and len(word) >= LETTERS and word.isalpha()
    return begins.setdefault(str(word)[:LETTERS], len(begins)) if long else alone


def _shapes(sources: Words, targets: Words) -> dict[tuple[int, int], list[int]]:
    """Lines with something on both sides, by how many words they have."""
    shapes: dict[tuple[int, int], list[int]] = {}
    for line, (source, target) in enumerate(zip(sources, targets, strict=True)):
        if max(len(source), len(target)) > LONGEST:
            raise DataError(
                f"line {line + 1:,} has {len(source):,} and {len(target):,} words; at most {LONGEST:,} can be linked. "
                "Leave the line out or cut it into sentences."
            )
        if source and target:
            shapes.setdefault((len(source), len(target)), []).append(line)
    cells = sum(s * t * len(found) for (s, t), found in shapes.items())
    if cells > (most := min(MOST_CELLS, free_memory() // _BYTES)):
        raise DataError(
            f"these lines have {cells:,} pairs of a source and a target word; {most:,} are the most that this machine "
            "has memory for now. Give fewer lines, or shorter ones."
        )
    if not cells:
        raise DataError("there is no pair of lines with a word on both sides, so there is nothing to learn from.")
    return shapes


def corpus_of(sources: Words, targets: Words) -> Corpus:
    """Arrays of words of both sides; DataError for lines that are too long or too many, and for none."""
    shapes = _shapes(sources, targets)
    source, read = _numbered(sources)
    target, written = _numbered(targets)
    target_words = len(written)
    if (words := len(read) + target_words) > (most := free_memory() // _BYTES_OF_WORD):
        raise DataError(
            f"these lines have {words:,} different words on both sides together; {most:,} are the most that this "
            "machine has memory for now. Give fewer lines, or text whose punctuation stands apart."
        )
    parts: list[tuple[Ints, Ints, Ints]] = []
    for (s, t), lines in sorted(shapes.items()):
        step = max(1, _CELLS // max(s, t) ** 2)  # as jumps from each position to each other one are counted, too
        for start in range(0, len(lines), step):
            part = lines[start : start + step]
            parts.append((np.array(part), np.stack([source[i] for i in part]), np.stack([target[i] for i in part])))
    keys = [(a[:, None, :] * target_words + b[:, :, None]).ravel() for _, a, b in parts]
    pairs, numbers = np.unique(np.concatenate(keys), return_inverse=True)
    ends = np.cumsum([len(key) for key in keys])[:-1]
    met = np.split(numbers.astype(np.int32), ends)
    groups = [
        Group(lines, a, b, each.reshape(len(lines), b.shape[1], a.shape[1]))
        for (lines, a, b), each in zip(parts, met, strict=True)
    ]
    of_source, of_target = np.divmod(pairs, target_words)
    alike = _alike(of_source, of_target, (read, written))
    return Corpus(groups, of_source.astype(np.int32), of_target.astype(np.int32), len(read), target_words, alike)
