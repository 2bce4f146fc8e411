"""What the words write with."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["console_on", "write", "write_json"]

_WIDTH = 160
"""Columns where there is no terminal to ask."""


def write(text: str) -> None:
    """Text to standard output, as it is."""
    sys.stdout.write(text)


def write_json(value: Any) -> None:
    """Plain values to standard output as JSON."""
    write(json.dumps(value, ensure_ascii=False, indent=1) + "\n")


def console_on(stream: TextIO) -> Console:
    """A Rich console on a stream."""
    from rich.console import Console

    return Console(file=stream, width=None if stream.isatty() else _WIDTH)
