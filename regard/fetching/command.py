"""The command `regard get`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from regard.apps.cli import console_on, write


def get(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Which one; left out: list them.")] = None,
    out: Annotated[Path | None, typer.Option(help="Directory; data/NAME if left out.")] = None,
    base: Annotated[str | None, typer.Option(metavar="URL", help="A mirror instead of the official address.")] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Only verify what is there.")] = False,
) -> None:
    """Fetch a data set from its official address: verified, resumed where it stopped."""
    from rich.progress import DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

    from .get import CATALOGUE
    from .get import get as fetch

    if name is None:
        write("".join(f"{known}\t{dataset.about}\n" for known, dataset in CATALOGUE.items()))
        return
    columns = (TextColumn("{task.description}"), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console_on(sys.stderr)) as bar:
        tasks: dict[str, TaskID] = {}

        def hear(file: str, there: int, size: int) -> None:
            if file not in tasks:
                tasks[file] = bar.add_task(file, total=size)
            bar.update(tasks[file], completed=there)

        paths = fetch(name, out or Path("data") / name, base=base, offline=offline, progress=hear)
    write("".join(f"{path}\n" for path in paths))
