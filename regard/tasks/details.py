"""What can be said of a translation beside its text: its words, how sure the model is of each, where each comes from.

Places are characters of the lines as they are: the first of a word and the one behind its last, counted from 0.
Sizes: T target tokens, S source tokens; N target and M source words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Link", "Word", "links_of", "shares_of", "steps_of", "sums_of", "words_of"]

Span = tuple[int, int]
Weights = NDArray[np.float32]


@dataclass(frozen=True)
class Word:
    """A word of a line; see `regard.text.words`."""

    text: str
    start: int
    end: int
    confidence: float | None = None
    """The probability that it is right, see docs/confidence.md; None where it was not asked for."""

    def moved(self, by: int) -> Word:
        """The same word in a line that has so many characters more in front."""
        return Word(self.text, self.start + by, self.end + by, self.confidence)


@dataclass(frozen=True)
class Link:
    """A target word and the source word that the model looks at most for it."""

    source: int
    """The number of the word, from 0."""
    target: int
    weight: float
    """How much of what it looked at was this word, of 1."""


def words_of(text: str, places: Sequence[Span], confidences: Sequence[float] = ()) -> tuple[Word, ...]:
    """The words of a line at these places, with how sure the model is of each if that is given."""
    sure: Sequence[float | None] = confidences or [None] * len(places)
    return tuple(Word(text[start:end], start, end, c) for (start, end), c in zip(places, sure, strict=True))


def sums_of(log_probabilities: Sequence[float], tokens: Sequence[Span], places: Sequence[Span]) -> list[float]:
    """The log-probability of each word, from those of the tokens: all of a word's must be right for the word to be.

    A token of nothing but space belongs to the word behind it; what comes after the last token, the end, to none.
    """
    sums = np.zeros(len(places))
    shares = shares_of(tokens, places) > 0  # (T, N)
    for token, (_, end) in enumerate(tokens):
        behind = (i for i, (start, _) in enumerate(places) if start >= end)
        owners = shares[token].nonzero()[0].tolist() or [*behind][:1]
        sums[owners] += log_probabilities[token]
    found: list[float] = sums.tolist()
    return found


def links_of(
    weights: Weights,
    target_tokens: Sequence[Span],
    source_tokens: Sequence[Span],
    target_words: Sequence[Span],
    source_words: Sequence[Span],
) -> tuple[Link, ...]:
    """A link for each target word that looks at a source word at all, from weights (T, S) between tokens.

    A source word's weight is the sum over its tokens, a target word's the mean over its own; a token that stands in
    several words counts for each by its share of characters.
    """
    if not target_words or not source_words:
        return ()
    to, of = shares_of(target_tokens, target_words), shares_of(source_tokens, source_words)  # (T, N), (S, M)
    merged = (to / np.maximum(to.sum(axis=0), 1e-9)).T @ weights @ of  # (N, M)
    best = merged.argmax(axis=1)
    return tuple(
        Link(int(i), j, round(float(merged[j, i]), 6)) for j, i in enumerate(best.tolist()) if merged[j, i] > 0
    )


def steps_of(layers: Sequence[Weights], rule: str, layer: int) -> Weights:
    """Each layer's weights (H, T + 1, S + 1), a row a step -> (T, S), a row a token; ends are left out, heads averaged.

    The rule says whether a token's row is the step that reads it ("input") or the one that writes it ("output").
    `layer` counts from 1; 0 is the mean of all.
    """
    chosen = layers if layer == 0 else [layers[layer - 1]]
    rows = np.stack([each.mean(axis=0) for each in chosen]).mean(axis=0)
    return np.asarray((rows[1:] if rule == "input" else rows[:-1])[:, :-1], dtype=np.float32)


def shares_of(tokens: Sequence[Span], words: Sequence[Span]) -> NDArray[np.float64]:
    """(tokens, words): how much of a token's characters, spaces aside, stands in each word."""
    starts, ends = np.array(tokens, dtype=np.int64).reshape(-1, 2).T
    firsts, lasts = np.array(words, dtype=np.int64).reshape(-1, 2).T
    common = np.minimum(ends[:, None], lasts) - np.maximum(starts[:, None], firsts)
    kept = np.maximum(common, 0).astype(np.float64)
    shares: NDArray[np.float64] = kept / np.maximum(kept.sum(axis=1, keepdims=True), 1)
    return shares
