"""The nearest line by edit distance: what a system that only remembers would answer with.

Distances to thousands of lines at once, by bit-parallel dynamic programming (Myers 1999, in the form of Hyyrö 2001):
bit i of `up` (`down`) says that the distance grows (shrinks) by one from row i to row i + 1 of the classic table.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.int32]  # (N, L): N lines of L characters
BITS = 64


class Nearest:
    """Lines to be searched; a line longer than 64 characters is compared by its first 64."""

    def __init__(self, lines: Sequence[str]) -> None:
        """Groups the lines by length, which bounds the distance from below. Raises ValueError if there are none."""
        if not lines:
            raise ValueError("there are no lines to search.")
        by_length: dict[int, list[int]] = {}
        for number, line in enumerate(lines):
            by_length.setdefault(min(len(line), BITS), []).append(number)
        self._groups = {
            length: (np.array(numbers), _codes([lines[number][:BITS] for number in numbers], length))
            for length, numbers in by_length.items()
        }

    def find(self, line: str) -> tuple[int, int]:
        """(number of the nearest line, its distance); of equally near ones that of nearest length, then the first."""
        line = line[:BITS]
        best, where = BITS + 1, -1
        for length in sorted(self._groups, key=lambda length: (abs(length - len(line)), length)):
            if abs(length - len(line)) >= best:
                break
            numbers, codes = self._groups[length]
            far = distances(line, codes)
            if int(far.min()) < best:
                best, where = int(far.min()), int(numbers[far.argmin()])
        return where, best


def distances(line: str, codes: Codes) -> NDArray[np.int64]:
    """Edit distances (N,) of a line of at most 64 characters to lines of equal length, as code points (N, L)."""
    count, length = codes.shape
    if not line:
        return np.full(count, length)
    characters, columns = np.unique(codes, return_inverse=True)
    columns = columns.reshape(codes.shape)
    places = np.array([_places(line, chr(character)) for character in characters], dtype=np.uint64)
    one, last = np.uint64(1), np.uint64(1 << (len(line) - 1))
    up, down = np.full(count, np.uint64((1 << len(line)) - 1)), np.zeros(count, np.uint64)
    distance = np.full(count, len(line))
    for column in range(length):
        equal = places[columns[:, column]]
        vertical = equal | down
        diagonal = (((equal & up) + up) ^ up) | equal  # the sum may wrap: bits past the line's end are never read
        right, left = down | ~(diagonal | up), up & diagonal
        distance += (right & last != 0).astype(np.int64) - (left & last != 0)
        right = (right << one) | one
        up, down = (left << one) | ~(vertical | right), right & vertical
    return distance


def _codes(lines: Sequence[str], length: int) -> Codes:
    return np.array([[ord(character) for character in line] for line in lines], dtype=np.int32).reshape(
        len(lines), length
    )


def _places(line: str, character: str) -> int:
    """Bit i is set where the line has the character at i."""
    return sum(1 << place for place, other in enumerate(line) if other == character)
