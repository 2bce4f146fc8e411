"""What a lecture gives: numbers by name, and panels that matplotlib draws; it is imported only to draw."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.errors import DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from torch import Tensor

__all__ = ["Lecture", "Panel", "Value", "bars", "curves", "draw", "heat", "listed"]

Value = float | str | list[float]
_NUMBERED = 36
"""Cells of a heat map up to which their numbers are written in it."""
Panel = Callable[["Axes"], None]


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


def curves(
    title: str,
    across: Sequence[float],
    lines: Mapping[str, Sequence[float]],
    *,
    x: str = "",
    y: str = "",
    logarithmic: str = "",
) -> Panel:
    """Named lines over one axis; `logarithmic` names the axes ("x", "y", "xy") that are."""

    def panel(at: Axes) -> None:
        at.set_title(title)
        for name, heights in lines.items():
            at.plot(across, heights, label=name)
        if "x" in logarithmic:
            at.set_xscale("log")
        if "y" in logarithmic:
            at.set_yscale("log")
        at.set(xlabel=x, ylabel=y)
        at.legend()

    return panel


def bars(title: str, names: Sequence[str], heights: Mapping[str, Sequence[float]], *, y: str = "") -> Panel:
    """Groups of bars, a group a name."""

    def panel(at: Axes) -> None:
        at.set_title(title)
        width = 0.8 / len(heights)
        for number, (label, values) in enumerate(heights.items()):
            shift = (number - (len(heights) - 1) / 2) * width
            at.bar([place + shift for place in range(len(names))], list(values), width, label=label)
        at.set_xticks(range(len(names)), names)
        if len(heights) == 1:
            at.set(ylabel=y or next(iter(heights)))
            return
        at.set(ylabel=y)
        at.margins(y=0.25)  # for the legend
        at.legend()

    return panel


def draw(lecture: Lecture, path: Path) -> None:
    """The panels side by side in one file, SVG or PNG by its ending; the same bytes each time.

    Raises DataError where matplotlib is not installed.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as missing:
        raise DataError(
            f"{path.name} is drawn with matplotlib, which is not installed ({missing}): pip install matplotlib, or "
            "leave --out out and read the numbers."
        ) from missing
    settings: Any = {"svg.hashsalt": "regard", "svg.fonttype": "none", "font.size": 9}
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=(4.6 * len(lecture.panels), 3.6), layout="constrained")
        every = figure.subplots(1, len(lecture.panels), squeeze=False)
        for panel, at in zip(lecture.panels, every[0], strict=True):
            panel(at)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
