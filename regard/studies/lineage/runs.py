"""The families trained alike: one corpus, one vocabulary, one search, equal minutes of training; a folder for each run.

A family's settings are data: a recipe of its name. What is equal is checked, not assumed.
"""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

from regard import recipe as recipes
from regard.errors import RecipeError
from regard.recipe import Recipe
from regard.tasks.fit import fit
from regard.text import split_tag, write_lines

from ..demo.corpus import Split, corpus

FAMILIES = ("seq2seq", "bahdanau", "luong", "convs2s", "lstmn-translator", "transformer")
"""In the order of the history."""
QUICK = ("seq2seq", "bahdanau", "luong", "convs2s", "transformer")
"""Those that learn something in two minutes."""

HYPOTHESES = "hypotheses.txt"
"""What a run wrote for the set that it is judged by, the last of what is kept of it."""

_SIZED_FOR = 15.0
"""Minutes that the recipes are sized for; with fewer, the warm-up is shorter in proportion."""
_OWN = ("batch_tokens", "layout", "pool")
"""Keys of `[data]` that are settings of a family and not the corpus."""
_LINES: dict[Split, int] = {"train": 2000, "valid": 40, "heldout": 80}
"""Of the built-in corpus, of each kind."""


@dataclass(frozen=True)
class Run:
    """A family with a seed, in its folder."""

    family: str
    seed: int
    recipe: Recipe
    out: Path
    """Of all the runs."""
    folder: str = "runs"
    variables: Mapping[str, str] = field(default_factory=dict)
    """That the recipe was read with."""

    @property
    def name(self) -> str:
        return f"{self.family}-{self.seed}"

    @property
    def path(self) -> Path:
        return self.out / self.folder / self.name

    @property
    def kept(self) -> Path:
        """Where that is which the figures are made of; where it is, the run itself may be on another machine."""
        return self.out / "results" / (self.folder if self.folder != "runs" else "") / self.name

    @property
    def done(self) -> bool:
        """Whether it is trained and scored, here or elsewhere; raises RecipeError if that was with other settings."""
        if (self.path / "results.json").exists():
            alike = _as_asked(recipes.load(self.path / "recipe.toml"), self.recipe)
        elif (self.kept / HYPOTHESES).exists():
            names = {name: f"${{{name}}}" for name in self.variables}
            text = (self.kept / "recipe.toml").read_text(encoding="utf-8")
            alike = _as_asked(recipes.parse(text, names), recipes.parse(_portable(self), names))
        else:
            return False
        if not alike:
            raise RecipeError(
                f"{self.path}: was trained with other settings, and runs of one comparison are equal; choose another "
                "--out, or the settings of before."
            )
        return True


def _as_asked(begun: Recipe, asked: Recipe) -> bool:
    """Whether a run was begun as it is asked for; a precision that was left to the machine is any."""
    if asked.train.precision == "auto":
        begun = begun.model_copy(update={"train": begun.train.model_copy(update={"precision": "auto"})})
    return begun == asked


def plan_runs(
    out: Path,
    folder: Path,
    *,
    families: Sequence[str] = (),
    minutes: float = 15.0,
    seeds: int = 1,
    variables: Mapping[str, str] | None = None,
    data: Mapping[str, Any] | None = None,
    overrides: Sequence[str] = (),
) -> list[Run]:
    """Every family with seed 1, then every one with seed 2, and so on; `folder` holds a recipe FAMILY.toml for each.

    Without `families`, those of FAMILIES that have a recipe there. `data` is a table [data] in the place of the
    recipes' own; `overrides` such as "train.clip=0.5" go to every recipe. Raises RecipeError for a family without a
    recipe, and for recipes that differ in data, vocabulary or search.
    """
    chosen = list(families) or [family for family in FAMILIES if (folder / f"{family}.toml").exists()]
    if not chosen:
        raise RecipeError(f"{folder}: no recipe of a family is here; name a folder that has some with --recipes.")
    for family in chosen:
        if not (folder / f"{family}.toml").exists():
            there = ", ".join(sorted(path.stem for path in folder.glob("*.toml"))) or "none"
            raise RecipeError(f"family {family}: {folder} has no {family}.toml; there is: {there}.")
    read = {
        family: _recipe(folder / f"{family}.toml", out, minutes, variables or {}, data, overrides) for family in chosen
    }
    _check_alike(read)
    return [
        Run(
            family,
            seed,
            recipe.model_copy(update={"seed": seed, "name": f"{family}-{seed}"}),
            out,
            variables=variables or {},
        )
        for seed in range(1, seeds + 1)
        for family, recipe in read.items()
    ]


def train(run: Run, report: Callable[[dict[str, Any]], None] | None = None) -> None:
    """Train and score a run, or go on with it where it was; raises Interrupted as `fit` does."""
    fit(run.recipe, run.path, resume=True, callbacks=[report] if report else [])
    shutil.rmtree(run.path / "checkpoints", ignore_errors=True)  # it is done: its bundle is what remains


