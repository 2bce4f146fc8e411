"""How results look in the terminal: evaluations and bundles; and tables that others show too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from regard.apps.cli import cell, say

if TYPE_CHECKING:
    from regard.tasks.evaluate import Evaluation
    from regard.tasks.inspect import Inspection


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


def show_inspection(found: Inspection, console: Console) -> None:
    """What the bundle is, where it came from, its scores, a few golden sentences and its recipe."""
    facts = new_table()
    facts.add_column(no_wrap=True)
    facts.add_column(overflow="fold")
    source, target = found.tokens
    came = found.provenance
    rows = {
        "bundle": str(found.path),
        "name": found.name,
        "family": found.family,
        "languages": found.languages,
        "parameters": f"{found.parameters:,}",
        "tokens": f"{source:,}" if source == target else f"{source:,} source, {target:,} target",
        "size": f"{found.size / 1e6:.1f} MB",
        "digest": found.digest,
        "made": came["created"],
        "machine": came["machine"],
        "versions": ", ".join(f"{name} {version}" for name, version in came["versions"].items()),
        **{f"training {key.replace('_', ' ')}": _plain(value) for key, value in came["training"].items()},
        **{f"SHA-256 of {name}": str(digest) for name, digest in came["data"].get("sha256", {}).items()},
    }
    for name, value in rows.items():
        if value:
            facts.add_row(cell(name), cell(value))
    console.print(facts, highlight=False, soft_wrap=True)
    for scores in came["scores"]:
        for score in scores.get("scores", {}).values():
            figure = f"{score['name']} {score['value']:.2f} ({score['unit']}; {score['signature']})"
            say(console, f"{scores.get('set', '')}: {figure}")
    again = f"translated again in {found.verified_in}, and the same"
    checked = again if found.verified else "ids checked; --verify translates them again"
    say(console, f"\nGolden sentences ({checked})", "bold")
    for line, output in found.golden:
        say(console, f"  {line}\n    → {output}")
    say(console, "\nRecipe", "bold")
    say(console, found.recipe)


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(inner)}" for key, inner in value.items() if inner not in ({}, None))
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}" if isinstance(value, float) else str(value)
