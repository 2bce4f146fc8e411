"""The words that make things of models and data: import, export, quantize, demo, get.

Tasks are imported when a word is used.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from regard.apps.cli import console_on, say, write, write_json
from regard.apps.options import BundlePath, Json
from regard.errors import DataError


def import_(
    directory: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="A Marian (OPUS-MT) model of Hugging Face.")],
    out: Annotated[Path, typer.Option(help="Where to write the bundle.")],
    golden: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Lines to verify the bundle with; left out: made of its tokens.")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Compare with transformers, if it is installed.")
    ] = True,
) -> None:
    """Make a bundle of another library's model."""
    from regard.exchange import import_marian
    from regard.text import read_lines

    found = import_marian(directory, out, lines=read_lines(golden) if golden else (), verify=verify)
    what = "Not compared with transformers." if found is None else str(found)
    say(console_on(sys.stderr), what)
    write(f"{out}\n")


def export(
    bundle: BundlePath,
    to: Annotated[str, typer.Option(metavar="FORMAT", help="huggingface or ctranslate2.")],
    out: Annotated[Path, typer.Option(help="A new directory for it.")],
    quantization: Annotated[
        str | None, typer.Option(metavar="TYPE", help="Of CTranslate2's weights: float32, int8, float16, …")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Translate the golden sentences there too, and compare.")
    ] = True,
) -> None:
    """Write a bundle for another library, and say what differs there."""
    from regard.exchange import export as write_for

    found = write_for(bundle, to, out, quantization=quantization, verify=verify)
    what = "Not verified." if found is None else str(found)
    say(console_on(sys.stderr), what)
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
    from regard.tasks.quantize import quantize as make
    from regard.text import read_lines

    if reference is not None and source is None:
        raise DataError("--reference holds the translations of --source; give both, or leave it out.")
    with console_on(sys.stderr).status("reading") as status:
        found = make(
            bundle,
            out,
            to=to,
            source=[] if source is None else read_lines(source),
            reference=[] if reference is None else read_lines(reference),
            progress=status.update,
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


def demo(
    out: Annotated[Path, typer.Option(help="Directory for what it makes.")] = Path("demo"),
    ask: Annotated[bool, typer.Option("--input/--no-input", help="Take lines from you at the end.")] = True,
) -> None:
    """Train a small Transformer on the built-in corpus in minutes, and show what it can do."""
    from regard.studies.demo.show import demo as run

    run(out, ask=ask)


def get(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Which one; left out: list them.")] = None,
    out: Annotated[Path | None, typer.Option(help="Directory; data/NAME if left out.")] = None,
    base: Annotated[str | None, typer.Option(metavar="URL", help="A mirror instead of the official address.")] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Only verify what is there.")] = False,
) -> None:
    """Fetch a data set from its official address: verified, resumed where it stopped."""
    from rich.progress import DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

    from regard.tasks.get import CATALOGUE
    from regard.tasks.get import get as fetch

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