def collect(run: Run) -> None:
    """Copy what is worth keeping of a run that is done (recipe, log, scores, what it wrote) to OUT/results.

    The recipe is written with the variables that it was read with, so that it names no path of this machine.
    """
    if not (run.path / "results.json").exists():
        return  # it was made elsewhere, and this is all that is here
    run.kept.mkdir(parents=True, exist_ok=True)
    for name in ("log.jsonl", "results.json"):
        shutil.copyfile(run.path / name, run.kept / name)
    (run.kept / "recipe.toml").write_text(_portable(run), encoding="utf-8")
    shutil.copyfile(run.path / "hypotheses" / f"{judged_by(run.recipe)}.txt", run.kept / HYPOTHESES)


def judged_by(recipe: Recipe) -> str:
    """The set of which all figures are: the first test set, or the dev set if there is none."""
    return next(iter(recipe.data.test), "dev")


def kept_recipe(folder: Path, out: Path, variables: Mapping[str, str]) -> Recipe:
    """The recipe that `collect` kept in `folder`, with the paths of this machine."""
    text = (folder / "recipe.toml").read_text(encoding="utf-8").replace('"./', f'"{out}/')
    recipe = recipes.parse(text, variables, name=str(folder / "recipe.toml"))
    return recipe.model_copy(update={"data": recipe.data.model_copy(update={"cache": str(out / "prepared")})})


def _portable(run: Run) -> str:
    """The recipe without paths of this machine: variables in their place, and a point for the folder of all runs.

    Only where a path begins, for folders have names such as `data` and `out`, which are parts of keys too.
    """
    data = run.recipe.data.model_copy(update={"cache": None})
    text = recipes.to_toml(run.recipe.model_copy(update={"data": data}))
    for name, value in run.variables.items():
        text = text.replace(f'"{value}/', f'"${{{name}}}/')
    return text.replace(f'"{run.out}/', '"./')


def builtin(folder: Path) -> dict[str, Any]:
    """Write the built-in corpus from German to English into a folder; returns its table [data]."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, lines in _LINES.items():
        pairs = [
            (split_tag(example.source)[1], example.target)
            for example in corpus(split, per_cell=lines)
            if (example.source_language, example.target_language) == ("de", "en")
        ]
        write_lines(folder / f"{split}.de", [pair[0] for pair in pairs])
        write_lines(folder / f"{split}.en", [pair[1] for pair in pairs])
    return {
        "source": str(folder / "train.de"),
        "target": str(folder / "train.en"),
        "valid_source": str(folder / "valid.de"),
        "valid_target": str(folder / "valid.en"),
        "source_language": "de",
        "target_language": "en",
        "test": {"heldout": {"source": str(folder / "heldout.de"), "reference": str(folder / "heldout.en")}},
    }


def _recipe(
    path: Path,
    out: Path,
    minutes: float,
    variables: Mapping[str, str],
    data: Mapping[str, Any] | None,
    overrides: Sequence[str],
) -> Recipe:
    """A family's recipe with the minutes that it has, and the store that all share."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"{path}: not valid TOML: {error}.") from None
    if data is not None:
        own = {key: value for key, value in tables.get("data", {}).items() if key in (*_OWN, "filters")}
        tables["data"] = {**own, **data}
        tables.setdefault("text", {})["shrink"] = True  # a small corpus has fewer tokens than the recipes ask for
    tables["data"]["cache"] = str(out / "prepared")
    recipe = recipes.parse(tomli_w.dumps(tables), variables, overrides, name=str(path))
    config = recipe.train
    timed = {
        "minutes": minutes,
        "max_updates": 10**9,
        "warmup": round(config.warmup * min(1.0, minutes / _SIZED_FOR)),
        "save_every": min(config.save_every, 200),
        "keep_checkpoints": 1,
    }
    return recipe.model_copy(update={"train": config.model_copy(update=timed)})


def _check_alike(read: Mapping[str, Recipe]) -> None:
    """Raises RecipeError for the first key that is not equal in all recipes."""

    def tables(recipe: Recipe) -> dict[str, Any]:
        return {
            "data": recipe.data.model_dump(exclude=set(_OWN)),
            "text": recipe.text.model_dump(),
            "search": recipe.search.model_dump(exclude={"batch_size"}),
        }

    (first, one), *others = read.items()
    for family, other in others:
        for table, values in tables(one).items():
            for key, value in values.items():
                if value != (found := tables(other)[table][key]):
                    raise RecipeError(
                        f"{first}.toml and {family}.toml differ in [{table}] {key} ({value!r}, {found!r}); families "
                        "are compared on equal data, vocabulary and search: make them equal."
                    )
