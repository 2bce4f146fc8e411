"""Text as one stream: every line with its end, one after another, cut into windows of equal length.

A stream is a ring: a window may begin anywhere, and the first line follows the last end. So each epoch can be cut
elsewhere while every token is predicted exactly once, and the token before the first one is an end.
"""

# N tokens of the stream, ends counted; n tokens of a window

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.store import Side
from regard.text.tokenizer import END

Ints = NDArray[np.int64]


class Windows:
    """A side of a store as windows of `size` tokens, the last one shorter."""

    def __init__(self, side: Side, size: int) -> None:
        """Costs 8 bytes of memory a line."""
        self._side, self._size = side, size
        self._ends: Ints = np.cumsum(side.lengths + 1)  # (lines,) the position behind each line's end
        self.tokens = int(self._ends[-1])

    def __len__(self) -> int:
        return -(-self.tokens // self._size)

    def lengths_of(self, windows: Ints) -> Ints:
        """(windows,) tokens to predict in each."""
        return np.minimum(self._size, self.tokens - windows * self._size)

    def read(self, windows: Ints, offset: int = 0) -> NDArray[Any]:
        """Ids of the windows end to end, each after the token before it: n + 1 a window; window 0 is at `offset`."""
        starts = (windows * self._size + offset).tolist()
        return np.concatenate(
            [
                self._ring(start - 1, start + n)
                for start, n in zip(starts, self.lengths_of(windows).tolist(), strict=True)
            ]
        )

    def _ring(self, start: int, end: int) -> NDArray[Any]:
        """The ids of the ring from `start` to before `end`, which is less than a whole round further."""
        length, start = end - start, start % self.tokens
        found = self._between(start, min(start + length, self.tokens))
        return found if len(found) == length else np.concatenate([found, self._between(0, length - len(found))])

    def _between(self, start: int, end: int) -> NDArray[Any]:
        first, last = np.searchsorted(self._ends, [start, end - 1], side="right").tolist()
        lines = [np.append(self._side.line_ids(line), END) for line in range(first, last + 1)]
        before = int(self._ends[first - 1]) if first else 0
        return np.concatenate(lines)[start - before : end - before].astype(np.int64)
