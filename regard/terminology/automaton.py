"""Phrases that must or must not occur in a text, followed token by token whatever tokens spell it.

A finite automaton over bytes (Aho and Corasick 1975) reads what each token spells, so a word is found in every
segmentation, spelt in bytes too. Before each change between word and non-word characters it reads an edge, and a phrase
that begins or ends with a word character asks for an edge there: "in" is not found in "Minute".

Sizes: Q states of the automaton, V vocabulary, M = 2^required sets of phrases met.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from regard.search.constraints import FAR

MOST = 8  # required phrases of one line: a search tells every set of them apart
# What is read besides bytes: the edge of a word, and the end of the text, which is an edge where a word ends.
_EDGE, _END = 256, 257


def _is_word(byte: int, before: bool) -> bool:
    """Whether the character that this byte begins belongs to words that spaces part; inside of one: as it began."""
    if byte < 0x80:
        return chr(byte).isalnum() or byte == ord("_")
    if byte < 0xC0:
        return before
    return 0xC3 <= byte <= 0xE1  # letters from Latin-1 to Thai; then punctuation and scripts without spaces


class Spelling:
    """What each id of a vocabulary spells: the bytes of all tokens as one table."""

    def __init__(self, spellings: Sequence[bytes]) -> None:
        lengths = np.array([len(s) for s in spellings])
        self.order = np.argsort(-lengths, kind="stable")  # the longest first, so that a column is a slice
        self.filled = [int((lengths > c).sum()) for c in range(int(lengths.max(initial=0)))]
        self.bytes = np.full((len(spellings), len(self.filled)), _END, dtype=np.int64)
        for row, i in enumerate(self.order):
            self.bytes[row, : lengths[i]] = list(spellings[i])


class Phrases:
    """Required and forbidden phrases over a vocabulary. A hypothesis is at (state, met); `met` has a bit a phrase."""

    def __init__(
        self,
        spelling: Spelling,
        required: Sequence[str],
        forbidden: Sequence[str] = (),
        always: NDArray[np.int32] | None = None,
    ) -> None:
        """`always`: of a search over fewer tokens than all, those that are among them in any case."""
        self.full = (1 << len(required)) - 1
        table, gains, banned = _machine(required, forbidden)
        states, vocabulary = len(table), len(spelling.order)
        after = np.repeat(np.arange(states)[:, None], vocabulary, 1)  # (Q, V)
        gained = np.zeros((states, vocabulary), dtype=np.int64)
        for column, count in enumerate(spelling.filled):
            here, read = after[:, :count], spelling.bytes[None, :count, column]
            gained[:, :count] |= gains[here, read]
            after[:, :count] = table[here, read]
        self.after, self.gained = np.empty_like(after), np.empty_like(gained)
        self.after[:, spelling.order], self.gained[:, spelling.order] = after, gained
        # The end of the text is an edge too.
        self.closing: NDArray[np.int64] = gains[:, _END]
        self.closes: NDArray[np.bool_] = ~banned[table[:, _END]]
        self.stays: NDArray[np.bool_] = ~banned
        self.tokens: list[int] = []  # what such a search needs besides, so that it can always end with everything met
        among = np.arange(vocabulary)
        if always is not None:
            self.tokens = self._nearer() if required else []
            among = np.union1d(always, np.array(self.tokens, dtype=np.int64))
        self.distance = self._distances(among)

    def move(self, state: int, met: int, token: int) -> tuple[int, int]:
        """Where a hypothesis is after one more token."""
        return int(self.after[state, token]), met | int(self.gained[state, token])

    def _nearer(self) -> list[int]:
        """Tokens that are in a phrase, or that one may begin in or end in."""
        moved = self.after != np.arange(len(self.after))[:, None]
        inside = (self.after > 1) & moved & self.stays[:, None] & self.stays[self.after]
        return [int(token) for token in np.flatnonzero((inside | (self.gained > 0)).any(0))]

    def _distances(self, among: NDArray[np.int64]) -> NDArray[np.int64]:
        """The fewest of these tokens after which the text may end with everything met (Q, M); FAR: there is no way."""
        masks = np.arange(self.full + 1)
        ends = ((masks[None, :] | self.closing[:, None]) == self.full) & self.closes[:, None]
        distance = np.where(ends, 0, FAR)
        found = np.zeros((len(self.after), len(self.after) * len(masks)), dtype=np.bool_)  # what a state leads to
        np.put_along_axis(found, self.after[:, among] * len(masks) + self.gained[:, among], True, 1)
        starts = np.cumsum([0, *found.sum(1)])[:-1]
        to, gain = np.divmod(np.nonzero(found)[1], len(masks))
        while True:
            onward = np.minimum.reduceat(distance[to[:, None], masks | gain[:, None]], starts, axis=0) + 1
            better = np.where(self.stays[:, None], np.minimum(distance, onward), FAR)
            if (better == distance).all():
                return distance
            distance = better


def occurs(phrase: str, text: str) -> bool:
    """Whether the phrase is in a whole text, as the automaton finds it."""
    return _symbols(phrase) in _symbols(text)


class Terms:
    """Phrases to be found in texts as `occurs` finds them, in a time that does not grow with their number."""

    _BEGIN = 8  # symbols of a term by which it is looked up

    def __init__(self, terms: Iterable[str]) -> None:
        self._numbers: dict[str, list[int]] = {}
        for number, term in enumerate(terms):
            self._numbers.setdefault(_symbols(term), []).append(number)
        self._lengths: dict[str, set[int]] = {}
        for term in self._numbers:
            self._lengths.setdefault(term[: self._BEGIN], set()).add(len(term))
        self._begins = {len(begin) for begin in self._lengths}

    def in_text(self, text: str) -> list[int]:
        """The numbers of the terms that occur, in order."""
        read = _symbols(text)
        found = {
            read[start : start + length]
            for start in range(len(read))
            for begin in self._begins
            for length in self._lengths.get(read[start : start + begin], ())
        }
        return sorted(number for term in found for number in self._numbers.get(term, ()))


def _symbols(phrase: str) -> str:
    """The symbols that the automaton reads of a phrase, as characters, with its edges."""
    found: list[int] = []
    word = False
    for byte in phrase.encode():
        now = _is_word(byte, word)
        # What stands before a phrase that begins with a sign is not asked.
        found += [_EDGE, byte] if now != word else [byte]
        word = now
    return "".join(map(chr, [*found, _EDGE] if word else found))


def _machine(
    required: Sequence[str], forbidden: Sequence[str]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Next state (Q, 258) by byte, the edge of an end at the last; bits gained on the way (Q, 258); forbidden (Q,).

    A state is twice a node of the trie, plus one after a word character; a text begins in state 0.
    """
    children: list[dict[int, int]] = [{}]
    bits, bad = [0], [False]
    for number, phrase in enumerate([*required, *forbidden]):
        node = 0
        for symbol in map(ord, _symbols(phrase)):
            if symbol not in children[node]:
                children[node][symbol] = len(children)
                children.append({})
                bits.append(0)
                bad.append(False)
            node = children[node][symbol]
        if number < len(required):
            bits[node] |= 1 << number
        else:
            bad[node] = True
    go = [[0] * 257 for _ in children]
    fallback = [0] * len(children)
    waiting = deque([0])
    while waiting:
        node = waiting.popleft()
        bits[node] |= bits[fallback[node]]
        bad[node] |= bad[fallback[node]]
        go[node] = list(go[fallback[node]]) if node else go[0]
        for symbol, child in children[node].items():
            fallback[child] = go[fallback[node]][symbol] if node else 0
            go[node][symbol] = child
            waiting.append(child)

    edges, ends, states = np.array(go), np.array(bad), np.arange(2 * len(go))
    start, word = np.divmod(states, 2)
    words = np.array([[s < 256 and _is_word(s, before) for s in range(258)] for before in (False, True)])
    now = words[word]  # (Q, 258): whether a word goes on or begins
    nodes, gains, symbols = np.repeat(start[:, None], 258, 1), np.zeros(now.shape, dtype=np.int64), np.arange(258)
    # An edge is read first where words begin or end; where a forbidden phrase is complete it stays so.
    for reading, is_read in ((_EDGE, now != word[:, None]), (np.minimum(symbols, _EDGE), symbols < 256)):
        moves = is_read & ~ends[nodes]
        nodes = np.where(moves, edges[nodes, reading], nodes)
        gains |= np.where(moves, np.array(bits)[nodes], 0)
    table = np.where(ends[start][:, None], states[:, None], 2 * nodes + now)
    return table, gains, ends[start]
