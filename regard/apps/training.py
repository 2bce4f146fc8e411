"""`regard train`, and how a run's progress is shown: a bar on a terminal, plain lines elsewhere.

Tasks are imported when the command is used.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.apps.cli import console_on, say, seldom, write
from regard.errors import DataError, RecipeError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

    from regard.recipe import Recipe

Event = Mapping[str, Any]  # what `fit` tells; the key "event" says which kind it is
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="TABLE.KEY=VALUE", help="Replace a value of the recipe.")
]
Out = Annotated[Path | None, typer.Option(help="Directory of the run; runs/NAME if a recipe is given.")]
File = Annotated[Path, typer.Argument(metavar="RECIPE.toml", help="A recipe.")]
Dev = Annotated[Path | None, typer.Option(help="Dev set; else some pairs are split off.")]
From = Annotated[str, typer.Option("--from", metavar="CODE", help="Source language.")]
To = Annotated[str, typer.Option("--to", metavar="CODE", help="Target language.")]


def train(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="RECIPE.toml | SOURCE TARGET", help="A recipe; or raw parallel text (.tsv, .jsonl, .parquet, .tmx)."
        ),
    ],
    out: Out = None,
    settings: Set = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint.")] = False,
    valid_source: Dev = None,
    valid_target: Dev = None,
    from_: From = "",
    to: To = "",
) -> None:
    """Train a model from a recipe, or from two text files."""
    extra = {"valid_source": valid_source, "valid_target": valid_target, "source_language": from_}
    given = {key: str(value) for key, value in {**extra, "target_language": to}.items() if value}
    if _is_recipe(files):
        if given:
            keys = ", ".join(f"--set data.{key}=…" for key in given)
            raise RecipeError(f"{files[0]}: a recipe names its own files and languages; use {keys} to replace them.")
        recipe, out = recipe_and_run(files[0], out, settings)
    elif out is None:
        raise RecipeError("--out is missing: name a directory for the run, such as --out runs/first.")
    else:
        held = out / "recipe.toml"
        recipe = read_recipe(held, settings) if resume and held.exists() else _chosen(files, given, out.name, settings)
    _fit(recipe, out, resume)


def _is_recipe(files: list[Path]) -> bool:
    if len(files) > 2:
        raise DataError(f"{len(files)} files were given; give a recipe, or a source and a target.")
    from regard.text.lines import holds_both

    first = files[0].name
    if len(files) == 1 and not (first.endswith(".toml") or holds_both(first)):
        raise DataError(
            f"{files[0]}: one file alone must be a recipe (.toml) or hold both sides (.tsv, .jsonl, .parquet, .tmx); "
            "give the target's file too."
        )
    if len(files) == 2 and any(file.suffix == ".toml" for file in files):
        raise DataError("give either a recipe or a source and a target, not both.")
    return first.endswith(".toml")


def read_recipe(path: Path, settings: list[str] | None) -> Recipe:
    """The recipe of a command line; variables in it stand for folders that the environment names."""
    from regard.recipe import load

    # Only what names a file or a folder: a foreign recipe must not carry a password off into a bundle. A value may be
    # longer than any path (LS_COLORS), for which Path.exists raises an error and os.path.exists does not.
    return load(path, {name: value for name, value in os.environ.items() if os.path.exists(value)}, settings or ())


def recipe_and_run(path: Path, out: Path | None, settings: list[str] | None) -> tuple[Recipe, Path]:
    """The recipe of a command line, and the directory of its run."""
    recipe = read_recipe(path, settings)
    return recipe, out or Path("runs") / (recipe.name or path.stem)


def _chosen(files: list[Path], given: dict[str, str], name: str, settings: list[str] | None) -> Recipe:
    from regard import recipe
    from regard.tasks.choose import choose
    from regard.tasks.fit import is_main_process

    tables = {"source": str(files[0]), **({"target": str(files[1])} if len(files) > 1 else {}), **given}
    choice = choose(recipe.validate({"data": tables}, name="the command line").data, name=name)
    made = recipe.parse(recipe.to_toml(choice.recipe), overrides=settings or ()) if settings else choice.recipe
    console = console_on(sys.stderr)
    console.quiet = not is_main_process()
    for reason in choice.reasons:
        say(console, f"· {reason}")
    say(console, f"The recipe, where it differs from the defaults:\n\n{recipe.to_toml(made, defaults=False)}")
    return made


def _fit(recipe: Recipe, out: Path, resume: bool) -> None:
    from regard.errors import Interrupted
    from regard.tasks.engine import use_of
    from regard.tasks.fit import fit, is_main_process

    console = console_on(sys.stderr)
    console.quiet = not is_main_process()
    again = shlex.join(["regard", "train", str(out / "recipe.toml"), "--out", str(out), "--resume"])
    try:
        with Display(console) as display:
            bundle = fit(recipe, out, resume=resume, callbacks=[display])
    except (Interrupted, KeyboardInterrupt) as stop:
        held = f"; everything is saved in {stop.checkpoint}" if isinstance(stop, Interrupted) else " at once"
        say(console, f"Stopped{held}.\nGo on with:  {again}")
        raise typer.Exit(130) from None
    say(console, f"Done. Use it with:  {use_of(recipe, bundle)}")
    if is_main_process():
        write(f"{bundle}\n")


_SAID = {
    "batch": "batches of {tokens:,} tokens, as many as fit in memory",
    "precision": "{chosen}: {because}",
    "cut": "update {update:,}: a batch of {target_tokens:,} target tokens did not fit in memory and was cut in two; "
    "lower data.batch_tokens if this goes on",
    "damaged": "{why}\nIt was renamed, and the run goes on from {instead}",
}
"""What is said of the events that are a sentence and no more."""


class Display:
    """Hears the events of `fit`; a context in which a progress bar stands where there is a terminal."""

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self.console = console
        self.tell = seldom(console)
        self.clock = False  # whether the run stops by the clock
        self.task: TaskID | None = None
        self.bar = Progress(
            *(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(compact=True)),
            TextColumn("{task.fields[note]}"),
            console=console,
            disable=not console.is_terminal,
            refresh_per_second=2,  # drawing takes a core from training
        )

    def __enter__(self) -> Display:
        self.bar.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.bar.stop()

    def __call__(self, event: Event) -> None:
        """Show one event; kinds that are not known are left out."""
        if sentence := _SAID.get(event["event"]):
            self._say(sentence.format_map(event))
        elif show := getattr(self, f"_{event['event']}", None):
            show(event)

    def _say(self, text: str) -> None:
        say(self.console, text)

    def _prepare(self, event: Event) -> None:
        if self.task is None:
            self.task = self.bar.add_task("preparing", total=None, note="")
        note = f"{event['count']:,} {event['what']}"
        self.bar.update(self.task, note=note)
        if not self.console.is_terminal:
            self.tell(note)

    def _begin(self, event: Event) -> None:
        self._say(f"begun with the parameters of {event['bundle']}; new: {', '.join(event['new']) or 'nothing'}")

    def _start(self, event: Event) -> None:
        if self.task is not None:
            self.bar.remove_task(self.task)
        self._say(event["filters"])
        source, target = event["tokens"]
        tokens = f"{source:,}" if source == target else f"{source:,} and {target:,}"
        shared = f" in {event['processes']} processes" if event["processes"] > 1 else ""
        self._say(
            f"{event['parameters']:,} parameters, {tokens} tokens, {event['precision']} on {event['device']}{shared}; "
            "Ctrl-C saves and stops"
        )
        if event.get("resumed_from"):
            self._say(f"going on from {event['resumed_from']}")
        before, now = event["threads"]
        if before != now and event["device"] == "cpu":
            self._say(
                f"saved with {before} threads, going on with {now}: as good, but not bit for bit the run that was "
                f"never stopped; OMP_NUM_THREADS={before} goes on exactly"
            )
        self.clock = bool(event.get("minutes"))
        total = round(60 * event["minutes"]) if self.clock else event["max_updates"]
        self.task = self.bar.add_task("training, seconds" if self.clock else "training", total=total, note="")

    def _train(self, event: Event) -> None:
        note = f"loss {event['loss']:.3f}, {event['tokens_per_second']:,.0f} tokens/s, epoch {event['epoch'] + 1}"
        if self.task is not None:
            done = round(event["trained"]) if self.clock else event["update"]
            self.bar.update(self.task, completed=done, note=note)
        if not self.console.is_terminal:
            self.tell(f"update {event['update']:,}: {note}")

    def _validate(self, event: Event) -> None:
        forms = {"perplexity": "perplexity {:.2f} per token", "bleu": "BLEU {:.2f}"}
        forms |= {"accuracy": "accuracy {:.2f} %", "f1": "F1 {:.2f} %"}
        scores = "".join(f", {form.format(event[name])}" for name, form in forms.items() if name in event)
        better = " (best so far)" if event["improved"] else ""
        self._say(f"update {event['update']:,}: dev loss {event['loss']:.4f}{scores}{better}")

    def _unscored(self, event: Event) -> None:
        files = f" ({', '.join(event['files'])})" if event["files"] else ""
        self._say(f"{event['set']}{files}: was not scored: {event['why']}")

    def _score(self, event: Event) -> None:
        for score in event["scores"].values():
            interval = score["interval"]
            spread = f" [{interval[0]:.2f}, {interval[1]:.2f}]" if interval else ""
            self._say(f"{event['set']}: {score['name']} {score['value']:.2f}{spread} {score['signature']}")
