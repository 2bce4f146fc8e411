"""The words that make models: train, plan, prepare, init, import, export, quantize, shortlist, demo, get.

Tasks are imported when a word is used.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.apps.terminal import console_on, say, write, write_json
from regard.errors import DataError, RecipeError

if TYPE_CHECKING:
    from regard.recipe import Recipe

Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="TABLE.KEY=VALUE", help="Replace a value of the recipe.")
]


def train(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="RECIPE.toml | SOURCE TARGET", help="A recipe; or raw parallel text (.tsv, .jsonl, .parquet, .tmx)."
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="Directory of the run; runs/NAME if a recipe is given.")] = None,
    settings: Set = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint.")] = False,
    valid_source: Annotated[Path | None, typer.Option(help="Dev set; else some pairs are split off.")] = None,
    valid_target: Annotated[Path | None, typer.Option(help="Dev set; else some pairs are split off.")] = None,
    from_: Annotated[str | None, typer.Option("--from", metavar="CODE", help="Source language.")] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="CODE", help="Target language.")] = None,
) -> None:
    """Train a model from a recipe, or from two text files."""
    extra = {
        "valid_source": valid_source,
        "valid_target": valid_target,
        "source_language": from_,
        "target_language": to,
    }
    given = {key: str(value) for key, value in extra.items() if value is not None}
    if _is_recipe(files):
        if given:
            keys = ", ".join(f"--set data.{key}=…" for key in given)
            raise RecipeError(f"{files[0]}: a recipe names its own files and languages; use {keys} to replace them.")
        recipe = _recipe(files[0], settings)
        place = out or Path("runs") / (recipe.name or files[0].stem)
    elif out is None:
        raise RecipeError("--out is missing: name a directory for the run, such as --out runs/first.")
    else:
        place = out
        held = out / "recipe.toml"
        recipe = _recipe(held, settings) if resume and held.exists() else _chosen(files, given, out.name, settings)
    _fit(recipe, place, resume)


def _is_recipe(files: list[Path]) -> bool:
    if len(files) > 2:
        raise DataError(f"{len(files)} files were given; give a recipe, or a source and a target.")
    from regard.text.formats import holds_both

    first = files[0].name
    if len(files) == 1 and not (first.endswith(".toml") or holds_both(first)):
        raise DataError(
            f"{files[0]}: one file alone must be a recipe (.toml) or hold both sides (.tsv, .jsonl, .parquet, .tmx); "
            "give the target's file too."
        )
    if len(files) == 2 and any(file.suffix == ".toml" for file in files):
        raise DataError("give either a recipe or a source and a target, not both.")
    return first.endswith(".toml")


def _recipe(path: Path, settings: list[str] | None) -> Recipe:
    from regard import recipe

    # Only what names a file or a folder: a foreign recipe must not carry a password off into a bundle. A value may be
    # longer than any path (LS_COLORS), for which Path.exists raises an error and os.path.exists does not.
    folders = {name: value for name, value in os.environ.items() if os.path.exists(value)}
    return recipe.load(path, folders, settings or ())


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
    from regard.apps.training import Display
    from regard.errors import Interrupted
    from regard.tasks.fit import fit, is_main_process
    from regard.tasks.open import use_of

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


def plan(
    recipe_file: Annotated[Path, typer.Argument(metavar="RECIPE.toml", help="A recipe.")],
    out: Annotated[Path | None, typer.Option(help="Directory of the run; runs/NAME if left out.")] = None,
    settings: Set = None,
    measure: Annotated[bool, typer.Option("--measure/--no-measure", help="Train for a few seconds to time it.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """What a run will need, before it begins: memory, FLOPs, disk and time, here and on other hardware."""
    from regard.tasks.plan import plan as foresee

    recipe = _recipe(recipe_file, settings)
    place = out or Path("runs") / (recipe.name or recipe_file.stem)
    with console_on(sys.stderr).status("looking at the data") as status:
        found = foresee(
            recipe, place, measure=measure, progress=lambda what, number: status.update(f"{number:,} {what}")
        )
    if as_json:
        write_json(found.to_dict())
        return
    from regard.apps.show import show_plan

    show_plan(found, console_on(sys.stdout))


def prepare(
    recipe_file: Annotated[Path, typer.Argument(metavar="RECIPE.toml", help="A recipe.")],
    out: Annotated[Path | None, typer.Option(help="Directory of the run; runs/NAME if left out.")] = None,
    settings: Set = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes that encode a large corpus; every core if left out.")
    ] = None,
) -> None:
    """Tokenise the data once into the store that training reads, so that `train` finds it there."""
    from regard.data.workers import cores
    from regard.tasks import prepare as task
    from regard.tasks.tokenizers import given_by

    recipe = _recipe(recipe_file, settings)
    place = out or Path("runs") / (recipe.name or recipe_file.stem)
    console = console_on(sys.stderr)
    with console.status("preparing") as status:
        made = task.prepare(
            recipe.corpus,
            recipe.spelling,
            place,
            given=given_by(recipe),
            workers=workers or cores(),
            progress=lambda what, number: status.update(f"{number:,} {what}"),
        )
    source, target = len(made.source_tokenizer), len(made.target_tokenizer)
    write(f"{made.report}\n{source:,} source tokens, {target:,} target tokens\n")
    write(f"{len(made.train):,} pairs to learn from, {len(made.valid):,} to validate with, ready for {place}\n")


def init(
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Where to write; left out: print.")] = None,
    source: Annotated[str, typer.Option(help="Source side of the training data.")] = "train.source",
    target: Annotated[str, typer.Option(help="Target side of the training data.")] = "train.target",
    from_: Annotated[str, typer.Option("--from", metavar="CODE", help="Source language.")] = "",
    to: Annotated[str, typer.Option("--to", metavar="CODE", help="Target language.")] = "",
) -> None:
    """Write a commented recipe: every key with its meaning and its default."""
    from regard.recipe.commented import template

    data = {"source": source, "target": target, "source_language": from_, "target_language": to}
    text = template({"data": data})
    if file is None:
        write(text)
        return
    try:
        with file.open("x", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
    except FileExistsError:
        raise RecipeError(f"{file}: exists already; choose another name, or remove it.") from None


def import_(
    directory: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="A Marian (OPUS-MT) model of Hugging Face.")],
    out: Annotated[Path, typer.Option(help="Where to write the bundle.")],
    golden: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Lines to verify the bundle with; left out: made of its tokens.")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Compare with transformers, if it is installed.")
    ] = True,
) -> None:
    """Make a bundle of another library's model."""
    from regard.exchange import import_marian
    from regard.text import read_lines

    found = import_marian(directory, out, lines=read_lines(golden) if golden else (), verify=verify)
    what = "Not compared with transformers." if found is None else str(found)
    say(console_on(sys.stderr), what)
    write(f"{out}\n")


