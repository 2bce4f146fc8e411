"""The commands `regard inspect` and `regard doctor`, and how what they find looks in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from regard.apps.cli import cell, console_on, new_table, say, write_json
from regard.apps.options import BundlePath, Json

if TYPE_CHECKING:
    from .doctor import Finding
    from .inspect import Inspection


def inspect(
    bundle: BundlePath,
    verify: Annotated[bool, typer.Option("--verify", help="Translate the golden sentences again and compare.")] = False,
    as_json: Json = False,
) -> None:
    """What a bundle is, where it came from, how good it is; always checks every file."""
    from .inspect import inspect as look

    found = look(bundle, again=verify)
    if as_json:
        write_json(found.to_dict())
    else:
        show_inspection(found, console_on(sys.stdout))


def doctor(
    bundle: Annotated[Path | None, typer.Argument(metavar="[BUNDLE]", help="A bundle's directory.")] = None,
    as_json: Json = False,
) -> None:
    """This machine: versions, processor, kernels chosen and why; and what translates a bundle here."""
    from .doctor import doctor as examine

    findings = examine(bundle=bundle)
    if as_json:
        write_json([finding.to_dict() for finding in findings])
    else:
        _show_findings(findings, console_on(sys.stdout))


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


def _show_findings(findings: list[Finding], console: Console) -> None:
    """What is known of the machine, topic by topic; what may need mending is marked."""
    for topic in dict.fromkeys(f.topic for f in findings):
        found = [f for f in findings if f.topic == topic]
        show_topic(
            console, topic, ((f.name, cell(f.value, "" if f.good else "yellow"), cell(f.note, "dim")) for f in found)
        )


def show_topic(console: Console, title: str, rows: Iterable[Sequence[str | Text]]) -> None:
    """A title and rows of cells below it."""
    say(console, title, "bold")
    table = new_table()
    for row in rows:
        table.add_row("", *(cell(each) if isinstance(each, str) else each for each in row))
    console.print(table, highlight=False)
