"""The words of parsing: trees, which makes text of a treebank."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.apps.terminal import write

__all__ = ["trees"]


def trees(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A treebank: bracketed trees, also .gz.")],
    words: Annotated[Path | None, typer.Option(help="Write the words here, a sentence a line.")] = None,
    linear: Annotated[Path | None, typer.Option(help="Write the trees here as lines of symbols.")] = None,
    tags: Annotated[bool, typer.Option("--tags", help="Keep the words' tags instead of XX in them.")] = False,
) -> None:
    """A treebank as a parser is trained on: its words and its trees, in two files; or the trees without traces."""
    from regard.text import write_lines
    from regard.text.trees import iter_trees, linearise

    found = list(iter_trees(file))
    if words is not None:
        write_lines(words, (" ".join(word.text for word in tree.words()) for tree in found))
    if linear is not None:
        write_lines(linear, (linearise(tree, tags=tags) for tree in found))
    if words is None and linear is None:
        for tree in found:
            write(f"{tree}\n")