def export(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="Directory of a bundle.")],
    to: Annotated[str, typer.Option(metavar="FORMAT", help="huggingface or ctranslate2.")],
    out: Annotated[Path, typer.Option(help="A new directory for it.")],
    quantization: Annotated[
        str | None, typer.Option(metavar="TYPE", help="Of CTranslate2's weights: float32, int8, float16, …")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Translate the golden sentences there too, and compare.")
    ] = True,
) -> None:
    """Write a bundle for another library, and say what differs there."""
    from regard.exchange import export as write_for

    found = write_for(bundle, to, out, quantization=quantization, verify=verify)
    what = "Not verified." if found is None else str(found)
    say(console_on(sys.stderr), what)
    write(f"{out}\n")


def quantize(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="Directory of a bundle.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Directory of the smaller one.")],
    to: Annotated[str, typer.Option(metavar="KIND", help="int8 or bfloat16.")] = "int8",
    source: Annotated[Path | None, typer.Option(help="Lines to compare the two on; else the golden sentences.")] = None,
    reference: Annotated[Path | None, typer.Option("--reference", "--target", help="Their translations.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write a bundle with weights that take less room, and measure what that changes."""
    from regard.tasks.quantize import quantize as make
    from regard.text import read_lines

    if reference is not None and source is None:
        raise DataError("--reference holds the translations of --source; give both, or leave it out.")
    with console_on(sys.stderr).status("reading") as status:
        found = make(
            bundle,
            out,
            to=to,
            source=[] if source is None else read_lines(source),
            reference=[] if reference is None else read_lines(reference),
            progress=status.update,
        )
    if as_json:
        write_json(found.to_dict())
        return
    write(f"weights: {found.bytes_before / 2**20:,.1f} MB, now {found.bytes_after / 2**20:,.1f} MB\n")
    if found.lines:
        write(f"translated as before, in float32: {found.same:,} of {found.lines:,} lines\n")
    for name, (before, after) in (found.scores or {}).items():
        write(f"{name}: {before:.2f}, now {after:.2f}\n")
    write(f"{out}\n")


def shortlist(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="Directory of a bundle.")],
    source: Annotated[Path, typer.Option(help="Source lines, best those that it was trained on.")],
    target: Annotated[Path, typer.Option("--target", "--reference", help="Their translations.")],
    each: Annotated[int, typer.Option(help="Most target tokens that a source token goes with.")] = 100,
    always: Annotated[int, typer.Option(help="The most frequent ones, which may always come.")] = 100,
    pairs: Annotated[int, typer.Option(help="Most pairs to learn from, taken from all over.")] = 500_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Learn which target tokens go with each source token, kept in the bundle for `regard translate --shortlist`."""
    from regard.tasks.shortlist import shortlist as learn
    from regard.text import read_lines

    sides = read_lines(source), read_lines(target)
    with console_on(sys.stderr).status("learning"):
        found = learn(bundle, *sides, each=each, always=always, most=pairs)
    if as_json:
        write_json(found.to_dict())
        return
    write(f"learnt from {found.pairs:,} pairs, measured on {found.measured:,} others\n")
    write(f"tokens in the list of a line: {found.tokens:,.1f} on average, of {found.vocabulary:,}\n")
    write(f"tokens of translations that are in it: {found.covered:.2%}\n")


def demo(
    out: Annotated[Path, typer.Option(help="Directory for what it makes.")] = Path("demo"),
    ask: Annotated[bool, typer.Option("--input/--no-input", help="Take lines from you at the end.")] = True,
) -> None:
    """Train a small Transformer on the built-in corpus in minutes, and show what it can do."""
    from regard.studies.demo.show import demo as run

    run(out, ask=ask)


def get(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Which one; left out: list them.")] = None,
    out: Annotated[Path | None, typer.Option(help="Directory; data/NAME if left out.")] = None,
    base: Annotated[str | None, typer.Option(metavar="URL", help="A mirror instead of the official address.")] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Only verify what is there.")] = False,
) -> None:
    """Fetch a data set from its official address: verified, resumed where it stopped."""
    from rich.progress import DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

    from regard.tasks.get import CATALOGUE
    from regard.tasks.get import get as fetch

    if name is None:
        write("".join(f"{known}\t{dataset.about}\n" for known, dataset in CATALOGUE.items()))
        return
    columns = (TextColumn("{task.description}"), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console_on(sys.stderr)) as bar:
        tasks: dict[str, TaskID] = {}

        def hear(file: str, there: int, size: int) -> None:
            if file not in tasks:
                tasks[file] = bar.add_task(file, total=size)
            bar.update(tasks[file], completed=there)

        paths = fetch(name, out or Path("data") / name, base=base, offline=offline, progress=hear)
    write("".join(f"{path}\n" for path in paths))
