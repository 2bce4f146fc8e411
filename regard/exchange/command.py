"""The commands `regard import` and `regard export`: models from and for other libraries."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from regard.apps.cli import console_on, say, write
from regard.apps.options import BundlePath


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
    from regard.text import read_lines

    from .importing import import_marian

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
    from .export import export as write_for

    found = write_for(bundle, to, out, quantization=quantization, verify=verify)
    what = "Not verified." if found is None else str(found)
    say(console_on(sys.stderr), what)
    write(f"{out}\n")
