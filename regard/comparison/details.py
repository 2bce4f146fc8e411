"""Where systems differ: by length, by how rare words are, by kinds of errors, and line by line."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from regard.metrics import Counts, likeness
from regard.metrics.lines import words
from regard.server.guard import lost, repeats

LENGTHS = ((1, 10), (11, 20), (21, 30), (31, 40), (41, 60), (61, None))
FREQUENCIES = ((0, 0), (1, 1), (2, 4), (5, 9), (10, 99), (100, 999), (1000, None))


def label(bounds: tuple[int, int | None]) -> str:
    """Bounds as they are shown: "2-4", "1000+"."""
    low, high = bounds
    return f"{low}+" if high is None else f"{low}" if low == high else f"{low}-{high}"


def within(number: int, bounds: tuple[int, int | None]) -> bool:
    """Whether a number lies between bounds, both included."""
    return number >= bounds[0] and (bounds[1] is None or number <= bounds[1])


def by_length(counted: Sequence[Counts], reference: Sequence[str]) -> list[dict[str, object]]:
    """Each system's figure on the lines whose reference has so many words."""
    sizes = [max(1, len(words(line))) for line in reference]
    rows = []
    for bounds in LENGTHS:
        chosen = np.array([number for number, size in enumerate(sizes) if within(size, bounds)], dtype=np.int64)
        if chosen.size:
            scores = [each.of(chosen) for each in counted]
            rows.append({"words": label(bounds), "lines": int(chosen.size), "scores": scores})
    return rows


def by_frequency(
    systems: Sequence[Sequence[str]], reference: Sequence[str], text: Iterable[str]
) -> list[dict[str, object]]:
    """F1 of the words that occur so often in `text`: of what was said and what was right, line by line."""
    often = Counter(word for line in text for word in words(line))
    right = [Counter(words(line)) for line in reference]
    rows = []
    for bounds in FREQUENCIES:

        def chosen(counts: Counter[str], bounds: tuple[int, int | None] = bounds) -> Counter[str]:
            return Counter({word: count for word, count in counts.items() if within(often[word], bounds)})

        wanted = [chosen(counts) for counts in right]
        total = sum(counts.total() for counts in wanted)
        if not total:
            continue
        scores = []
        for lines in systems:
            said = [chosen(Counter(words(line))) for line in lines]
            hit = sum((one & other).total() for one, other in zip(said, wanted, strict=True))
            scores.append(200.0 * hit / (total + sum(counts.total() for counts in said)))
        rows.append({"frequency": label(bounds), "words": total, "scores": scores})
    return rows


def errors(lines: Sequence[str], reference: Sequence[str], source: Sequence[str] | None) -> dict[str, float | None]:
    """Kinds of errors of one system, counted in lines but for the ratio of lengths and the numbers."""
    said, right = [words(line) for line in lines], [words(line) for line in reference]
    pairs, lines_and_right = list(zip(said, right, strict=True)), list(zip(lines, reference, strict=True))
    copied = None
    if source is not None:
        copied = float(sum(h == words(s) != r for (h, r), s in zip(pairs, source, strict=True) if h))
    return {
        "length ratio": sum(map(len, said)) / max(1, sum(map(len, right))),
        "empty lines": float(sum(not h and bool(r) for h, r in pairs)),
        "untranslated copies": copied,
        "repeated n-grams": float(sum(repeats(h) > repeats(r) for h, r in lines_and_right)),
        "lost numbers": float(sum(each[0].isdigit() for h, r in lines_and_right for each in lost(r, h))),
    }


def most_different(systems: Sequence[Sequence[str]], reference: Sequence[str], count: int) -> list[dict[str, object]]:
    """The lines on which the systems lie farthest apart by chrF, the farthest first."""
    utility = likeness("chrf")
    found = []
    for number, (right, *said) in enumerate(zip(reference, *systems, strict=True), start=1):
        if len(set(said)) > 1:
            scores = [utility(line, right) for line in said]
            found.append((max(scores) - min(scores), number, scores))
    found.sort(key=lambda each: (-each[0], each[1]))
    return [
        {
            "line": number,
            "chrf": scores,
            "reference": reference[number - 1],
            "outputs": [s[number - 1] for s in systems],
        }
        for _, number, scores in found[:count]
    ]


def word_diff(line: str, reference: str) -> list[tuple[str, str]]:
    """Pieces of a line against the reference: ("same" | "extra" | "missing", text). Without spaces, characters."""
    spaced = " " in reference or " " in line
    one, other = (text.split(" ") if spaced else list(text) for text in (reference, line))
    pieces: list[tuple[str, str]] = []
    joint = " " if spaced else ""
    for kind, a, b, c, d in difflib.SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        if kind == "equal":
            pieces.append(("same", joint.join(one[a:b])))
            continue
        pieces += [("missing", joint.join(one[a:b]))] if b > a else []
        pieces += [("extra", joint.join(other[c:d]))] if d > c else []
    return pieces
