"""`regard backtranslate` and `regard distill`: corpora that a model makes for another one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer
from pydantic import Field

from regard.apps.cli import console_on, say, status, takes, write, write_json
from regard.apps.options import LANGUAGES, SEARCH, AsJson, BundlePath, Flags
from regard.apps.training import Display, Event, read_recipe
from regard.errors import Interrupted, ModelError
from regard.search.table import Options

from .backtranslate import Cleaning
from .backtranslate import backtranslate as make


class Marking(Flags):
    """How synthetic sources are marked, and what is printed."""

    tag: str = Field(
        "", description="a token that begins each source, such as <bt>; name it in text.symbols of a recipe"
    )
    as_json: AsJson = False


@takes(*SEARCH, "set", *LANGUAGES, cleaning=Cleaning, marking=Marking)
def backtranslate(
    bundle: BundlePath,
    options: Options,
    cleaning: Cleaning,
    marking: Marking,
    monolingual: Annotated[Path, typer.Argument(metavar="MONOLINGUAL", help="Lines of what the bundle reads.")],
    out: Annotated[
        tuple[Path, Path],
        typer.Option("--out", "-o", metavar="SOURCE TARGET", help="Two files: what the bundle writes, and its lines."),
    ],
) -> None:
    """Make pairs of target-side text: a source for each line by a bundle of the reverse direction."""
    with status("translating") as tell:
        found = make(
            bundle,
            monolingual,
            out,
            tag=marking.tag,
            options=options,
            cleaning=cleaning,
            progress=lambda done, of: tell(f"translated {done:,} of {of:,} lines"),
        )
    if marking.as_json:
        write_json(found.model_dump())
        return
    write(f"{found.pairs:,} pairs of {found.lines:,} lines\n")
    write("".join(f"left out: {number:,} {reason}\n" for reason, number in found.dropped.items()))
    if marking.tag:
        say(console_on(sys.stderr), f"In the recipe that learns from them:  [text] symbols = [{marking.tag!r}]")
    write("".join(f"{file}\n" for file in out))


class Distilling(Flags):
    """What is taken of the teacher, and who learns it."""

    reference: Path | None = Field(None, description="translations of SOURCE, by which one of --n-best is taken")
    by: Literal["bleu", "chrf"] = Field("bleu", description="what makes one most like its reference: bleu or chrf")
    recipe: Path | None = Field(None, description="a student's recipe, to be trained on what is made; with --run")
    run: Path | None = Field(None, description="directory of the student's run")
    small: Path | None = Field(
        None, description="a bundle of the student to be made with weights in int8 and a shortlist of tokens"
    )


class _Display(Display):
    """That of training, before which lines are translated, and after which a bundle is made small."""

    def _distill(self, event: Event) -> None:
        self._prepare({"what": f"of {event['of']:,} lines translated", "count": event["done"]})

    def _small(self, event: Event) -> None:
        self._say(f"The small bundle has {event['bytes'] / 1e6:.1f} MB.")


@takes("n_best", *SEARCH, "set", *LANGUAGES, distilling=Distilling)
def distill(
    teacher: Annotated[Path, typer.Argument(metavar="TEACHER", help="A bundle's directory.")],
    options: Options,
    distilling: Distilling,
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="Lines that a student is trained on.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="File of what the teacher makes of them, line by line.")],
) -> None:
    """Have a teacher translate a training source, and a student learn its translations; again, and it goes on."""
    from .distill import Student
    from .distill import distill as learn

    if (distilling.recipe is None) != (distilling.run is None):
        raise ModelError("a student has a recipe and a directory of its run; give both --recipe and --run, or neither.")
    if distilling.small and not distilling.run:
        raise ModelError("--small makes a student small; give --recipe and --run too.")
    student = None
    if distilling.recipe and distilling.run:
        student = Student(read_recipe(distilling.recipe, None), distilling.run, distilling.small)
    errors = console_on(sys.stderr)
    try:
        with _Display(errors) as display:
            made = learn(
                teacher,
                source,
                out,
                reference=distilling.reference,
                by=distilling.by,
                student=student,
                options=options,
                report=display,
            )
    except Interrupted as stop:
        say(errors, f"Stopped; everything is saved in {stop.checkpoint}. The same command goes on from there.")
        raise typer.Exit(130) from None
    write(f"{made}\n")
