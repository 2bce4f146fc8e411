"""What is drawn anew every epoch: how lines are cut into tokens, and the mistakes that are put into them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np
from numpy.typing import NDArray

from regard.text.noise import noised
from regard.text.tokenizer import Tokenizer

from .batches import key_of, mixed
from .store import Side

Rows = list[Sequence[int]]


@dataclass(frozen=True)
class Sampling:
    """Other tokens for lines, each epoch, drawn by seed, epoch and line alone."""

    alpha: float  # of subword sampling, see `Tokenizer.sample`; 0: none
    source: Tokenizer
    target: Tokenizer
    longest: tuple[int, int] = (0, 0)  # most tokens of a side, ends counted, beyond which a line stays as in the store
    noise: Mapping[str, float] = field(default_factory=dict)  # see `regard.text.noise`

    def rows(self, sides: tuple[Side, Side], lines: NDArray[np.int64], keys: tuple[int, int]) -> tuple[Rows, Rows]:
        """Ids of both sides of these lines, drawn by a key for each side."""
        made: tuple[Rows, Rows] = [], []
        drawn = ((mixed(lines, key) >> np.uint64(32)).tolist() for key in keys)
        for line, *seeds in zip(lines.tolist(), *drawn, strict=True):
            texts = sides[0].text(line), sides[1].text(line)
            if self.noise:
                texts = noised(texts, self.noise, Random(key_of(*seeds)))
            for which, (text, seed) in enumerate(zip(texts, seeds, strict=True)):
                made[which].append(self._ids(which, sides[which], line, text, seed))
        return made

    def _ids(self, which: int, side: Side, line: int, text: str, seed: int) -> Sequence[int]:
        """A line's ids as drawn; those in the store where more are drawn than a sequence may have."""
        tokenizer, longest = (self.source, self.target)[which], self.longest[which]
        ids = tokenizer.sample(text, alpha=self.alpha, seed=seed) if self.alpha else tokenizer.encode(text)
        return side.line_ids(line).tolist() if 0 < longest < len(ids) + 1 else ids
