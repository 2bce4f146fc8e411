"""How well the words of a pair go together, by a small dictionary that is learnt from the corpus itself.

IBM's first model of alignment (Brown et al. 1993) says how likely each word becomes each other one. A pair's likeness
is how much likelier its words are beside each other than anywhere: the mean over the words of both sides of
log (sum over the other side's words of p(word | other) / their number) - log p(word). Pairs put together by chance
show what is none. A model knows the pairs that it learnt from by heart, so a pair is judged by what others taught.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from regard.tuning.lists import first_model

Words = Sequence[str]
_FREQUENT = 50_000  # words of each side that are told apart
_FLOOR = 0.05  # share of a word's chance that needs no other word, so that new words cost its logarithm at most
_RANDOM_PAIRS = 2000


class _Direction:
    """The words of one side as they become those of the other."""

    def __init__(self, pairs: Sequence[tuple[Words, Words]]) -> None:
        self._from, self._into = (_numbered(pair[side] for pair in pairs) for side in (0, 1))
        self._width = len(self._into) + 1
        ids = [(self._ids(self._from, one), self._ids(self._into, other)) for one, other in pairs]
        self._keys, self._chances = first_model([pair for pair in ids if pair[0] and pair[1]], self._width)
        counts = np.bincount([i for _, other in ids for i in other], minlength=self._width)
        self._anywhere = np.maximum(counts, 1) / max(1, counts.sum())

    @staticmethod
    def _ids(known: dict[str, int], found: Words) -> list[int]:
        return [known[word] for word in found if word in known]

    def likeness(self, one: Words, other: Words) -> list[float]:
        """Of each word of the other side that is known, how much likelier it is beside this one."""
        given, words = self._ids(self._from, one), self._ids(self._into, other)
        if not given or not words:
            return []
        keys = np.add.outer(np.array([0, *set(given)]) * self._width, np.array(words))
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        chances = np.where(self._keys[at] == keys, self._chances[at], 0.0)
        beside = chances.sum(0) / len(chances)
        anywhere = self._anywhere[words]
        found: list[float] = np.log((1 - _FLOOR) * beside / anywhere + _FLOOR).tolist()
        return found


class Dictionary:
    """Which words go with which, both ways, and how alike pairs are by chance."""

    def __init__(self, pairs: Sequence[tuple[Words, Words]], others: Sequence[tuple[Words, Words]]) -> None:
        """Learns from the words of `pairs`; lines of `others` put together at random show what chance does."""
        self._ways = _Direction(pairs), _Direction([(target, source) for source, target in pairs])
        draw = random.Random(1)
        chosen = [(draw.choice(others)[0], draw.choice(others)[1]) for _ in range(_RANDOM_PAIRS)]
        by_chance = [found for pair in chosen if (found := self.likeness(*pair)) is not None]
        self._by_chance: NDArray[np.float64] = np.array(by_chance)

    def likeness(self, source: Words, target: Words) -> float | None:
        """How well two lines go together, in nats a word; None: there are no words that the dictionary knows."""
        found = [*self._ways[0].likeness(source, target), *self._ways[1].likeness(target, source)]
        return sum(found) / len(found) if found else None

    def by_chance(self, share: float) -> float:
        """The likeness that this share of pairs put together by chance have at most."""
        return float(np.quantile(self._by_chance, share)) if len(self._by_chance) else -np.inf


def _numbered(lines: Iterable[Words]) -> dict[str, int]:
    """The most frequent words, numbered from 1."""
    counts = Counter(word for line in lines for word in line)
    return {word: number for number, (word, _) in enumerate(counts.most_common(_FREQUENT), start=1)}
