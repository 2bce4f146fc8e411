"""`regard lecture`: the lectures' formulas computed and their figures drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.apps.terminal import write, write_json
from regard.apps.use import Json
from regard.errors import DataError

if TYPE_CHECKING:
    from regard.tasks.lectures.page import Value

__all__ = ["lecture"]

_KINDS = ("svg", "png")


def lecture(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Lectures; all: every one.")] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Draw NAME.svg there.")] = None,
    kind: Annotated[str, typer.Option(metavar="svg|png", help="Of picture.")] = "svg",
    bundle: Annotated[Path | None, typer.Option(metavar="DIR", help="Show where this model looks in --line.")] = None,
    line: Annotated[str, typer.Option(metavar="TEXT", help="What the bundle's model reads.")] = "",
    as_json: Json = False,
) -> None:
    """The lectures on attention as running code: a formula's numbers and, with --out, its figure; alone, the list."""
    from regard.tasks.lectures import LECTURES, about, draw, looks
    from regard.tasks.lectures import lecture as computed

    if kind not in _KINDS:
        raise DataError(f"--kind is {kind}; pictures are {' or '.join(_KINDS)}.")
    if (bundle is None) != (not line) or (bundle is not None and names):
        raise DataError("--bundle and --line go together, and without a lecture's name: the model is what is shown.")
    if not names and bundle is None:
        longest = max(map(len, LECTURES))
        write("".join(f"{name:{longest}}  {about(name)}\n" for name in LECTURES))
        return
    found = {name: computed(name) for name in (LECTURES if names == ["all"] else names or ())}
    if bundle is not None:
        found["looks"] = looks(bundle, line)
    if as_json:
        write_json({name: one.numbers for name, one in found.items()})
    for name, one in found.items():
        if not as_json:
            write(
                (f"{name}: {about(name)}\n" if name in LECTURES else f"{line}\n")
                + "".join(f"  {k}: {_shown(v)}\n" for k, v in one.numbers.items())
            )
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            draw(one, out / f"{name}.{kind}")
            if not as_json:
                write(f"  drawn: {out / f'{name}.{kind}'}\n")


def _shown(value: Value) -> str:
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    return value if isinstance(value, str) else f"{value:,}" if isinstance(value, int) else f"{value:.6g}"
