"""The commands that measure on a bundle's data what is kept in it: tune, calibrate and shortlist; and quantize."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import Field
from rich.table import Table

from regard.apps.cli import cell, console_on, new_table, say, status, takes, write, write_json
from regard.apps.options import LANGUAGES, AsJson, BundlePath, Device, Flags, Json
from regard.errors import DataError, ModelError
from regard.search.table import Options

from .settings import Grid

if TYPE_CHECKING:
    from regard.bundle import Calibration

    from .tune import Tuned


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

    from .tune import tune as choose

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
    with status("translating", errors):
        found = choose(
            bundle, source, references, grid, out=out, dry_run=choosing.dry_run, progress=lambda what: say(errors, what)
        )
    if choosing.as_json:
        write_json(found.to_dict())
    else:
        _show_tuned(found)


def _numbers(text: str, flag: str) -> tuple[float, ...] | None:
    """Numbers between commas; None for none."""
    if not text:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ModelError(f"{flag} {text}: must be numbers with commas between them, such as 0.6,1,1.4.") from None


def _show_tuned(found: Tuned) -> None:
    console = console_on(sys.stdout)
    table = Table(box=None, pad_edge=False)
    for heading in ("setting", found.before.score.name, "length ratio", "ran on", "seconds", ""):
        table.add_column(heading, justify="left" if heading in ("setting", "") else "right")
    for one in found.tried:
        mark = "chosen" if one is found.chosen else "as it was" if one is found.before else ""
        figures = f"{one.score.value:.2f}", f"{one.length_ratio:.3f}", f"{one.ran_on:,}", f"{one.seconds:.1f}"
        table.add_row(cell(one.name), *figures, mark)
    console.print(table)
    write("".join(f"{reason}\n" for reason in found.why))
    write(f"{found.lines:,} lines, {found.signature}\n")
    if found.written is not None:
        write(f"{found.written}\n")
    else:
        write("nothing was written\n")


@takes(*LANGUAGES)
def calibrate(
    bundle: BundlePath,
    options: Options,
    source: Annotated[Path, typer.Option(help="Source lines that the model was not trained on.")],
    reference: Annotated[Path, typer.Option("--reference", "--target", help="Their translations.")],
    plot: Annotated[Path | None, typer.Option(help="Draw what was found in this file: .svg, .png or .pdf.")] = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Measure how far a model's confidence may be believed, put it right, and keep that in the bundle."""
    from regard import pictures
    from regard.bundle import add_calibration
    from regard.tasks.translate import load
    from regard.text import read_lines

    from .calibrate import calibrate as measure

    translator = load(bundle, device=device)
    lines, references = read_lines(source), read_lines(reference)
    with status("reading") as tell:
        found = measure(translator, lines, references, from_=options.from_, to=options.to, progress=tell)
    if translator.bundle is not None:
        add_calibration(translator.bundle, found)
    if plot is not None:
        pictures.reliability(found.report).save(plot)
    if as_json:
        write_json(found.model_dump(mode="json"))
    else:
        _show_calibration(found)


def _show_calibration(found: Calibration) -> None:
    """What was measured, before and after, and what the bundle now holds."""
    console = console_on(sys.stdout)
    steps = ("before", "temperature", "after")
    table = new_table("", "number", "right", "calibration error", "by temperature", "and curve", "AUC")
    for name in ("tokens", "words"):
        one = found.report[name]["before"]
        errors = [f"{found.report[name][step]['error']:.2%}" for step in steps]
        table.add_row(name, f"{one['count']:,}", f"{one['right']:.1%}", *errors, f"{one['auc']:.3f}")
    console.print(table, highlight=False)
    layer = f"layer {found.layer}" if found.layer else "the mean of all layers"
    say(
        console,
        f"{found.report['lines']:,} lines; temperature {found.temperature:.4f}; alignments by the {found.rule} rule, "
        f"from {layer}. All of it is in the bundle.",
    )


def shortlist(
    bundle: BundlePath,
    source: Annotated[Path, typer.Option(help="Source lines, best those that it was trained on.")],
    target: Annotated[Path, typer.Option("--target", "--reference", help="Their translations.")],
    each: Annotated[int, typer.Option(help="Most target tokens that a source token goes with.")] = 100,
    always: Annotated[int, typer.Option(help="The most frequent ones, which may always come.")] = 100,
    pairs: Annotated[int, typer.Option(help="Most pairs to learn from, taken from all over.")] = 500_000,
    as_json: Json = False,
) -> None:
    """Learn which target tokens go with each source token, kept in the bundle for `regard translate --shortlist`."""
    from regard.text import read_lines

    from .shortlist import shortlist as learn

    sides = read_lines(source), read_lines(target)
    with status("learning"):
        found = learn(bundle, *sides, each=each, always=always, most=pairs)
    if as_json:
        write_json(found.to_dict())
        return
    write(f"learnt from {found.pairs:,} pairs, measured on {found.measured:,} others\n")
    write(f"tokens in the list of a line: {found.tokens:,.1f} on average, of {found.vocabulary:,}\n")
    write(f"tokens of translations that are in it: {found.covered:.2%}\n")


def average(
    bundle: BundlePath,
    others: Annotated[list[Path], typer.Argument(metavar="BUNDLE...", help="More bundles of the same model.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Directory of the new one.")],
    shares: Annotated[str, typer.Option(metavar="N,N", help="How much of each; all alike, if left out.")] = "",
) -> None:
    """Write a bundle whose weights are the mean of those of several, which were trained from one beginning."""
    from .average import average as make

    try:
        each = [float(share) for share in shares.split(",")] if shares else []
    except ValueError:
        raise ModelError(f"--shares {shares}: must be numbers with commas between, as 2,1,1.") from None
    with status("averaging"):
        make([bundle, *others], out, shares=each)
    write(f"{out}\n")


def quantize(
    bundle: BundlePath,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Directory of the smaller one.")],
    to: Annotated[str, typer.Option(metavar="KIND", help="int8 or bfloat16.")] = "int8",
    source: Annotated[Path | None, typer.Option(help="Lines to compare the two on; else the golden sentences.")] = None,
    reference: Annotated[Path | None, typer.Option("--reference", "--target", help="Their translations.")] = None,
    as_json: Json = False,
) -> None:
    """Write a bundle with weights that take less room, and measure what that changes."""
    from regard.text import read_lines

    from .quantize import quantize as make

    if reference is not None and source is None:
        raise DataError("--reference holds the translations of --source; give both, or leave it out.")
    with status("reading") as tell:
        found = make(
            bundle,
            out,
            to=to,
            source=[] if source is None else read_lines(source),
            reference=[] if reference is None else read_lines(reference),
            progress=tell,
        )
    if as_json:
        write_json(found.to_dict())
        return
    write(f"weights: {found.bytes_before / 2**20:,.1f} MB, now {found.bytes_after / 2**20:,.1f} MB\n")
    if found.lines:
        write(f"translated as before, in float32: {found.same:,} of {found.lines:,} lines\n")
    for name, (before, after) in (found.scores or {}).items():
        write(f"{name}: {before:.2f}, now {after:.2f}\n")
    write(f"{out}\n")
