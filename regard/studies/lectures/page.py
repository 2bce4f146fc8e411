"""What a lecture gives: numbers by name, and panels that `regard.pictures` draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from regard.pictures import Panel, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from torch import Tensor

Value = float | str | list[float]
_NUMBERED = 36
"""Cells of a heat map up to which their numbers are written in it."""


@dataclass(frozen=True)
class Lecture:
    """A figure of the lectures, computed."""

    numbers: Mapping[str, Value]
    panels: tuple[Panel, ...]


def listed(values: Tensor) -> list[float]:
    """A vector's numbers."""
    found: list[float] = values.detach().double().flatten().tolist()
    return found


def heat(title: str, cells: Tensor, rows: Sequence[str] = (), columns: Sequence[str] = (), axes: str = "") -> Panel:
    """A matrix as colours, its rows and columns named; `axes` are the names "down/across"."""

    def panel(at: Axes) -> None:
        at.set_title(title)
        values = cells.detach().double().tolist()
        at.imshow(values, aspect="auto" if len(values) > 12 or len(values[0]) > 12 else "equal", cmap="viridis")
        at.locator_params(integer=True)
        if cells.numel() <= _NUMBERED:
            middle = float(cells.min() + cells.max()) / 2
            for (row, column), value in np.ndenumerate(values):
                ink = "white" if value <= middle else "black"
                at.text(column, row, f"{value:.2g}", ha="center", va="center", color=ink, fontsize=8)
        if rows:
            at.set_yticks(range(len(rows)), rows)
        if columns:
            at.set_xticks(range(len(columns)), columns, rotation=45, ha="right")
        if axes:
            down, across = axes.split("/")
            at.set(ylabel=down, xlabel=across)

    return panel


def draw(lecture: Lecture, path: Path) -> None:
    """The panels side by side in one file, of the kind that its ending says; the same bytes each time.

    Raises DataError where matplotlib is not installed.
    """
    panels(lecture.panels).save(path)
