"""The name of the chart parser among the model families; its page is imported when it is asked for."""

from __future__ import annotations

from regard.models import FAMILIES


def add() -> None:
    """Add the name to the table, where it is not there already."""
    FAMILIES.data.setdefault("chart-parser", "regard.parsing.chart")


add()
