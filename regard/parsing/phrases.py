"""Labelled phrases from a treebank whose every node has a label, such as the Stanford Sentiment Treebank.

Socher et al. (2013) train on every phrase and test on whole sentences; so does what is made of their trees since.
"""

from __future__ import annotations

from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from regard.errors import TextError

from .trees import OUTER, Tree, Word, iter_trees

LONGEST_SWAPPED = 12  #: Words of the longest phrase that may give way to another one.
_NEUTRAL = "2"
_SIDES = {"0": "negative", "1": "negative", _NEUTRAL: "", "3": "positive", "4": "positive"}
_SIZES = (1, 2, 3, 4, 7, LONGEST_SWAPPED)  # the least number of words of each size of phrases
_FREQUENT = 60  # so many words are those that a phrase's grammar can be told by: the, of, is, that, …
_FEWEST = 3  # phrases to choose from, or else a phrase stays

_Node = tuple[str, int, int]


def phrases(
    treebank: str | Path,
    *,
    whole: bool = False,
    binary: bool = False,
    swaps: int = 0,
    share: float | None = None,
    seed: int | None = None,
) -> Iterator[str]:
    """Lines "label text" of every phrase, each different line once; or, `whole`, of the sentences alone, each kept.

    With `binary` labels 0 and 1 are negative, 3 and 4 positive, and what is neutral (2) is left out. Raises TextError
    for brackets that are not balanced, with `binary` for other labels, and for `share` or `seed` without `swaps`.

    Behind them are `swaps` new sentences of each one, with its label. In each some phrases, of about `share` of its
    words (0.3) and one at least, have given way to phrases of the treebank that have the same label, about as many
    words and, where the first word is a frequent one, the same first word. So a classifier meets long sentences that
    it cannot know by heart. A word alone gives way only if it is not neutral (2). The same seed (1) draws the same
    sentences.
    """
    if not swaps and (share is not None or seed is not None):
        raise TextError("A share and a seed say how the new sentences are made; give their number too (--swaps N).")
    seen: set[str] = set()
    sentences = []
    for tree in iter_trees(treebank, as_it_is=True):
        words, nodes = [word.text for word in tree.words()], list(_nodes(tree))
        for label, start, stop in nodes[:1] if whole else nodes:
            line = _line(treebank, label, words[start:stop], binary)
            if line and (whole or line not in seen):
                seen.add(line)
                yield line
        if swaps:
            label, start, stop = nodes[0]
            sentences.append((words, nodes, swaps if _line(treebank, label, words[start:stop], binary) else 0))
    for label, words in _swapped(sentences, 0.3 if share is None else share, Random(1 if seed is None else seed)):
        yield _line(treebank, label, words, binary)


def _swapped(
    sentences: Sequence[tuple[list[str], list[_Node], int]], share: float, draw: Random
) -> Iterator[tuple[str, list[str]]]:
    """Label and words of the new sentences; of each old one its words, its nodes and how many are wanted are given."""
    counts = Counter(word.casefold() for words, _, _ in sentences for word in words)
    frequent = {word for word, _ in counts.most_common(_FREQUENT)}
    others: dict[tuple[str, int, str], list[list[str]]] = defaultdict(list)
    within = []
    for words, ((_, _, end), *nodes), _ in sentences:
        places = []
        for label, start, stop in nodes:
            if stop <= end and stop - start <= min(LONGEST_SWAPPED, end - 1):
                first = words[start].casefold()
                kind = (label, bisect(_SIZES, stop - start), first if first in frequent else "")
                others[kind].append(words[start:stop])
                if stop - start > 1 or label != _NEUTRAL:
                    places.append((start, stop, kind))
        within.append(places)
    for (words, ((label, _, end), *_), wanted), places in zip(sentences, within, strict=True):
        for _ in range(wanted):
            text, left, chosen = words[:end], max(1, int(share * end)), []
            free = [True] * end
            for start, stop, kind in draw.sample(places, len(places)):
                if left > 0 and all(free[start:stop]) and len(others[kind]) >= _FEWEST:
                    free[start:stop] = [False] * (stop - start)
                    chosen.append((start, stop, draw.choice(others[kind])))
                    left -= stop - start
            for start, stop, phrase in sorted(chosen, reverse=True, key=lambda one: one[0]):
                text[start:stop] = phrase
            yield label, text


def _line(treebank: str | Path, label: str, words: Sequence[str], binary: bool) -> str:
    """A line "label text"; empty for what is neutral, if there are two labels."""
    text = " ".join(words)
    if binary:
        if label not in _SIDES:
            raise TextError(f"{treebank}: the label {label!r} of {text[:40]!r} is none of 0 to 4.")
        label = _SIDES[label]
    return f"{label} {text}" if label else ""


def _nodes(node: Tree | Word, start: int = 0) -> Iterator[_Node]:
    """Label, first word and the word behind the last of a node and of all below it, the node's first.

    A bracket that only holds the tree is none.
    """
    if isinstance(node, Word):
        yield node.tag, start, start + 1
        return
    if node.label not in OUTER:
        yield node.label, start, start + len(node.words())
    for child in node.children:
        yield from _nodes(child, start)
        start += 1 if isinstance(child, Word) else len(child.words())
