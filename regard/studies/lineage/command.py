"""`regard lineage`: the families of the lineage trained on one corpus with equal time, and one report of them."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import BaseModel, Field

from regard.apps.cli import console_on, status, takes, write
from regard.errors import DataError, RecipeError

from .html import LANGUAGES

if TYPE_CHECKING:
    from rich.console import Console

    from .runs import Run

_QUICK = 2.0
"""Minutes of training for each family: with preparing and scoring five of them, it is done in twenty."""


class Comparison(BaseModel, frozen=True):
    """What is compared: corpus, families, time. The command's flags are made of these fields."""

    data: Path | None = Field(
        None,
        description="what REGARD_DATA is for the recipes: it holds multi30k/",
        json_schema_extra={"metavar": "DIR"},
    )
    source: Path | None = Field(None, description="train on this instead, a line a sentence")
    target: Path | None = Field(None, description="its translations")
    valid_source: Path | None = Field(None, description="dev set; else some pairs are split off")
    valid_target: Path | None = Field(None, description="dev set; else some pairs are split off")
    test_source: Path | None = Field(None, description="test set; else the dev set is reported")
    test_reference: Path | None = Field(None, description="its translations, untouched")
    from_: str | None = Field(
        None, description="source language", json_schema_extra={"flag": "--from", "metavar": "CODE"}
    )
    to: str | None = Field(None, description="target language", json_schema_extra={"metavar": "CODE"})
    families: str = Field(
        "", description="which, between commas; every one that has a recipe", json_schema_extra={"metavar": "A,B"}
    )
    recipes: Path = Field(
        Path("recipes/multi30k-de-en"), description="holds FAMILY.toml for each", json_schema_extra={"metavar": "DIR"}
    )
    minutes: float = Field(15.0, description="of training for each run; 15 unless given")
    seeds: int = Field(1, description="runs of each family; more may follow on another day")
    quick: bool = Field(False, description="five families, two minutes each")
    gold: Path | None = Field(None, description="gold links for alignment error rates, with --gold-text")
    gold_text: Path | None = Field(None, description="their pairs, a line `source ||| target` each")
    extrapolation: bool = Field(True, description="train five position schemes on short pairs, a run's time in all")
    language: str = Field("en", description="of the page, at first", json_schema_extra={"metavar": "en|zh"})
    settings: tuple[str, ...] = Field(
        (),
        description="replace a value of every recipe",
        json_schema_extra={"flag": "--set", "metavar": "TABLE.KEY=VALUE"},
    )

    def check(self) -> None:
        """Raises RecipeError or DataError, before hours of training, for options that do not go together."""
        if self.language not in LANGUAGES:
            raise DataError(f"--language is {self.language}; the page speaks {' or '.join(LANGUAGES)}.")
        if not (math.isfinite(self.minutes) and self.minutes >= 0.001):
            raise RecipeError(f"--minutes is {self.minutes:g}; it must be 0.001 at least.")
        if self.seeds < 1:
            raise RecipeError(f"--seeds is {self.seeds}; it must be 1 at least.")
        if (self.gold is None) != (self.gold_text is None):
            raise RecipeError("--gold holds the links of the pairs in --gold-text; give both.")
        if (self.files or self.test_source) and (self.source is None or self.data is not None):
            raise RecipeError("files of your own begin with --source and --target, and go without --data.")
        if (self.test_source is None) != (self.test_reference is None):
            raise RecipeError("--test-source and --test-reference are the two sides of one set; give both.")

    @property
    def files(self) -> dict[str, Any]:
        """Keys of [data] that are given here in the place of the recipes' own."""
        keys = ("source", "target", "valid_source", "valid_target")
        given = {key: getattr(self, key) for key in keys} | {"source_language": self.from_, "target_language": self.to}
        table: dict[str, Any] = {key: str(value) for key, value in given.items() if value is not None}
        if table and self.test_source is not None:
            table["test"] = {"test": {"source": str(self.test_source), "reference": str(self.test_reference)}}
        return table


@takes(asked=Comparison)
def lineage(
    out: Annotated[Path, typer.Option(metavar="DIR", help="For runs and report; the same one goes on.")],
    asked: Comparison,
) -> None:
    """Train the families on one corpus, with equal data, vocabulary, time and search, and compare them."""
    from .report import compose
    from .report_page import page
    from .runs import QUICK, builtin, plan_runs
    from .table import results

    asked.check()
    table: dict[str, Any] | None = asked.files or None
    place = str(asked.data) if asked.data is not None else os.environ.get("REGARD_DATA")
    if table is None and place is None:
        table = builtin(out / "corpus")
    variables = {"REGARD_DATA": place} if place and table is None else {}
    chosen, overrides = asked.families.replace(",", " ").split(), list(asked.settings)
    runs = plan_runs(
        out,
        asked.recipes,
        families=chosen or (list(QUICK) if asked.quick else []),
        minutes=min(asked.minutes, _QUICK) if asked.quick else asked.minutes,
        seeds=asked.seeds,
        variables=variables,
        data=table,
        overrides=["search.beam=1", *overrides] if asked.quick else overrides,
    )
    schemes = _train_all(runs, asked.seeds, asked.extrapolation, out, variables)
    gold = None if asked.gold_text is None or asked.gold is None else (asked.gold_text, asked.gold)
    with status("") as tell:
        whole = compose(results(out, variables), out, gold=gold, schemes=schemes, progress=tell)
    (out / "results" / "report.json").write_text(_json(whole), encoding="utf-8")
    (out / "report.html").write_text(page(whole, language=asked.language), encoding="utf-8")
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
    from regard.errors import Interrupted

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
