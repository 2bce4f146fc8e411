"""`regard compare`: outputs of systems against a reference, as tables, JSON or a page."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from regard.apps.cli import cell, console_on, say, takes, write_json
from regard.apps.options import Json
from regard.errors import DataError
from regard.machine import write_atomically
from regard.metrics import METRICS

from .compare import Compared, Comparing
from .compare import compare as make
from .details import word_diff
from .page import page, tables

_MARKS = {"same": "{}", "missing": "[-{}-]", "extra": "{{+{}+}}"}


@takes(settings=Comparing)
def compare(
    systems: Annotated[list[Path], typer.Argument(metavar="A B…", help="Outputs, or bundles; the baseline first.")],
    reference: Annotated[Path, typer.Option(help="The reference, a line for each line of an output.")],
    settings: Comparing,
    source: Annotated[Path | None, typer.Option(help="Source lines: for bundles, and for untranslated copies.")] = None,
    train: Annotated[
        Path | None, typer.Option(help="Training text by which words are rare; else the reference.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE.html", help="A page of it, one file, too.")] = None,
    as_json: Json = False,
) -> None:
    """Compare the outputs of systems on the same lines: significance, lengths, rare words, errors, examples."""
    if out is not None and out.suffix != ".html":
        raise DataError(f"--out {out}: the page is a file whose name ends in .html.")
    found = make(systems, reference, source=source, train=train, settings=settings)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, page(found))
    if as_json:
        write_json(found.to_dict())
        return
    _show(found, console_on(sys.stdout))


def _show(found: Compared, console: Console) -> None:
    for title, head, rows in tables(found):
        say(console, title, "bold")
        _table(console, head, rows)
    for name, signature in found.signatures.items():
        say(console, f"{METRICS[name].name}: {signature}", "dim")
    if found.examples:
        say(console, "\nThe lines that differ most ([-missing-], {+not in the reference+})", "bold")
    for each in found.examples:
        say(console, f"{each['line']}: {each['reference']}")
        for name, line in zip(found.systems, each["outputs"], strict=True):  # type: ignore[call-overload]  # a list
            marked = (_MARKS[kind].format(text) for kind, text in word_diff(line, str(each["reference"])))
            say(console, f"  {name}: {' '.join(marked)}")


def _table(console: Console, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(box=None, pad_edge=False)
    for name in head:
        table.add_column(cell(name))
    for row in rows:
        table.add_row(*map(cell, row))
    console.print(table, highlight=False)
    console.print()
