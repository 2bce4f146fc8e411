"""`regard look`: what a model did with a line, in the terminal, as a page, as a picture or as numbers."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from regard.apps.cli import console_on, say, takes
from regard.apps.options import LANGUAGES, BundlePath, Device
from regard.search.table import Options

from .heatmap import HeatMap
from .showing import Showing


@takes("beam", *LANGUAGES, showing=Showing)
def look(
    bundle: BundlePath,
    options: Options,
    showing: Showing,
    line: Annotated[str, typer.Argument(metavar="LINE", help="What the model reads.")],
    target: Annotated[str | None, typer.Option(help="What it is made to write; by default what it would.")] = None,
    device: Device = "cpu",
) -> None:
    """Where a model looks, every layer and head of it: in the terminal, or with --out as page, picture or numbers."""
    from .showing import shown

    found = shown(bundle, line, target, options, showing, device)
    console = console_on(sys.stdout)
    for file, contents in found.files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(contents)
        say(console, f"written: {file}")
    if found.files:
        return
    if found.part is not None:
        say(console, found.title)
        console.print(
            HeatMap(found.part.matrix(showing.layer, showing.head), found.part.rows.names, found.part.columns.names)
        )
    if found.text:
        say(console, found.text)
