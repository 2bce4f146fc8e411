"""What commands write with. Text of others (files, names, errors, bundles) passes `printable` before it is shown."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_WIDTH = 160  #: Columns where there is no terminal to ask.
# Characters that a terminal obeys: C0 but tab and line feed, DEL, C1, and those that turn the direction of writing.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Text with every character that a terminal would obey written as its number, such as \\x1b."""
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), text)


def write(text: str) -> None:
    """Text to standard output, as it is: it is the result that was asked for."""
    sys.stdout.write(text)


def write_json(value: object) -> None:
    """Plain values to standard output as JSON."""
    write(json.dumps(value, ensure_ascii=False, indent=1) + "\n")


def write_record(value: object) -> None:
    """Plain values to standard output as a line of JSON."""
    write(json.dumps(value, ensure_ascii=False) + "\n")


def console_on(stream: TextIO) -> Console:
    """A Rich console on a stream."""
    from rich.console import Console

    return Console(file=stream, width=None if stream.isatty() else _WIDTH)


def cell(text: str, style: str = "") -> Text:
    """Text of others as Rich shows it: nothing in it is markup, and no character of it is obeyed."""
    from rich.text import Text

    return Text(printable(text), style)


def say(console: Console, text: str, style: str = "") -> None:
    """A line that is no longer than it is: not wrapped, not coloured by its content, without markup."""
    console.print(cell(text, style), highlight=False, soft_wrap=True)
