"""`regard sweep`: a line for each trial, and in the end a table of the best."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.apps.cli import cell, console_on, say, status, takes, write, write_json
from regard.apps.options import Json
from regard.apps.training import File, Set, read_recipe
from regard.errors import Interrupted

from .settings import Sweeping

if TYPE_CHECKING:
    from .record import Sweep, Trial

_SHOWN = 10  #: Trials in the table.


@takes(sweeping=Sweeping)
def sweep(
    recipe_file: File,
    sweeping: Sweeping,
    out: Annotated[Path, typer.Option(help="Directory of the sweep; the same command again goes on there.")],
    tried: Annotated[
        list[str],
        typer.Option("--try", metavar="TABLE.KEY=VALUES", help="A..B (numbers) or A,B,C (choices); may be repeated."),
    ],
    fixed: Set = None,
    as_json: Json = False,
) -> None:
    """Search settings of a recipe by many trainings, on validation data alone."""
    from .space import pairs_of
    from .sweep import sweep as search

    recipe, pairs = read_recipe(recipe_file, fixed), pairs_of(tried)
    metric = sweeping.metric or recipe.train.validate_with
    errors = console_on(sys.stderr)
    try:
        with status("preparing", errors) as tell:

            def hear(trial: Trial) -> None:
                if trial.state == "running":
                    tell(f"trial {trial.number} of {sweeping.trials}: {_came_of(trial, metric)}")
                else:
                    say(errors, f"trial {trial.number}: {_in_words(trial.settings)}: {_came_of(trial, metric)}")

            found = search(recipe, out, pairs, sweeping, progress=hear)
    except (Interrupted, KeyboardInterrupt):
        say(errors, f"Stopped; what is done is kept in {out}. The same command goes on from there.")
        raise typer.Exit(130) from None
    if as_json:
        write_json(found.model_dump(mode="json"))
        return
    _show(found, out)


def _in_words(settings: dict[str, object]) -> str:
    return ", ".join(f"{key} {_short(value)}" for key, value in settings.items())


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)


def _came_of(trial: Trial, metric: str) -> str:
    """What came of a trial up to now."""
    if trial.state == "failed":
        return f"failed: {trial.why}"
    if not trial.scores:
        return _in_words(trial.settings)
    update, score = trial.scores[-1] if trial.score is None else (trial.update, trial.score)
    shown = "no number" if score is None else f"{score:.4f}"
    pruned = "pruned at " if trial.state == "pruned" else ""
    return f"{metric} {shown}, {pruned}update {update:,}, {trial.seconds:,.0f} s"


def _show(found: Sweep, out: Path) -> None:
    from rich.table import Table

    console = console_on(sys.stdout)
    table = Table(box=None, pad_edge=False)
    for heading in ("trial", found.asked.metric, *found.asked.space, "update", "seconds"):
        table.add_column(cell(heading), justify="right")
    for trial in found.ranked[:_SHOWN]:
        values = (_short(trial.settings[key]) for key in found.asked.space)
        row = str(trial.number), f"{trial.score:.4f}", *values, f"{trial.update:,}", f"{trial.seconds:,.0f}"
        table.add_row(*map(cell, row))
    console.print(table, highlight=False)
    number = {state: sum(trial.state == state for trial in found.trials) for state in ("complete", "pruned", "failed")}
    write(f"{len(found.trials)} trials: " + ", ".join(f"{many} {state}" for state, many in number.items()) + "\n")
    if found.importance:
        ranked = sorted(found.importance.items(), key=lambda each: -each[1])
        write("what mattered: " + ", ".join(f"{key} {share:.0%}" for key, share in ranked) + "\n")
    write(f"{out / 'best.toml'}\n{out / 'best'}\n")
