"""How evaluations look in the terminal; and tables that others show too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from regard.apps.cli import cell, say

if TYPE_CHECKING:
    from regard.tasks.evaluate import Evaluation


def new_table(*headings: str) -> Table:
    """A table without lines around it."""
    return Table(*headings, box=None, show_header=bool(headings), pad_edge=False)


def show_evaluation(result: Evaluation, console: Console) -> None:
    """The scores with their intervals and signatures, how the output was made and how fast."""
    table = new_table("metric", "value", "95 % interval", "unit")
    for score in result.scores.values():
        interval = f"{score.interval[0]:.2f} to {score.interval[1]:.2f}" if score.interval else ""
        table.add_row(score.name, f"{score.value:.2f}", interval, score.unit)
    console.print(table)
    for score in result.scores.values():
        say(console, f"{score.name}: {score.signature}", "dim")
    if result.groups:
        console.print()
        table = new_table("group", *result.scores)
        for group, scores in result.groups.items():
            table.add_row(cell(group), *(f"{scores[name].value:.2f}" for name in result.scores))
        console.print(table)
    made = result.decoding
    how = f"{made['samples']} samples" if made["samples"] else f"beam {made['beam']}"
    say(
        console,
        f"{result.lines:,} lines, {how}, penalty {made['penalty']} {made['alpha']}, {made['precision']} on "
        f"{made['device']}, {result.sentences_per_second:,.1f} sentences a second",
    )
