"""Before a run: `regard init` writes its recipe, `plan` tells what it will need, `prepare` tokenises its data."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from regard.apps.cli import cell, console_on, new_table, say, status, write, write_json
from regard.apps.options import Json
from regard.apps.training import File, From, Out, Set, To, recipe_and_run
from regard.errors import RecipeError
from regard.inspection.command import show_topic

if TYPE_CHECKING:
    from .plan import Plan


def init(
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Where to write; left out: print.")] = None,
    source: Annotated[str, typer.Option(help="Source side of the training data.")] = "train.source",
    target: Annotated[str, typer.Option(help="Target side of the training data.")] = "train.target",
    from_: From = "",
    to: To = "",
) -> None:
    """Write a commented recipe: every key with its meaning and its default."""
    from regard.recipe.schema import validate

    from .commented import template

    data = {"source": source, "target": target, "source_language": from_, "target_language": to}
    validate({"data": data}, name="the recipe", trained=True)
    text = template({"data": data})
    if file is None:
        write(text)
        return
    try:
        with file.open("x", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
    except FileExistsError:
        raise RecipeError(f"{file}: exists already; choose another name, or remove it.") from None


def counted(tell: Callable[[str], None]) -> Callable[[str, int], None]:
    """What tells how many of something a task has done."""
    return lambda what, number: tell(f"{number:,} {what}")


def prepare(
    recipe_file: File,
    out: Out = None,
    settings: Set = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes that encode a large corpus; every core if left out.")
    ] = None,
) -> None:
    """Tokenise the data once into the store that training reads, so that `train` finds it there."""
    from regard.data.shards import cores
    from regard.tasks.prepare import given_by
    from regard.tasks.prepare import prepare as make

    recipe, out = recipe_and_run(recipe_file, out, settings)
    with status("preparing") as tell:
        given, progress = given_by(recipe), counted(tell)
        made = make(recipe.corpus, recipe.spelling, out, given=given, workers=workers or cores(), progress=progress)
    source, target = made.vocabularies
    write(f"{made.report}\n{source:,} source tokens, {target:,} target tokens\n")
    write(f"{len(made.train):,} pairs to learn from, {len(made.valid):,} to validate with, ready for {out}\n")


def plan(
    recipe_file: File,
    out: Out = None,
    settings: Set = None,
    measure: Annotated[bool, typer.Option("--measure/--no-measure", help="Train for a few seconds to time it.")] = True,
    as_json: Json = False,
) -> None:
    """What a run will need, before it begins: memory, FLOPs, disk and time, here and on other hardware."""
    from .plan import plan as foresee

    recipe, out = recipe_and_run(recipe_file, out, settings)
    with status("looking at the data") as tell:
        found = foresee(recipe, out, measure=measure, progress=counted(tell))
    if as_json:
        write_json(found.to_dict())
    else:
        _show(found, console_on(sys.stdout))


def _show(found: Plan, console: Console) -> None:
    """What a run will need, topic by topic, and whether it fits."""
    about, chosen = "" if found.exact else "about ", " (as many as fit)" if found.chosen else ""
    source, target = found.tokens
    facts = {
        "parameters": f"{found.parameters:,}",
        **{f"  {part}": f"{count:,}" for part, count in found.parts.items()},
        "tokens": f"{source:,} source, {target:,} target",
        "pairs": f"{about}{found.pairs:,}",
        "tokens an epoch": f"{about}{found.source_tokens:,} source, {found.target_tokens:,} target, ends counted",
        "batches": f"of {found.batch_tokens:,} tokens{chosen}, about {found.batches:,} an epoch",
        "updates": f"{found.updates:,}, about {found.epochs:.1f} epochs",
        "model FLOPs": f"{found.flops_per_token:.3g} a target token, {found.flops:.3g} in all",
    }
    show_topic(console, "model and data", facts.items())
    for kind, parts in found.memory.items():
        show_topic(console, f"memory of training, {kind}", _sizes(parts))
    way = "fits" if found.fits else "does not fit; lower data.batch_tokens or train.chunk, or choose a smaller model"
    say(console, f"  {_bytes(found.free)} are free on {found.device}: the run {way}")
    show_topic(console, "disk", [*_sizes(found.disk), ("free", _bytes(found.disk_free))])
    if (measured := found.measured) is not None:
        title = f"time here ({measured.device}, {measured.precision}), from a few seconds of training"
        speed = f"{measured.tokens_per_second:,.0f} a second, batches of {measured.batch_tokens:,}"
        whole = f"{_duration(measured.seconds)}, without validation and saving"
        flops = f"{measured.flops_per_second:.3g} a second"
        show_topic(console, title, [("target tokens", speed), ("model FLOPs", flops), ("the whole run", whole)])
    say(console, "time elsewhere, estimated from data sheets", "bold")
    table = new_table("", "GPU", "the whole run", "memory", "peak TFLOP/s", "assumed use", "")
    for gpu in found.gpus:
        room = cell(f"{gpu.gigabytes} GB") if gpu.fits else cell(f"{gpu.gigabytes} GB: too little", "yellow")
        use = f"{gpu.teraflops:g}", f"{gpu.utilisation:.0%}"
        table.add_row("", gpu.name, _duration(gpu.seconds), room, *use, gpu.note)
    console.print(table, highlight=False)
    for note in found.notes:
        say(console, f"· {note}")


def _sizes(parts: Mapping[str, int]) -> list[tuple[str, str]]:
    return [*((name, _bytes(size)) for name, size in parts.items() if size), ("in all", _bytes(sum(parts.values())))]


def _bytes(size: int) -> str:
    return f"{size / 2**30:,.2f} GiB" if size >= 2**30 else f"{size / 2**20:,.1f} MiB"


def _duration(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:.0f} seconds"
