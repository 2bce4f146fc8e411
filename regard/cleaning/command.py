"""`regard clean`: pairs of lines that are fit to learn from, and a report of the others."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from regard.apps.cli import cell, console_on, status, takes, write, write_json
from regard.apps.options import Json

from .clean import clean as make
from .rules import RULES, Rules


@takes(rules=Rules)
def clean(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="Source lines, or a file of pairs (.tsv, .tmx, …).")],
    rules: Rules,
    target: Annotated[Path | None, typer.Argument(metavar="[TARGET]", help="Target lines.")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Beginning of the names of what is written.")] = Path(
        "clean"
    ),
    from_: Annotated[str, typer.Option("--from", metavar="CODE", help="Language of the source, like en.")] = "",
    to: Annotated[str, typer.Option("--to", metavar="CODE", help="Language of the target, like de.")] = "",
    as_json: Json = False,
) -> None:
    """Leave out pairs of lines that are no translations of each other, and say why each went."""
    console = console_on(sys.stderr)
    with status("reading") as tell:
        made = make(
            source,
            target,
            out,
            languages=(from_, to),
            rules=rules,
            progress=lambda what, count: tell(f"{what}: {count:,}"),
        )
    if as_json:
        write_json(made.to_dict())
        return
    table = Table("rule", "pairs", "share", "what it takes", "the first: line, source, target", box=None)
    for name, (meaning, _) in RULES.items():
        if name in made.gone:
            line, *sides = made.examples[name][0]
            count = made.gone[name]
            first = f"{line}: {' | '.join(side[:60] for side in sides)}"
            table.add_row(name, f"{count:,}", f"{count / made.read:.2%}", meaning, cell(first))
    console.print(table)
    write(f"{made.kept:,} of {made.read:,} pairs kept: {made.files[0]}, {made.files[1]}; the others: {made.files[2]}\n")
