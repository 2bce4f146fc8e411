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


def phrases(treebank: str | Path, *, whole: bool = False, binary: bool = False) -> Iterator[str]:
    """Lines "label text" of every phrase, each different line once; or, `whole`, of the sentences alone, each kept.

    With `binary` labels 0 and 1 are negative, 3 and 4 positive, and what is neutral (2) is left out. Raises TextError
    for brackets that are not balanced, and with `binary` for other labels.
    """
    seen: set[str] = set()
    for tree in iter_trees(treebank, as_it_is=True):
        for label, text in [next(_nodes(tree))] if whole else _nodes(tree):
            line = _line(treebank, label, text, binary)
            if line and (whole or line not in seen):
                seen.add(line)
                yield line


def swapped(
    treebank: str | Path, count: int, *, share: float = 0.3, seed: int = 1, binary: bool = False
) -> Iterator[str]:
    """Lines "label text" of `count` new sentences of each one, whose label they keep.

    In each new sentence some phrases, of about `share` of its words and one at least, have given way to phrases of the
    treebank that have the same label, about as many words and, where the first word is a frequent one, the same first
    word. So a classifier meets long sentences that it cannot know by heart. A word alone gives way only if it is not
    neutral (2). `binary` and errors are as in `phrases`; the same seed draws the same sentences.
    """
    trees = list(iter_trees(treebank, as_it_is=True))
    counts = Counter(word.text.casefold() for tree in trees for word in tree.words())
    frequent = {word for word, _ in counts.most_common(_FREQUENT)}
    others: dict[tuple[str, int, str], list[Sequence[str]]] = defaultdict(list)
    sentences = []
    for tree in trees:
        side, sentence = next(_nodes(tree))
        words, places = sentence.split(" "), []
        for label, start, stop in _places(tree):
            if stop <= len(words) and stop - start < len(words) and stop - start <= LONGEST_SWAPPED:
                first = words[start].casefold()
                kind = (label, bisect(_SIZES, stop - start), first if first in frequent else "")
                others[kind].append(words[start:stop])
                if stop - start > 1 or label != _NEUTRAL:
                    places.append((start, stop, kind))
        sentences.append((side, words, places))
    draw = Random(seed)
    for label, words, places in sentences:
        if _line(treebank, label, " ".join(words), binary):
            for _ in range(count):
                text, free, left = list(words), [True] * len(words), max(1, int(share * len(words)))
                chosen = []
                for start, stop, kind in draw.sample(places, len(places)):
                    if left > 0 and all(free[start:stop]) and len(others[kind]) >= _FEWEST:
                        free[start:stop] = [False] * (stop - start)
                        chosen.append((start, stop, draw.choice(others[kind])))
                        left -= stop - start
                for start, stop, phrase in sorted(chosen, reverse=True, key=lambda one: one[0]):
                    text[start:stop] = phrase
                yield _line(treebank, label, " ".join(text), binary)


def _line(treebank: str | Path, label: str, text: str, binary: bool) -> str:
    """A line "label text"; empty for what is neutral, if there are two labels."""
    if binary:
        if label not in _SIDES:
            raise TextError(f"{treebank}: the label {label!r} of {text[:40]!r} is none of 0 to 4.")
        label = _SIDES[label]
    return f"{label} {text}" if label else ""


def _nodes(node: Tree | Word) -> Iterator[tuple[str, str]]:
    """Label and text of a node and of all below it, the node's first; a bracket that only holds the tree is none."""
    if isinstance(node, Word):
        yield node.tag, node.text
        return
    if node.label not in OUTER:
        yield node.label, " ".join(word.text for word in node.words())
    for child in node.children:
        yield from _nodes(child)


def _places(node: Tree | Word, start: int = 0) -> Iterator[tuple[str, int, int]]:
    """Label, first word and the word behind the last of a node and of all below it, in the order of `_nodes`."""
    if isinstance(node, Word):
        yield node.tag, start, start + 1
        return
    if node.label not in OUTER:
        yield node.label, start, start + len(node.words())
    for child in node.children:
        yield from _places(child, start)
        start += 1 if isinstance(child, Word) else len(child.words())
