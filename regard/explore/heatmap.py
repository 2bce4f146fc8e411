"""Attention as a heat map in the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from unicodedata import east_asian_width

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.style import Style
from rich.text import Text

from regard.apps.cli import printable
from regard.pictures import checked, colour, label

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

_SHADES = " ░▒▓█"


@dataclass(frozen=True)
class HeatMap:
    """Weights (T, S) with a name for each of T rows and S columns; Rich can print it.

    Shades stand in where the terminal has no colours. Printing raises ValueError as `regard.pictures.checked` does.
    """

    weights: ArrayLike
    rows: Sequence[str]
    columns: Sequence[str]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Columns that do not fit follow in a further block."""
        weights = checked(self.weights, self.rows, self.columns)
        top = float(weights.max(initial=0.0)) or 1.0
        shares = (weights / top).tolist()
        down, across = [[printable(label(token)) for token in tokens] for tokens in (self.rows, self.columns)]
        margin = max(map(cell_len, down), default=0) + 1
        fitting = max(1, (options.max_width - margin) // 2)
        for first in range(0, len(across), fitting):
            chosen = slice(first, first + fitting)
            yield from _names(across[chosen], margin)
            for token, row in zip(down, shares, strict=True):
                line = Text(" " * (margin - 1 - cell_len(token)) + token + " ", no_wrap=True)
                yield _shaded(line, row[chosen])
            yield Text()
        yield _shaded(Text("0 ", no_wrap=True), [step / 4 for step in range(5)]).append(f" {top:.2f}")


def _names(names: Sequence[str], margin: int) -> Iterator[Text]:
    """The names of columns from top to bottom, a character a line."""
    tall = max(map(len, names), default=0)
    for line in range(tall):
        row = Text(" " * margin, no_wrap=True)
        for name in names:
            character = name.rjust(tall)[line]
            row.append(character if east_asian_width(character) in "WF" else character + " ")
        yield row


def _shaded(line: Text, shares: Sequence[float]) -> Text:
    """Appends two characters for each share of the largest weight: its colour, and without colours its density."""
    for share in shares:
        ink = colour(share)
        line.append(_SHADES[min(int(share * 5), 4)] * 2, Style(color=ink, bgcolor=ink))
    return line
