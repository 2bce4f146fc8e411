"""Labelled phrases from a treebank whose every node has a label, such as the Stanford Sentiment Treebank.

Socher et al. (2013) train on every phrase and test on whole sentences; so does what is made of their trees since.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from regard.errors import TextError

from .trees import OUTER, Tree, Word, iter_trees

_SIDES = {"0": "negative", "1": "negative", "2": "", "3": "positive", "4": "positive"}


def phrases(treebank: str | Path, *, whole: bool = False, binary: bool = False) -> Iterator[str]:
    """Lines "label text" of every phrase, each different line once; or, `whole`, of the sentences alone, each kept.

    With `binary` labels 0 and 1 are negative, 3 and 4 positive, and what is neutral (2) is left out. Raises TextError
    for brackets that are not balanced, and with `binary` for other labels.
    """
    seen: set[str] = set()
    for tree in iter_trees(treebank, as_it_is=True):
        for label, text in [next(_nodes(tree))] if whole else _nodes(tree):
            if binary:
                if label not in _SIDES:
                    raise TextError(f"{treebank}: the label {label!r} of {text[:40]!r} is none of 0 to 4.")
                label = _SIDES[label]
            line = f"{label} {text}"
            if label and (whole or line not in seen):
                seen.add(line)
                yield line


def _nodes(node: Tree | Word) -> Iterator[tuple[str, str]]:
    """Label and text of a node and of all below it, the node's first; a bracket that only holds the tree is none."""
    if isinstance(node, Word):
        yield node.tag, node.text
        return
    if node.label not in OUTER:
        yield node.label, " ".join(word.text for word in node.words())
    for child in node.children:
        yield from _nodes(child)
