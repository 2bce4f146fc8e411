"""Pairs that an adapter learns from: some held out, the others in batches, whose order can be taken up again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from regard.data.batches import Batch, assembled
from regard.train.checkpoint import Event

Ids = tuple[list[int], list[int]]
"""Of a pair, the tokens of source and target without their ends."""


@dataclass(frozen=True)
class Examples:
    """Pairs to learn from, and pairs to judge by."""

    train: list[Ids]
    held_out: list[Ids]

    @classmethod
    def of(cls, pairs: Sequence[Ids], held_out: int, seed: int) -> Examples:
        """A tenth of the pairs is held out, at most so many; drawn by the seed."""
        order = np.random.default_rng(seed).permutation(len(pairs)).tolist()
        some = min(held_out, len(pairs) // 10)
        return cls([pairs[i] for i in order[some:]], [pairs[i] for i in order[:some]])


def batches(pairs: Sequence[Ids], tokens: int, draw: np.random.Generator) -> Iterator[Batch]:
    """All pairs once, in batches of so many tokens of a side; neighbours in length together, batches in any order."""
    order = sorted(draw.permutation(len(pairs)).tolist(), key=lambda i: sum(map(len, pairs[i])))
    cuts: list[list[int]] = [[]]
    sizes = [0, 0]
    for i in order:
        more = [len(side) + 1 for side in pairs[i]]
        sizes = [size + one for size, one in zip(sizes, more, strict=True)]
        if cuts[-1] and max(sizes) > tokens:
            cuts.append([])
            sizes = more
        cuts[-1].append(i)
    for at in draw.permutation(len(cuts)).tolist():
        yield batch_of([pairs[i] for i in cuts[at]])


def batch_of(pairs: Sequence[Ids]) -> Batch:
    """Pairs as a pack."""
    none = np.zeros(0, np.int64)
    empty = Batch(np.arange(len(pairs)), none, none, none, none, none, "packed")
    return assembled(empty, [source for source, _ in pairs], [target for _, target in pairs])


class Passes:
    """Batches of pairs, pass after pass; how far they are can be written down and taken up again."""

    def __init__(self, pairs: Sequence[Ids], tokens: int, draw: np.random.Generator) -> None:
        self._pairs, self._tokens, self._draw = pairs, tokens, draw
        self.begun = 0
        """Passes that were begun."""
        self.left: list[Batch] = []
        """What is left of the pass."""
        self._taken, self._state = 0, draw.bit_generator.state

    def take(self) -> Batch:
        """The next batch; a pass is drawn when its first one is taken."""
        if not self.left:
            self.begun, self._taken, self._state = self.begun + 1, 0, self._draw.bit_generator.state
            self.left = [*batches(self._pairs, self._tokens, self._draw)]
        self._taken += 1
        return self.left.pop(0)

    def state(self) -> dict[str, object]:
        """Plain values for JSON."""
        return {"begun": self.begun, "taken": self._taken, "draw": self._state}

    def restore(self, state: Event) -> None:
        """Takes up what `state` wrote down; the generator is left as it is."""
        self.begun, self._taken, self._state = state["begun"], state["taken"], state["draw"]
        if self.begun:
            again = np.random.default_rng()
            again.bit_generator.state = self._state
            self.left = [*batches(self._pairs, self._tokens, again)][self._taken :]
