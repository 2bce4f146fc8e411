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
    """Fetch a data set from its official address: verified, resumed where it stopped.

    Some sets are not served in the form that recipes read: these are verified where they are, and it is said from what
    they were made.
    """
    from rich.progress import DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

    from .get import CATALOGUE
    from .get import get as fetch

    if name is None:
        for known, data in CATALOGUE.items():
            write(f"{known}\t{data.about}\t{'fetched' if data.address else 'verified'}\t{data.licence}\n")
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
