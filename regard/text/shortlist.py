"""Shortlists: of each source token, the few target tokens that it goes with (`regard.tuning.lists` learns them).

A sentence is then searched over the tokens that its own go with, and a few that may always come, instead of the whole
vocabulary. Sizes: S source vocabulary, T target vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .tokenizer import END

Ids = Sequence[int]


@dataclass(frozen=True)
class Shortlist:
    """Ids of the target's tokens: those that may always come, and end to end those of each source token."""

    always: NDArray[np.int32]
    starts: NDArray[np.int64]  # (S + 1,)
    tokens: NDArray[np.int32]

    def refusal(self, source: int, target: int) -> str | None:
        """None if it fits vocabularies of these sizes, else why not: a file may hold anything."""
        for name, kind in (("always", "int32"), ("starts", "int64"), ("tokens", "int32")):
            array = getattr(self, name)
            if not isinstance(array, np.ndarray) or array.dtype != kind or array.ndim != 1:
                return f"its {name} is not one row of numbers of type {kind}"
        if len(self.starts) != source + 1:
            return f"it has lists of {len(self.starts) - 1} source tokens, and there are {source}"
        if self.starts[0] != 0 or self.starts[-1] != len(self.tokens) or (np.diff(self.starts) < 0).any():
            return "its lists do not lie end to end"
        for ids in (self.always, self.tokens):
            if len(ids) and not (ids.min() >= 0 and ids.max() < target):
                return f"it names a token outside of the target's vocabulary of {target}"
        return None if END in self.always else "its lists lack the end of a line, which must always be possible"

    def of(self, source: Ids, more: Iterable[int] = ()) -> NDArray[np.int32]:
        """What a translation of these tokens may be written with, and `more`: in order, each once."""
        lists = [self.tokens[self.starts[i] : self.starts[i + 1]] for i in set(source)]
        return np.unique(np.concatenate([self.always, np.fromiter(more, np.int32), *lists]))
