"""The commands `regard parse` and `regard trees`, which makes text of a treebank."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import BaseModel, ConfigDict, Field

from regard.apps.options import BundlePath, Device, Json, Output, takes
from regard.apps.terminal import console_on, write, write_json
from regard.errors import TextError
from regard.tasks.options import Options

if TYPE_CHECKING:
    from regard.tasks.translate import Translator

    from .parse import ParseEvaluation
    from .trees import Tree

_CHUNK = 1024
"""Lines parsed together; results do not depend on it."""


class Asked(BaseModel):
    """What is wanted of the trees."""

    model_config = ConfigDict(frozen=True)

    indented: bool = Field(
        False, description="each tree on several lines, indented", json_schema_extra={"flag": "--trees"}
    )
    evaluate: Path | None = Field(
        None,
        description="parse the words of these trees, and score the trees",
        json_schema_extra={"metavar": "TREEBANK"},
    )
    resamples: int = Field(
        1000, description="bootstrap samples behind the intervals, 1000 unless given; 0: no intervals"
    )


@takes("beam", "alpha", "batch_size", "precision", asked=Asked)
def parse(
    bundle: BundlePath,
    options: Options,
    asked: Asked,
    file: Annotated[
        str, typer.Argument(metavar="[FILE|-]", help="Words between spaces, a sentence a line; - is standard input.")
    ] = "-",
    output: Output = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Parse sentences: a line of words in, its constituency tree out; with --evaluate, how good the trees are."""
    from regard.tasks.translate import load
    from regard.text import write_lines

    evaluate, in_trees = asked.evaluate, asked.indented
    if evaluate is not None and file != "-":
        raise TextError(f"--evaluate parses the words of {evaluate}, so {file} is not read; leave one of the two out.")
    if evaluate is None and as_json:
        raise TextError("--json shows scores; give --evaluate and gold trees, or leave --json out.")
    translator = load(bundle, device=device)
    if evaluate is not None:
        found = _evaluated(translator, evaluate, options, asked.resamples)
        if output is not None:
            write_lines(output, _lines(found.trees, in_trees))
        if as_json:
            write_json({"bundle": str(bundle), "gold": str(evaluate), **found.to_dict()})
        else:
            _show(found)
    elif output is not None:
        write_lines(output, _lines(_parsed(translator, file, options), in_trees))
    else:
        for line in _lines(_parsed(translator, file, options), in_trees):
            write(f"{line}\n")
            if sys.stdin.isatty() and file == "-":
                sys.stdout.flush()


def _parsed(translator: Translator, file: str, options: Options) -> Iterator[Tree | None]:
    """Each line's tree, a chunk at a time, so that a file may be of any length."""
    from regard.text import iter_lines

    from .parse import parse

    typed = file == "-" and sys.stdin.isatty()
    lines = iter_lines(sys.stdin.buffer if file == "-" else file, allow_empty=file == "-")
    number = 1
    while chunk := list(islice(lines, 1 if typed else _CHUNK)):
        try:
            yield from (each.tree for each in parse(translator, chunk, options, first_line=number))
        except TextError as error:
            raise TextError(f"{'standard input' if file == '-' else file}: {error}") from None
        number += len(chunk)


def _lines(found: Iterator[Tree | None] | list[Tree], in_trees: bool) -> Iterator[str]:
    for tree in found:
        if tree is not None and in_trees:
            yield from tree.indented().splitlines()
        else:
            yield "" if tree is None else str(tree)


def _evaluated(translator: Translator, gold: Path, options: Options, resamples: int) -> ParseEvaluation:
    from .parse import evaluate_trees
    from .trees import iter_trees

    wanted = list(iter_trees(gold))
    with console_on(sys.stderr).status("parsing") as status:
        return evaluate_trees(
            translator,
            wanted,
            options,
            resamples=resamples,
            progress=lambda done: status.update(f"parsed {done:,} of {len(wanted):,} sentences"),
        )


def _show(found: ParseEvaluation) -> None:
    from .parse import SHORT

    for scores, of in ((found.scores, ""), (found.short, f" of at most {SHORT} words")):
        if scores:
            write(f"{next(iter(scores.values())).detail['lines']:,} sentences{of}\n")
        for score in scores.values():
            write(f"  {score}\n")


def trees(
    file: Annotated[Path, typer.Argument(metavar="TREEBANK", help="Bracketed trees, also .gz.")],
    words: Annotated[Path | None, typer.Option(help="Write the words here, a sentence a line.")] = None,
    linear: Annotated[Path | None, typer.Option(help="Write the trees here as lines of symbols.")] = None,
    tags: Annotated[bool, typer.Option("--tags", help="Keep the words' tags instead of XX in them.")] = False,
) -> None:
    """A treebank as a parser is trained on: its words and its trees, in two files; or the trees without traces."""
    from regard.text import write_lines

    from .trees import iter_trees, linearise

    found = list(iter_trees(file))
    if words is not None:
        write_lines(words, (" ".join(word.text for word in tree.words()) for tree in found))
    if linear is not None:
        write_lines(linear, (linearise(tree, tags=tags) for tree in found))
    if words is None and linear is None:
        for tree in found:
            write(f"{tree}\n")
