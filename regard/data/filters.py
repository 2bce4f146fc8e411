"""Filters that drop pairs a model should not learn from, and count what they dropped and why."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

_UNSPACED = "\u2e80-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORDS = re.compile(rf"(?=\w)[{_UNSPACED}]|[^\W_{_UNSPACED}]+")
"""Words, and each character of Chinese and Japanese; punctuation is neither."""


@dataclass
class Report:
    """How many pairs were read and kept; for each reason, how many were dropped and the first line it happened on."""

    read: int = 0
    kept: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    examples: dict[str, int] = field(default_factory=dict)

    def count(self, line: int, reason: str | None) -> None:
        """Note that the pair of this line (counted from 1) was kept (None) or dropped."""
        self.read += 1
        if reason is None:
            self.kept += 1
            return
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
        self.examples.setdefault(reason, line)

    def add(self, later: Report) -> None:
        """Count in what happened to the lines after these."""
        self.read += later.read
        self.kept += later.kept
        for reason, count in later.dropped.items():
            self.dropped[reason] = self.dropped.get(reason, 0) + count
            self.examples.setdefault(reason, later.examples[reason])

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; the inverse is `Report(**values)`."""
        return {"read": self.read, "kept": self.kept, "dropped": dict(self.dropped), "examples": dict(self.examples)}

    def __str__(self) -> str:
        """One line for people."""
        text = f"{self.read:,} pairs read, {self.kept:,} kept"
        if not self.dropped:
            return text
        reasons = (f"{count:,} {reason} (line {self.examples[reason]:,})" for reason, count in self.dropped.items())
        return f"{text}; dropped: {', '.join(reasons)}"


class Repeats:
    """Which pairs of a corpus occurred before; remembers what it has seen."""

    def __init__(self) -> None:
        # A 64-bit hash instead of the text: among 10^8 different pairs, a false alarm has a chance of 3 in 10,000.
        self._seen: set[int] = set()

    def again(self, source: str, target: str) -> bool:
        """Whether this pair, both sides alike, was asked about before."""
        digest = blake2b(f"{source}\0{target}".encode(), digest_size=8).digest()
        key = int.from_bytes(digest, "little")
        if key in self._seen:
            return True
        self._seen.add(key)
        return False


class Overlap:
    """Text that is not to be learnt from: whether a line has so many words in a row with one of its lines.

    Case and punctuation do not count, and a character of a script without spaces is a word. Of a line with fewer words
    all of them are compared with all those of a line.
    """

    def __init__(self, lines: Iterable[str], words: int) -> None:
        self._words = words
        self._runs: set[tuple[str, ...]] = set()
        for line in lines:
            found = _words_of(line)
            self._runs.update(tuple(found[i : i + words]) for i in range(max(1, len(found) - words + 1)) if found)
        self._first = {run[0] for run in self._runs}

    def __contains__(self, line: str) -> bool:
        found = _words_of(line)
        if len(found) < self._words:
            return tuple(found) in self._runs
        # Almost all runs begin with a word that none of ours begins with: so the others need not be made.
        return any(
            word in self._first and tuple(found[i : i + self._words]) in self._runs for i, word in enumerate(found)
        )


def _words_of(line: str) -> list[str]:
    return _WORDS.findall(line.lower())
