"""`regard mix`: several corpora as one, and how much of it each is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from pydantic import Field
from rich.table import Table

from regard.apps.cli import console_on, say, takes, write, write_json
from regard.apps.options import AsJson, Flags
from regard.errors import DataError

from .mix import mix as make


class Mixing(Flags):
    """How corpora are weighed against each other."""

    temperature: float = Field(
        1.0, ge=1.0, description="1: each pair once; the higher, the more alike all corpora count"
    )
    most: float = Field(20.0, ge=1.0, description="how often a pair is repeated at most")
    tag: bool = Field(False, description="begin each source with <NAME>")
    seed: int = Field(1, description="of what is drawn where a share of a corpus is repeated once more")
    as_json: AsJson = False


@takes(mixing=Mixing)
def mix(
    corpora: Annotated[
        list[str], typer.Argument(metavar="NAME=SOURCE,TARGET…", help="Corpora, two files of lines each.")
    ],
    mixing: Mixing,
    out: Annotated[
        tuple[Path, Path], typer.Option("--out", "-o", metavar="SOURCE TARGET", help="Two files: all of their pairs.")
    ],
) -> None:
    """Make one corpus of several, tagged, the small ones repeated by a temperature."""
    named: dict[str, tuple[str, str]] = {}
    for corpus in corpora:
        name, _, files = corpus.partition("=")
        source, _, target = files.partition(",")
        if not (source and target) or name in named:
            raise DataError(f"{corpus!r}: a corpus is NAME=SOURCE,TARGET, each with a name of its own.")
        named[name] = source, target
    made = make(named, out, **mixing.model_dump(exclude={"as_json"}))
    if mixing.as_json:
        write_json(made.to_dict())
        return
    table = Table("corpus", "pairs", "repeated", "in the mixture", "share", box=None)
    total = sum(made.written.values())
    for name, count in made.pairs.items():
        share = f"{made.written[name] / total:.1%}"
        table.add_row(name, f"{count:,}", f"{made.repeats[name]:.2f}", f"{made.written[name]:,}", share)
    errors = console_on(sys.stderr)
    errors.print(table)
    if mixing.tag:
        say(errors, f"In the recipe that learns from it:  [text] symbols = {made.symbols}")
    write("".join(f"{file}\n" for file in made.files))
