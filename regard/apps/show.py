"""How results look in the terminal: evaluations, bundles, machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from regard.metrics import Score
    from regard.tasks.doctor import Finding
    from regard.tasks.evaluate import Evaluation
    from regard.tasks.inspect import Inspection

__all__ = ["show_evaluation", "show_findings", "show_inspection"]


def show_evaluation(result: Evaluation, console: Console) -> None:
    """The scores with their intervals and signatures, how the output was made and how fast."""
    table = Table("metric", "value", "95 % interval", "unit", box=None, pad_edge=False)
    for score in result.scores.values():
        table.add_row(score.name, f"{score.value:.2f}", _interval(score), score.unit)
    console.print(table)
    for score in result.scores.values():
        console.print(f"{score.name}: {escape(score.signature)}", style="dim", highlight=False, soft_wrap=True)
    if result.groups:
        console.print()
        console.print(_groups(result))
    made = result.decoding
    console.print(
        f"{result.lines:,} lines, beam {made['beam']}, penalty {made['penalty']} {made['alpha']}, "
        f"{made['precision']} on "
        f"{made['device']}, batch-independent mode {'on' if made['batch_independent'] else 'off'}, "
        f"{result.sentences_per_second:,.1f} sentences a second",
        highlight=False,
        soft_wrap=True,
    )


def _interval(score: Score) -> str:
    return f"{score.interval[0]:.2f} to {score.interval[1]:.2f}" if score.interval else ""


def _groups(result: Evaluation) -> Table:
    names = list(result.scores)
    table = Table("group", *names, box=None, pad_edge=False)
    for label, scores in result.groups.items():
        table.add_row(escape(label), *(f"{scores[name].value:.2f}" for name in names))
    return table


def show_inspection(found: Inspection, console: Console) -> None:
    """What the bundle is, where it came from, its scores, a few golden sentences and its recipe."""
    facts = Table(box=None, show_header=False, pad_edge=False)
    facts.add_column(no_wrap=True)
    facts.add_column(overflow="fold")
    source, target = found.pieces
    came = found.provenance
    rows = {
        "bundle": str(found.path),
        "name": found.name,
        "family": found.family,
        "languages": found.languages,
        "parameters": f"{found.parameters:,}",
        "pieces": f"{source:,}" if source == target else f"{source:,} source, {target:,} target",
        "size": f"{found.size / 1e6:.1f} MB",
        "made": came["created"],
        "machine": came["machine"],
        "versions": ", ".join(f"{name} {version}" for name, version in came["versions"].items()),
        **{f"training {key.replace('_', ' ')}": _plain(value) for key, value in came["training"].items()},
        **{f"SHA-256 of {name}": str(digest) for name, digest in came["data"].get("sha256", {}).items()},
    }
    for name, value in rows.items():
        if value:
            facts.add_row(name, escape(value))
    console.print(facts, highlight=False, soft_wrap=True)
    for scores in came["scores"]:
        for score in scores.get("scores", {}).values():
            line = (
                f"{scores.get('set', '')}: {score['name']} {score['value']:.2f} ({score['unit']}; {score['signature']})"
            )
            console.print(escape(line), highlight=False, soft_wrap=True)
    checked = "translated again, and the same" if found.verified else "ids checked; --verify translates them again"
    console.print(f"\n[bold]Golden sentences[/bold] ({checked})")
    for line, output in found.golden:
        console.print(f"  {escape(line)}\n    → {escape(output)}", highlight=False, soft_wrap=True)
    console.print("\n[bold]Recipe[/bold]")
    console.print(escape(found.recipe), highlight=False, soft_wrap=True)


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(inner)}" for key, inner in value.items() if inner not in ({}, None))
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}" if isinstance(value, float) else str(value)


def show_findings(findings: list[Finding], console: Console) -> None:
    """What is known of the machine, topic by topic; what may need mending is marked."""
    for topic in dict.fromkeys(f.topic for f in findings):
        console.print(f"[bold]{topic}[/bold]")
        table = Table(box=None, show_header=False, pad_edge=False)
        for finding in findings:
            if finding.topic == topic:
                value = escape(finding.value) if finding.good else f"[yellow]{escape(finding.value)}[/yellow]"
                table.add_row("", finding.name, value, f"[dim]{escape(finding.note)}[/dim]")
        console.print(table, highlight=False)
