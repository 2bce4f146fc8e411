"""Rules for a tree written as a line of symbols: brackets balanced, none empty, a symbol for each of so many words.

Under these rules a search ends with a whole tree, whatever the model thinks: a symbol after which none could be
finished, the length limit counted, has no probability.

Sizes: V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MOST_OPEN = 8
"""Brackets opened in a row, so that every tree ends; the trees of CRAFT have no more."""
DEEP = 100
"""Brackets inside of one another."""


@dataclass(frozen=True)
class Symbols:
    """What the tokens of a vocabulary are in a line of symbols; all others are never written."""

    closing: Mapping[int, int]
    """Of each token that opens a bracket, the one that closes it."""
    words: tuple[int, ...]
    """Tokens that stand for a word."""


@dataclass(frozen=True)
class Bracketing:
    """What the hypotheses of one sentence must be: trees over `words` words, in at most `limit` tokens with the end."""

    symbols: Symbols
    words: int
    limit: int

    def needs(self) -> tuple[int, ...]:
        """See `Rules.needs`."""
        return (*self.symbols.closing, *self.symbols.closing.values(), *self.symbols.words)

    def refusal(self) -> str | None:
        """Why no tree can be written, if so."""
        if self.words + 3 > self.limit:
            needed = f"a tree over {self.words} words needs {self.words + 3} tokens"
            return f"{needed}, and at most {self.limit} are allowed"
        return None

    def start(self) -> Standing:
        """A hypothesis of no tokens."""
        return Standing(self, (), self.words, 0, self.limit)


@dataclass(frozen=True)
class Standing:
    """Where one hypothesis stands."""

    rules: Bracketing
    open: tuple[int, ...]
    """Of each open bracket, the token that closes it."""
    words: int
    """Still without a symbol."""
    opened: int
    """Brackets opened since the last word or closed bracket."""
    room: int
    """Tokens that may still come, the end counted."""

    def after(self, token: int) -> Standing:
        """The hypothesis with one more token."""
        closing = self.rules.symbols.closing.get(token)
        if closing is not None:
            return Standing(self.rules, (*self.open, closing), self.words, self.opened + 1, self.room - 1)
        if self.open and token == self.open[-1]:
            return Standing(self.rules, self.open[:-1], self.words, 0, self.room - 1)
        return Standing(self.rules, self.open, self.words - 1, 0, self.room - 1)

    def allowed(self, vocabulary: int, end: int) -> NDArray[np.bool_]:
        """The tokens that may come next (V,)."""
        may = np.zeros(vocabulary, dtype=np.bool_)
        if not self.words and not self.open:
            may[end] = True
            return may
        # A symbol for each word, the end of each bracket, and the end of all.
        spare = self.room - self.words - len(self.open) - 1
        if self.words and spare >= 2 and self.opened < MOST_OPEN and len(self.open) < DEEP:
            may[list(self.rules.symbols.closing)] = True
        if self.words and self.open:
            may[list(self.rules.symbols.words)] = True
        if self.open and not self.opened and (len(self.open) > 1 or not self.words):
            may[self.open[-1]] = True
        return may
