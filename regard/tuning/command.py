"""`regard tune`: what was tried as a table, what was chosen and why."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from pydantic import Field
from rich.table import Table

from regard.apps.cli import cell, console_on, say, takes, write, write_json
from regard.apps.options import AsJson, BundlePath, Flags
from regard.errors import ModelError

from .settings import Grid
from .tune import Tuned
from .tune import tune as choose


def _about(name: str) -> str:
    return str(Grid.model_fields[name].description)


class Choosing(Flags):
    """What is tried, and what is done with it."""

    metric: str = Field("bleu", description=_about("metric"))
    alphas: str = Field("", description=_about("alphas"), json_schema_extra={"metavar": "A,B,…"})
    beams: str = Field("", description=_about("beams"), json_schema_extra={"metavar": "A,B,…"})
    penalty: str = Field("", description=_about("penalty"))
    mbr: bool = Field(True, description=_about("mbr"))
    to: str | None = Field(None, description=_about("to"), json_schema_extra={"metavar": "CODE"})
    dry_run: bool = Field(False, description="only show what would be chosen")
    as_json: AsJson = False


@takes(choosing=Choosing)
def tune(
    bundle: BundlePath,
    choosing: Choosing,
    source: Annotated[Path, typer.Option(help="Source lines of validation data, never those of a test.")],
    reference: Annotated[list[Path], typer.Option(help="Untouched references; several files for several sets.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Another bundle instead of the same one.")] = None,
) -> None:
    """Choose length penalty, beam and minimum Bayes risk on validation data, and write them into the bundle."""
    from regard.text import read_lines

    grid = Grid.of(
        metric=choosing.metric,
        penalty=choosing.penalty,
        mbr=choosing.mbr,
        to=choosing.to,
        alphas=_numbers(choosing.alphas, "--alphas"),
        beams=_numbers(choosing.beams, "--beams"),
    )
    errors = console_on(sys.stderr)
    references = [read_lines(file) for file in reference]
    with errors.status("translating"):
        found = choose(
            bundle, source, references, grid, out=out, dry_run=choosing.dry_run, progress=lambda what: say(errors, what)
        )
    if choosing.as_json:
        write_json(found.to_dict())
    else:
        _show(found)


def _numbers(text: str, flag: str) -> tuple[float, ...] | None:
    """Numbers between commas; None for none."""
    if not text:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ModelError(f"{flag} {text}: must be numbers with commas between them, such as 0.6,1,1.4.") from None


def _show(found: Tuned) -> None:
    console = console_on(sys.stdout)
    table = Table(box=None, pad_edge=False)
    for heading in ("setting", found.before.score.name, "length ratio", "seconds", ""):
        table.add_column(heading, justify="left" if heading in ("setting", "") else "right")
    for one in found.tried:
        mark = "chosen" if one is found.chosen else "as it was" if one is found.before else ""
        figures = f"{one.score.value:.2f}", f"{one.length_ratio:.3f}", f"{one.seconds:.1f}"
        table.add_row(cell(one.name), *figures, mark)
    console.print(table)
    write("".join(f"{reason}\n" for reason in found.why))
    write(f"{found.lines:,} lines, {found.signature}\n")
    if found.written is not None:
        write(f"{found.written}\n")
    else:
        write("nothing was written\n")
