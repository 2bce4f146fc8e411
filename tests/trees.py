"""Trees for tests, from their text."""

from __future__ import annotations

import io

from regard.parsing.trees import Tree, iter_trees


def tree_of(text: str) -> Tree:
    """The one tree that a text is."""
    [tree] = iter_trees(io.BytesIO(text.encode()))
    return tree
