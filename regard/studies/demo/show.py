"""`regard demo`: train on the built-in corpus before your eyes, see how good it is and where it looks, then try it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from regard.apps.cli import say
from regard.explore.heatmap import HeatMap
from regard.pictures import Picture, colour, heatmap, label, xml

if TYPE_CHECKING:
    from .evaluate import Alignment, Demo

STAGES = {"corpus": "Writing the corpus", "training": "Training", "answering": "Answering held-out lines"}


def demo(out: str | Path = "demo", *, ask: bool = True, console: Console | None = None) -> None:
    """Run the demonstration into a directory and show it; then, if `ask` and at a terminal, take the user's lines."""
    from . import evaluate as task

    console = console or Console()
    console.print("A small Transformer learns to rewrite dates, times, numbers and amounts")
    console.print("between English, German, French and Chinese.\n")
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=16),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}", style="dim"),
        console=console,
        refresh_per_second=2,  # drawing takes a core from training
    ) as bar:
        done = task.run(out, report=_follow(bar, task.demo_recipe(Path(out)).train.max_updates))
    show(done, console)
    if ask and sys.stdin.isatty():
        from regard.tasks.translate import load

        translator = load(done.bundle)
        prompt(lambda line: str(translator.translate([line])[0].text), console)


def _follow(bar: Progress, updates: int) -> Callable[[dict[str, Any]], None]:
    """What hears the events of a run and moves the bar."""
    started: list[Any] = []

    def hear(event: dict[str, Any]) -> None:
        if event.get("event") == "stage":
            for number in started:
                bar.update(number, total=1, completed=1)
            stage = event["stage"]
            started.append(bar.add_task(STAGES[stage], total=updates if stage == "training" else None, note=""))
        elif event.get("event") == "train":
            note = f"loss {event['loss']:.3f}, {event['tokens_per_second']:,.0f} tokens/s"
            bar.update(started[-1], completed=event["update"], note=note)

    return hear


# --- what it gave -----------------------------------------------------------------------------------------------------


def show(done: Demo, console: Console) -> None:
    """The figures, the examples and one alignment, in the terminal and as files."""
    files = draw(done)
    console.print()
    console.print(_overall(done))
    console.print(_directions(done))
    console.print(_examples(done))
    alignment = done.alignment
    console.print(f"\n[bold]Where it looked[/bold] while it wrote [green]{escape(alignment.output)}[/green]")
    console.print("Source on columns, target on rows.\n", style="dim")
    console.print(HeatMap(alignment.weights, alignment.target_tokens, alignment.source_tokens))
    say(console, f"\nThe same picture: {', '.join(map(str, files))}")
    say(console, f"The model: {done.bundle}   The figures: {done.directory / 'report.json'}")
    again = (
        f"regard evaluate {done.bundle} --source {done.directory / 'heldout.source'} "
        f"--reference {done.directory / 'heldout.reference'} --groups {done.directory / 'heldout.cells'} "
        "--metric exact-match"
    )
    say(console, f"Recompute them: {again}")


def draw(done: Demo) -> list[Path]:
    """Write the alignment as SVG and as a page of HTML; the paths."""
    one = done.alignment
    drawn = heatmap(one.weights, one.target_tokens, one.source_tokens, title=f"{one.source} → {one.output}")
    written = {"alignment.svg": drawn.svg(), "alignment.html": page(one, drawn)}
    for name, text in written.items():
        (done.directory / name).write_text(text, encoding="utf-8")
    return [done.directory / name for name in written]


