"""`regard lecture`: the lectures' formulas computed and their figures drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard import pictures
from regard.apps.terminal import write, write_json
from regard.apps.use import Json
from regard.errors import DataError

if TYPE_CHECKING:
    from .page import Lecture, Value
    from .trained import Shown

__all__ = ["lecture"]


def lecture(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Lectures; all: every one.")] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Draw NAME.svg there.")] = None,
    kind: Annotated[str, typer.Option(metavar="svg|png|pdf", help="Of picture.")] = "svg",
    bundle: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The model of a lecture that needs one; alone: where it looks.")
    ] = None,
    line: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="What the bundle's model reads, not the lecture's; again for more lines."),
    ] = None,
    as_json: Json = False,
) -> None:
    """The lectures on attention as running code: a formula's numbers and, with --out, its figure; alone, the list."""
    from .every import LECTURES, about
    from .every import lecture as computed
    from .trained import TRAINED, looks, trained

    if kind not in pictures.KINDS:
        raise DataError(f"--kind is {kind}; pictures are {' or '.join(pictures.KINDS)}.")
    if bundle is None and line:
        raise DataError("--line is what a model reads: give it with --bundle.")
    if bundle is not None and not names and len(line or ()) != 1:
        raise DataError("--bundle without a lecture's name shows where the model looks in one --line: give one.")
    if not names and bundle is None:
        longest = max(map(len, [*LECTURES, *TRAINED]))
        write("".join(f"{name:{longest}}  {about(name)}\n" for name in LECTURES))
        write("\nof a trained model, with --bundle:\n")
        write("".join(f"{name:{longest}}  {about(name)}\n" for name in TRAINED))
        return
    found: dict[str, Lecture | Shown]
    if bundle is None:
        found = {name: computed(name) for name in (LECTURES if names == ["all"] else names or ())}
    else:
        found = {name: trained(name, bundle, line or ()) for name in names or ()} or {
            "looks": looks(bundle, line or ())
        }
    if as_json:
        write_json({name: one.numbers for name, one in found.items()})
    for name, one in found.items():
        if not as_json:
            said = about(name) if name != "looks" else (line or [""])[0]
            write(f"{name}: {said}\n" + "".join(f"  {k}: {_shown(v)}\n" for k, v in one.numbers.items()))
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            _draw(one, out / f"{name}.{kind}", name)
            if not as_json:
                write(f"  drawn: {out / f'{name}.{kind}'}\n")


def _draw(one: Lecture | Shown, file: Path, title: str) -> None:
    from .page import Lecture, draw

    if isinstance(one, Lecture):
        draw(one, file)
    else:
        pictures.shades(one.lines, aligned=one.aligned, title=title).save(file)


def _shown(value: Value) -> str:
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    return value if isinstance(value, str) else f"{value:,}" if isinstance(value, int) else f"{value:.6g}"
