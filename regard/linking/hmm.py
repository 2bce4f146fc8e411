"""A word's translation depends on the word it is linked to, and its link on the link before: a hidden Markov model.

Vogel, Ney and Tillmann 1996, "HMM-based word alignment in statistical translation": the chance that target word t_j
comes from source position i is p(t_j | s_i), times that of the jump from the position of the word before. A word that
comes from nowhere keeps that position (Och and Ney 2003). How far a link jumps depends on the word that it leaves, too
(X. He 2007, "Using word-dependent transition models in HMM based word alignment for statistical machine translation").
It is attention with one query a word: the scores are a table of words, and the weights are what is left when all ways
through the line have been summed. One model reads the source and writes the target, another does the reverse; Liang,
Taskar and Klein 2006, "Alignment by agreement", learn both at once from the product of their weights, so that a link
counts as far as both believe in it.

Sizes: N pairs of lines, S positions that may be looked at, T words that are written, V words of a language.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .corpus import Corpus, Group, Ints

Floats = NDArray[np.float32]
Sums = NDArray[np.float64]

NOWHERE = 0.2
"""The chance that a word comes from nowhere; the best of 0.01, 0.05 and 0.2 on the Chinese-English gold set."""
NEAR, EVIDENCE = 5, 5.0
"""Jumps up to this far are learnt for each word, longer ones together; and how many jumps of its own weigh as much as
those of all words. Both were chosen on the Chinese-English gold set (docs/log.md)."""
_FAR = 200  # a longer jump counts as one of this length
_KINDS = 2 * NEAR + 3  # of jumps: each that is near, and all that are far, to either side
_KIND = np.clip(np.arange(-_FAR, _FAR + 1) + NEAR + 1, 0, _KINDS - 1)  # which kind each jump is of
_LEAST = np.float32(1e-9)  # the chance of a translation that was never believed in: no line is impossible


@dataclass
class Jumps:
    """How far the next link is from the one before."""

    chances: Sums  # (2 FAR + 1,): of each jump, in any unit
    likelier: Floats  # (V, KINDS): how many times likelier than after any word each kind is after this one


def _jumps(words: int) -> Jumps:
    """What is thought before anything is learnt: one word on is likeliest, whatever word is left."""
    chances = np.asarray((1.0 + np.abs(np.arange(-_FAR, _FAR + 1) - 1.0)) ** -1.5)
    return Jumps(chances, np.ones((words, _KINDS), np.float32))


@dataclass
class Direction:
    """What one of both models has learnt."""

    translations: Floats  # (K,): of each pair of words, the chance of the word that is written
    unlinked: Floats  # of each word that is written, its share among those that come from nowhere
    jumps: Jumps | None = None  # None: every position is as likely (IBM model 1, Brown et al. 1993)


@dataclass
class Counted:
    """What is counted in one pass, to learn from."""

    unlinked: Sums
    leaving: Sums  # (V · KINDS,): jumps of each kind from each word
    jumps: Sums = field(default_factory=lambda: np.zeros(2 * _FAR + 1))

    @classmethod
    def nothing(cls, written: int, read: int) -> Counted:
        """Before the first line, of so many words that are written and that are looked at."""
        return cls(np.zeros(written), np.zeros(read * _KINDS))


@dataclass(frozen=True)
class Weights:
    """Of each word that is written, how much of it comes from each position, and from nowhere; they sum to 1."""

    positions: Floats  # (N, T, S)
    nowhere: Floats  # (N, T)


def _reach(positions: int) -> NDArray[np.int64]:
    """(S, S): which jump leads from one position to another."""
    at = np.arange(positions)
    return np.asarray(np.clip(at[None] - at[:, None], -_FAR, _FAR) + _FAR)


def _first(positions: int) -> NDArray[np.int64]:
    """(S,): which jump leads from before the line to each position."""
    return np.asarray(np.clip(np.arange(positions) + 1, 0, _FAR) + _FAR)


def weigh(
    written: Floats, unlinked: Floats, jumps: Jumps | None, read: Ints, counted: Counted | None = None
) -> Weights:
    """Weights (N, T, S) by forward and backward sums, each step scaled to sum to 1.

    `written` (N, T, S) is the chance of each word given each position, `unlinked` (N, T) that of each word from
    nowhere; `read` (N, S) are the words that may be looked at. What jumps were made is added to `counted`.
    """
    _, words, positions = written.shape
    some, none = np.float32(1 - NOWHERE), np.float32(NOWHERE)
    if jumps is None:
        linked, nowhere = written * (some / positions), none * unlinked
        total = linked.sum(axis=2) + nowhere
        return Weights(linked / total[..., None], nowhere / total)
    reach, first = _reach(positions), _first(positions)
    kinds = _KIND[reach]
    move = jumps.chances[reach].astype(np.float32) * jumps.likelier[read[..., None], kinds]  # (N, S, S)
    move *= some / move.sum(axis=2, keepdims=True)
    begin = (jumps.chances[first] / jumps.chances[first].sum()).astype(np.float32)
    written = np.ascontiguousarray(written.transpose(1, 0, 2))  # (T, N, S)
    unlinked = none * np.ascontiguousarray(unlinked.T)[..., None]  # (T, N, 1)
    linked, at, scales = np.empty_like(written), np.empty_like(written), np.empty_like(unlinked)
    for j in range(words):
        before = (at[j - 1][:, None] @ move)[:, 0] if j else some * begin
        linked[j] = before * written[j]
        here = linked[j] + (at[j - 1] if j else begin) * unlinked[j]
        scales[j] = here.sum(axis=1, keepdims=True)
        linked[j] /= scales[j]
        at[j] = here / scales[j]
    after = np.ones_like(written[0])
    came = np.empty_like(written)
    for j in reversed(range(words)):
        linked[j] *= after
        came[j] = written[j] * after / scales[j]
        if j:
            after = (move @ came[j][..., None])[..., 0] + after * (unlinked[j] / scales[j])
    if counted is not None:
        made = move * (at[:-1].transpose(1, 2, 0) @ came[1:].transpose(1, 0, 2))
        counted.jumps += np.bincount(reach.ravel(), made.sum(axis=0).ravel(), len(counted.jumps))
        counted.jumps += np.bincount(first, linked[0].sum(axis=0), len(counted.jumps))
        _count(counted.leaving, read[..., None] * _KINDS + kinds, made)
    weights = linked.transpose(1, 0, 2)
    return Weights(weights, np.maximum(1 - weights.sum(axis=2), 0))


class Linker:
    """Both directions of a corpus, and what they learn from each other."""

    def __init__(self, corpus: Corpus) -> None:
        """Every position is as likely as any other, and every translation, but for words that are spelt alike."""
        self.corpus = corpus
        targets, sources = corpus.target_words, corpus.source_words
        self.there = Direction(corpus.alike / np.float32(targets), _even(targets))
        self.back = Direction(corpus.alike / np.float32(sources), _even(sources))

    def learn_jumps(self) -> None:
        """From now on, words that stand together are likely to be linked to words that do."""
        self.there.jumps = _jumps(self.corpus.source_words)
        self.back.jumps = _jumps(self.corpus.target_words)

    def weights(self, group: Group, counted: tuple[Counted, Counted] | None = None) -> tuple[Weights, Weights]:
        """Those of the target's words, and of the source's: (N, T, S) and (N, S, T)."""
        there, back = counted or (None, None)
        met = group.met
        written = self.there.translations[met] + _LEAST
        forth = weigh(written, self.there.unlinked[group.target], self.there.jumps, group.source, there)
        written = np.ascontiguousarray((self.back.translations[met] + _LEAST).transpose(0, 2, 1))
        return forth, weigh(written, self.back.unlinked[group.source], self.back.jumps, group.target, back)

    def learn(self) -> None:
        """One pass over the corpus (expectation and maximisation), links counted by the product of both weights."""
        corpus = self.corpus
        links = np.zeros(len(corpus.source))
        sizes = corpus.target_words, corpus.source_words
        there, back = Counted.nothing(*sizes), Counted.nothing(*sizes[::-1])
        for group in corpus.groups:
            forth, reverse = self.weights(group, (there, back))
            product = forth.positions * reverse.positions.transpose(0, 2, 1)
            _count(links, group.met, product)
            _count(there.unlinked, group.target, forth.nowhere)
            _count(back.unlinked, group.source, reverse.nowhere)
        self.there = _learnt(self.there, links, corpus.source, there)
        self.back = _learnt(self.back, links, corpus.target, back)


def _count(sums: Sums, places: NDArray[np.int64] | NDArray[np.int32], what: Floats) -> None:
    """Add each number to the sum at its place. NumPy is forty times as fast where both have one type."""
    np.add.at(sums, places.ravel(), what.ravel().astype(np.float64))


def _even(words: int) -> Floats:
    return np.full(words, 1 / words, np.float32)


def _learnt(before: Direction, links: Sums, given: NDArray[np.int32], counted: Counted) -> Direction:
    """The likeliest model of what was counted; `given` is the word of each pair that the other is a translation of."""
    of_each = np.maximum(np.bincount(given, links), 1e-12)
    unlinked = counted.unlinked + 1e-3
    learnt = Direction((links / of_each[given]).astype(np.float32), (unlinked / unlinked.sum()).astype(np.float32))
    if before.jumps is not None:
        learnt.jumps = _learnt_jumps(counted)
    return learnt


def _learnt_jumps(counted: Counted) -> Jumps:
    """A word with few jumps of its own jumps as all do."""
    leaving = counted.leaving.reshape(-1, _KINDS)
    kinds = leaving.sum(axis=0) + 1.0
    kinds /= kinds.sum()
    chances = (leaving + EVIDENCE * kinds) / (leaving.sum(axis=1, keepdims=True) + EVIDENCE)
    return Jumps(counted.jumps + counted.jumps.sum() * 1e-5 + 0.1, (chances / kinds).astype(np.float32))
