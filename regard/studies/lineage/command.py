"""`regard lineage`: the families of the lineage trained on one corpus with equal time, and one report of them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.apps.terminal import console_on, write
from regard.errors import DataError, RecipeError

if TYPE_CHECKING:
    from rich.console import Console

    from .runs import Run

__all__ = ["lineage"]

_MINUTES = 15.0
_QUICK = 2.0
"""Minutes of training for each family: with preparing and scoring five of them, it is done in twenty."""


def lineage(
    out: Annotated[Path, typer.Option(metavar="DIR", help="For runs and report; the same one goes on.")],
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="What REGARD_DATA is for the recipes: it holds multi30k/.")
    ] = None,
    source: Annotated[Path | None, typer.Option(help="Train on this instead, a line a sentence.")] = None,
    target: Annotated[Path | None, typer.Option(help="Its translations.")] = None,
    valid_source: Annotated[Path | None, typer.Option(help="Dev set; else some pairs are split off.")] = None,
    valid_target: Annotated[Path | None, typer.Option(help="Dev set; else some pairs are split off.")] = None,
    test_source: Annotated[Path | None, typer.Option(help="Test set; else the dev set is reported.")] = None,
    test_reference: Annotated[Path | None, typer.Option(help="Its translations, untouched.")] = None,
    from_: Annotated[str | None, typer.Option("--from", metavar="CODE", help="Source language.")] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="CODE", help="Target language.")] = None,
    families: Annotated[str, typer.Option(metavar="A,B", help="Which; every one that has a recipe.")] = "",
    recipes: Annotated[Path, typer.Option(metavar="DIR", help="Holds FAMILY.toml for each.")] = Path(
        "recipes/multi30k-de-en"
    ),
    minutes: Annotated[float, typer.Option(min=0.001, help="Of training for each run.")] = _MINUTES,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each family; more may follow on another day.")] = 1,
    quick: Annotated[bool, typer.Option("--quick", help="Five families, two minutes each.")] = False,
    gold: Annotated[Path | None, typer.Option(help="Gold links for alignment error rates, with --gold-text.")] = None,
    gold_text: Annotated[Path | None, typer.Option(help="Their pairs, a line `source ||| target` each.")] = None,
    extrapolation: Annotated[
        bool,
        typer.Option(
            "--extrapolation/--no-extrapolation",
            help="Train five position schemes on short pairs, a run's time in all.",
        ),
    ] = True,
    language: Annotated[str, typer.Option(metavar="en|zh", help="Of the page, at first.")] = "en",
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="TABLE.KEY=VALUE", help="Replace a value of every recipe.")
    ] = None,
) -> None:
    """Train the families on one corpus, with equal data, vocabulary, time and search, and compare them."""
    from .report import compose
    from .report_page import LANGUAGES, page
    from .runs import QUICK, builtin, plan_runs
    from .table import results

    if language not in LANGUAGES:  # said now, not after hours of training
        raise DataError(f"--language is {language}; the page speaks {' or '.join(LANGUAGES)}.")
    if (gold is None) != (gold_text is None):
        raise RecipeError("--gold holds the links of the pairs in --gold-text; give both.")
    files = {
        "source": source,
        "target": target,
        "valid_source": valid_source,
        "valid_target": valid_target,
        "source_language": from_,
        "target_language": to,
    }
    table: dict[str, Any] | None = {key: str(value) for key, value in files.items() if value is not None} or None
    place = str(data) if data is not None else os.environ.get("REGARD_DATA")
    if table is not None:
        if source is None or data is not None:
            raise RecipeError("files of your own begin with --source and --target, and go without --data.")
        if (test_source is None) != (test_reference is None):
            raise RecipeError("--test-source and --test-reference are the two sides of one set; give both.")
        if test_source is not None:
            table["test"] = {"test": {"source": str(test_source), "reference": str(test_reference)}}
    elif place is None:
        table = builtin(out / "corpus")
    variables = {"REGARD_DATA": place} if place and table is None else {}
    chosen = [name for name in families.replace(",", " ").split() if name]
    more = list(settings or ())
    if quick:
        chosen, minutes, more = chosen or list(QUICK), min(minutes, _QUICK), ["search.beam=1", *more]
    runs = plan_runs(
        out,
        recipes,
        families=chosen,
        minutes=minutes,
        seeds=seeds,
        variables=variables,
        data=table,
        overrides=more,
    )
    schemes = _train_all(runs, seeds, extrapolation, out, variables)
    both = (gold_text, gold) if gold_text is not None and gold is not None else None
    with console_on(sys.stderr).status("") as status:
        whole = compose(results(out, variables), out, gold=both, schemes=schemes, progress=status.update)
    (out / "results" / "report.json").write_text(_json(whole), encoding="utf-8")
    (out / "report.html").write_text(page(whole, language=language), encoding="utf-8")
    write(f"written: {out / 'report.html'}\n")


def _train_all(runs: Sequence[Run], seeds: int, extrapolation: bool, out: Path, variables: dict[str, str]) -> list[Run]:
    """Train what is not trained yet, showing the table after each seed; returns the runs of the position schemes."""
    from .extrapolation import plan_schemes
    from .runs import collect

    console = console_on(sys.stderr)
    for number, run in enumerate(runs, start=1):
        _train(run, f"run {number} of {len(runs)}: {run.family}, seed {run.seed}", console)
        collect(run)
        if number % (len(runs) // seeds) == 0:
            write(_tabulate(out, variables))
    schemes = plan_schemes(runs) if extrapolation else []
    for number, run in enumerate(schemes, start=1):
        _train(run, f"position scheme {number} of {len(schemes)}: {run.family}", console)
        collect(run)
    return schemes


def _train(run: Run, title: str, console: Console) -> None:
    from regard.apps.training import Display
    from regard.tasks.fit import Interrupted

    from .runs import train

    if run.done:
        console.print(f"{title}: done before", highlight=False, soft_wrap=True)
    else:
        console.print(title, highlight=False, soft_wrap=True)
        try:
            with Display(console) as display:
                train(run, display)
        except (Interrupted, KeyboardInterrupt):
            console.print("Stopped; the same command goes on where it was.", highlight=False, soft_wrap=True)
            raise typer.Exit(130) from None


def _tabulate(out: Path, variables: dict[str, str]) -> str:
    """Write the table of all runs that are done; returns it."""
    from .table import gather, markdown, results

    gathered = gather(results(out, variables))
    place = out / "results"
    (place / "lineage.json").write_text(_json(gathered), encoding="utf-8")
    (place / "lineage.md").write_text(markdown(gathered), encoding="utf-8")
    return markdown(gathered)


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"
