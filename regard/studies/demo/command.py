"""The command `regard demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(
    out: Annotated[Path, typer.Option(help="Directory for what it makes.")] = Path("demo"),
    ask: Annotated[bool, typer.Option("--input/--no-input", help="Take lines from you at the end.")] = True,
) -> None:
    """Train a small Transformer on the built-in corpus in minutes, and show what it can do."""
    from .show import demo as run

    run(out, ask=ask)