def page(one: Alignment, drawn: Picture) -> str:
    """A page that needs nothing else: both lines, the picture, and the weights as a table of numbers."""
    head = "".join(f'<th scope="col">{xml(label(token))}</th>' for token in one.source_tokens)
    top = float(one.weights.max(initial=0.0)) or 1.0
    rows = [
        f'<tr><th scope="row">{xml(label(token))}</th>'
        + "".join(
            f'<td style="background:{colour(w / top)}{";color:#fff" if w / top > 0.55 else ""}">{w:.2f}</td>'
            for w in row
        )
        + "</tr>"
        for token, row in zip(one.target_tokens, one.weights.tolist(), strict=True)
    ]
    return _PAGE.format(
        source=xml(one.source), target=xml(one.output), picture=drawn.img(), head=head, rows="\n".join(rows)
    )


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<title>Where the model looked</title>
<style>
body{{margin:2rem auto;max-width:72rem;padding:0 1rem;color:#1b1f24;background:#fff;font:16px/1.5 sans-serif}}
figure,.scroll{{margin:1.5rem 0;overflow-x:auto}}
table{{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.8rem}}
th,td{{padding:.15rem .35rem;text-align:right;border:1px solid #eaeef2}}
</style>
</head>
<body>
<h1>Where the model looked</h1>
<dl>
<dt>source</dt><dd>{source}</dd>
<dt>target</dt><dd>{target}</dd>
</dl>
<figure>
{picture}
<figcaption>Source on columns, target on rows; a row is where the model looked while it wrote that token.</figcaption>
</figure>
<details>
<summary>The weights as numbers</summary>
<div class="scroll"><table>
<thead><tr><td></td>{head}</tr></thead>
<tbody>
{rows}
</tbody>
</table></div>
</details>
</body>
</html>
"""


def _overall(done: Demo) -> Table:
    from .corpus import KINDS
    from .evaluate import SYSTEMS, rate

    table = Table(title=f"Exact match on {len(done.answers):,} held-out lines, %", title_justify="left")
    table.caption = (
        "Their years, minutes and digits occur in no training line. nearest: the answer of the most similar one"
    )
    table.caption_justify = "left"
    for heading in ("system", "all", *KINDS):
        table.add_column(heading, justify="left" if heading == "system" else "right")
    for system in SYSTEMS:
        rates = [rate(done.answers, system), *(rate(done.answers, system, kind=kind) for kind in KINDS)]
        table.add_row(system, *map(percent, rates), style="bold" if system == "model" else "")
    return table


def _directions(done: Demo) -> Table:
    from .corpus import LANGUAGES
    from .evaluate import rate

    table = Table(title="The model by direction, %", title_justify="left")
    for heading in ("from", *(f"to {name}" for name in LANGUAGES.values())):
        table.add_column(heading, justify="left" if heading == "from" else "right")
    for source, name in LANGUAGES.items():
        cells = [
            percent(rate(done.answers, "model", direction=(source, target))) if source != target else ""
            for target in LANGUAGES
        ]
        table.add_row(name, *cells)
    return table


def _examples(done: Demo) -> Table:
    table = Table(title="Examples", title_justify="left", show_header=True)
    for heading in ("typed", "written by the model", ""):
        table.add_column(heading)
    for shown in done.shown:
        right = shown.output == shown.reference
        verdict = "[green]right[/green]" if right else f"[red]wrong[/red]: {escape(shown.reference)}"
        table.add_row(escape(shown.source), escape(shown.output), verdict)
    return table


def percent(share: float) -> str:
    """A share in per cent; 100.0 only if it is all."""
    return f"{min(share * 100, 99.9) if share < 1 else 100:.1f}"


# --- the prompt -------------------------------------------------------------------------------------------------------


def prompt(translate: Callable[[str], str], console: Console, read: Callable[[str], str] = input) -> None:
    """Take lines until an empty one, Ctrl-D or Ctrl-C; say so when one is unlike anything the model was trained on."""
    console.print("\nYour turn: a date, a time, a number or an amount, such as [bold]<2fr> 3:05 PM[/bold]")
    console.print("(<2en>, <2de>, <2fr> or <2zh> says what to write; an empty line ends it)", style="dim")
    while typed := _read(read, "> "):
        line = _tagged(typed, read)
        if line is None:
            console.print("Not one of en, de, fr and zh.", style="yellow")
        else:
            console.print(*reply(line, translate), sep="\n", highlight=False, soft_wrap=True)


def reply(line: str, translate: Callable[[str], str]) -> list[str]:
    """What to print for a line with a tag: the translation, after a warning where it is no more than a guess."""
    from .corpus import unlike

    why = unlike(line)
    output = escape(translate(line))
    if why is None:
        return [f"[green]{output}[/green]"]
    return [f"[yellow]Unlike anything it was trained on:[/yellow] {escape(why)}", f"Its guess: [dim]{output}[/dim]"]


def _tagged(line: str, read: Callable[[str], str]) -> str | None:
    """The line with a tag; the target language is asked for where it has none. None if the answer is no language."""
    from regard.text.lines import split_tag, tag

    from .corpus import LANGUAGES

    if split_tag(line)[0] is not None:
        code, rest = split_tag(line)
        return f"{tag(code)} {rest.strip()}" if code in LANGUAGES else None
    code = _read(read, "  into en, de, fr or zh? ").lower()
    return f"{tag(code)} {line}" if code in LANGUAGES else None


def _read(read: Callable[[str], str], question: str) -> str:
    try:
        return read(question).strip()
    except (EOFError, KeyboardInterrupt):
        return ""
