"""A translation memory: pairs that were translated before, and those that are like a text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rapidfuzz import fuzz, process

from regard.errors import ModelError, TextError
from regard.text.lines import format_of, read_pairs

Pair = tuple[str, str]
"""The codes of a source and a target language."""
MOST_PAIRS = 500_000
"""Pairs of one direction that are kept in memory."""
MOST_CHARACTERS = 1000
"""Of a text that is looked for, and of one that is found: a longer one is no segment of a memory."""
_LEAST = 60.0  # of 100, below which a text is no help


@dataclass(frozen=True)
class Match:
    """A pair that is like a text."""

    text: str
    translation: str
    similarity: float
    """From 0 to 1: the share of characters that stay in the shortest edit by inserting and deleting."""
    origin: str
    """The memory's file, or "correction"."""

    def to_dict(self) -> dict[str, str | float]:
        """Plain values for JSON."""
        return dict(vars(self))


class Memory:
    """Pairs of one direction. Nothing changes in it, so any number of threads may look into it."""

    def __init__(self, pairs: Iterable[tuple[str, str, str]]) -> None:
        """Of each pair the text, its translation and where it is from."""
        # By their lengths: likeness bounds how much longer one may be, so most are never looked at.
        self._pairs = sorted(pairs, key=lambda pair: len(pair[0].casefold()))
        self._texts = [text.casefold() for text, _, _ in self._pairs]
        self._starts = [0] * (MOST_CHARACTERS + 2)
        for text in self._texts:
            self._starts[min(len(text), MOST_CHARACTERS) + 1] += 1
        for size in range(1, len(self._starts)):
            self._starts[size] += self._starts[size - 1]

    def __len__(self) -> int:
        return len(self._pairs)

    def matches(self, text: str, number: int, taught: Sequence[tuple[str, str]] = ()) -> list[Match]:
        """The pairs whose text is likest, at most so many; those that were taught come before their likes."""
        text = text.strip()
        if not text or len(text) > MOST_CHARACTERS or number < 1:
            return []
        wanted = text.casefold()
        found: dict[tuple[str, str], Match] = {}
        for one, other in taught:
            if (alike := fuzz.ratio(wanted, one.casefold(), score_cutoff=_LEAST)) > 0:
                found[one, other] = Match(one, other, round(alike / 100, 4), "correction")
        # Of two texts of m and n characters, the ratio is at most 2 min(m, n) / (m + n).
        least = int(len(wanted) * _LEAST / (200 - _LEAST))
        most = int(len(wanted) * (200 - _LEAST) / _LEAST) + 1
        first, last = self._starts[least], self._starts[min(most, MOST_CHARACTERS) + 1]
        near = process.extract(
            wanted, self._texts[first:last], scorer=fuzz.ratio, processor=None, score_cutoff=_LEAST, limit=number
        )
        for _, alike, at in near:
            one, other, origin = self._pairs[first + at]
            found.setdefault((one, other), Match(one, other, round(alike / 100, 4), origin))
        return sorted(found.values(), key=lambda match: -match.similarity)[:number]


def memories(files: Sequence[tuple[Path, Pair | None]], pairs: Iterable[Pair]) -> dict[Pair, Memory]:
    """The memory of each pair of languages, of files such as memory.tmx and en-de=memory.tsv.

    A file that names its languages is read for every pair, and must have one of them; another needs its pair named
    where there are several. Raises TextError for what cannot be read, ModelError for a pair that is not served.
    """
    found: dict[Pair, dict[tuple[str, str], str]] = {pair: {} for pair in pairs}
    for file, only in files:
        if only is not None and only not in found:
            raise ModelError(
                f"--memory {'-'.join(only)}={file}: no bundle translates this pair; serve one, or leave it."
            )
        if only is None and format_of(file.name).named_by != "languages" and len(found) > 1:
            raise ModelError(f"--memory {file}: does not say which languages it has; name them: en-de={file}.")
        errors, read = list[TextError](), 0
        for pair in found if only is None else [only]:
            try:
                read += _read(file, pair, found[pair])
            except TextError as error:
                errors.append(error)
        if errors and not read:
            raise errors[0]
    return {pair: Memory((*texts, origin) for texts, origin in known.items()) for pair, known in found.items()}


def _read(file: Path, pair: Pair, into: dict[tuple[str, str], str]) -> int:
    """Adds the pairs of a file, of which the first of two equal ones counts; how many were read."""
    number = 0
    for text, translation in read_pairs(file, languages=pair):
        text, translation = text.strip(), translation.strip()
        if text and translation and max(len(text), len(translation)) <= MOST_CHARACTERS:
            into.setdefault((text, translation), file.name)
            number += 1
        if len(into) > MOST_PAIRS:
            raise ModelError(f"{file}: the memory of {'-'.join(pair)} has more than {MOST_PAIRS:,} pairs; serve fewer.")
    return number
