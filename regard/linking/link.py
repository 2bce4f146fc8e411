"""`regard.link_lines`: which word translates which, learnt from the lines themselves; no bundle is needed.

Lines are read in words, as spaces separate them, in lower case; each character of a script without spaces (Chinese,
Japanese) is a token of its own, and a word has the links of its tokens. The weights of both directions are averaged,
and what is above a threshold is a link.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

import numpy as np

from regard.errors import DataError
from regard.text.sentences import unspaced

from .aer import Link
from .align import Alignment
from .corpus import Ints, Words, corpus_of
from .hmm import Linker

TABLE, JUMPS = 5, 8
"""Passes over the text with a table of words alone, and then with jumps: eight of these were better than four (21.3 and
21.5 % of error on the Chinese-English gold set)."""
THRESHOLD = 0.5
"""Chosen on the Chinese-English gold set (docs/alignment.md)."""


def _tokens(line: str) -> Iterator[tuple[str, int]]:
    """What is looked up of a line, and the number of the word that it stands in."""
    return ((token.lower(), number) for number, word in enumerate(line.split()) for token in _apart(word))


def spaced(line: str) -> str:
    """The line with a space between any two tokens, so that each is a word."""
    return " ".join(token for word in line.split() for token in _apart(word))


def _apart(word: str) -> Iterator[str]:
    """A word's tokens: characters of a script without spaces, and what stands between them."""
    for apart, found in groupby(word, unspaced):
        together = "".join(found)
        yield from together if apart else (together,)


def learnt(sources: Words, targets: Words, *, progress: Callable[[str], None] = lambda what: None) -> Linker:
    """Both models, learnt from lines of tokens; `progress` hears of each pass. Raises DataError as `corpus_of` does."""
    progress("numbering words")
    linker = Linker(corpus_of(sources, targets))
    for number in range(TABLE + JUMPS):
        if number == TABLE:
            linker.learn_jumps()
        progress(f"pass {number + 1} of {TABLE + JUMPS}")
        linker.learn()
    return linker


def links_of(linker: Linker, threshold: float, lines: int) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Of the first `lines`, a group at a time: the lines' numbers, and which target and source positions are linked."""
    for group in linker.corpus.groups:
        if group.lines.min() >= lines:
            continue
        forth, back = linker.weights(group)
        mean = (forth.positions + back.positions.transpose(0, 2, 1)) / 2
        rows, targets, sources = np.nonzero((mean > threshold) & (group.lines < lines)[:, None, None])
        yield group.lines[rows], targets, sources


def link_lines(
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    learn: tuple[Sequence[str], Sequence[str]] = ((), ()),
    threshold: float = THRESHOLD,
    progress: Callable[[str], None] = lambda what: None,
) -> list[Alignment]:
    """The links of each pair of lines, in order, by two hidden Markov models that agree (Liang et al. 2006).

    They are learnt from these lines and from those of `learn`: some ten thousand pairs are needed, and more are better.
    A link is kept if the mean of its weights in both directions is above `threshold`; the higher it is, the fewer and
    surer the links. A pair with an empty side has none. Raises DataError for unequal counts, lines of more than 1,000
    tokens, and more text than memory is meant for (see `regard.linking.corpus`).
    """
    if not 0 < threshold < 1:
        raise DataError(f"threshold is {threshold:g}; it must be between 0 and 1, as 0.5.")
    for one, other in ((sources, targets), learn):
        if len(one) != len(other):
            raise DataError(f"{len(one):,} source lines but {len(other):,} target lines; they must be translations.")
    read = [
        [list(_tokens(line)) for line in (*lines, *more)] for lines, more in zip((sources, targets), learn, strict=True)
    ]
    linker = learnt(*([[token for token, _ in line] for line in side] for side in read), progress=progress)
    progress("linking")
    links: list[set[Link]] = [set() for _ in sources]
    for found in links_of(linker, threshold, len(sources)):
        for line, t, s in zip(*found, strict=True):
            links[line].add((read[0][line][s][1], read[1][line][t][1]))
    return [Alignment(tuple(sorted(found)), *pair) for found, *pair in zip(links, sources, targets, strict=True)]
