"""The examples of docs/extending.md: each adds a part from a file of its own, is trained, stopped, taken up and used.

Every Python block of the page is one file, and the TOML block behind it what a recipe says to ask for it; the page's
last recipe is what it is said in.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard import bundle as bundles
from regard import recipe as recipes
from regard.errors import BundleError, RegardError
from regard.extensions import run_script
from regard.metrics import METRICS
from regard.models import FAMILIES
from regard.nn.attention import SCORES
from regard.nn.positions import BIASES
from regard.recipe import Recipe
from regard.search.table import SEARCHES
from regard.text.lines import FORMATS
from regard.train import OBJECTIVES, OPTIMIZERS, REGULARIZERS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "extending.md").read_text("utf-8")
FOUND = re.findall(r"^## (.+?)\n(?:(?!^## ).)*?^```python\n(.*?)^```\n\n```toml\n(.*?)^```", PAGE, re.M | re.S)
BLOCKS = {title.split(" ", 1)[1].replace(" ", "-"): (code, tables) for title, code, tables in FOUND}
RECIPE = re.findall(r"^```toml\n(.*?)^```", PAGE, re.M | re.S)[-1]
TABLES: tuple[dict[str, Any], ...] = (
    *(SCORES, BIASES, FAMILIES, OBJECTIVES, SEARCHES, OPTIMIZERS, REGULARIZERS, METRICS, FORMATS),
)


class Killed(Exception):  # noqa: N818  # it stands in for a signal
    """The process is gone."""


def die(event: dict[str, Any]) -> None:
    if event["event"] == "validate" and event["update"] == 3:
        raise Killed


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a corpus in it; what a script adds to the tables is taken away again."""
    monkeypatch.chdir(tmp_path)
    draw = random.Random(1)
    lines = [" ".join(draw.choices("abcdef", k=draw.randint(1, 5))) for _ in range(60)]
    for side in ("source", "target"):
        Path(f"train.{side}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    Path("train.csv").write_text("source,target\n" + "".join(f"{line},{line}\n" for line in lines), encoding="utf-8")
    FORMATS.pop("csv", None)  # docs/data.md has it too, and its examples may have run in this process
    before = [dict(table) for table in TABLES]
    yield tmp_path
    for table, entries in zip(TABLES, before, strict=True):
        table.clear()
        table.update(entries)
    sys.modules.pop("addition", None)


def recipe_of(tables: str) -> dict[str, Any]:
    """The page's recipe with the example's lines in it."""
    made = tomllib.loads(RECIPE)
    for table, keys in tomllib.loads(tables).items():
        if ("text" in keys and table == "data") or "csv" in str(keys):
            made["data"] = {k: v for k, v in made["data"].items() if k not in ("source", "target")}
        if "family" in keys:
            made[table] = {}
        made[table] = {**made.get(table, {}), **keys}
    return made


def test_the_page_has_nine_additions() -> None:
    wanted = "score position-scheme model-family objective search optimiser regulariser metric corpus-format"
    assert list(BLOCKS) == wanted.split()


@pytest.mark.parametrize("name", BLOCKS)
def test_it_is_trained_saved_taken_up_and_used(name: str, place: Path) -> None:
    code, tables = BLOCKS[name]
    with pytest.raises(RegardError):
        attempt(recipes.validate(recipe_of(tables)), place / "without")
    (place / "addition.py").write_text(code, encoding="utf-8")
    run_script(place / "addition.py")
    recipe = recipes.validate(recipe_of(tables))
    with pytest.raises(Killed):
        regard.fit(recipe, place / "run", callbacks=[die])
    bundle = bundles.load(regard.fit(recipe, place / "run", resume=True))
    once = bundles.load(regard.fit(recipe, place / "whole"))
    resumed, straight = (each.model().state_dict() for each in (bundle, once))
    assert all(torch.equal(resumed[key], straight[key]) for key in straight), "as if it had never stopped"
    if name == "model-family":
        assert regard.generate(bundle.path, "a b")
    else:
        assert isinstance(regard.load(bundle.path).translate(["a b"])[0].text, str)
    if name == "metric":
        assert "same-length" in bundle.provenance.scores[0]["scores"]


def attempt(recipe: Recipe, out: Path) -> None:
    """What a recipe that passed is refused by: the search before training, a file when it is opened."""
    regard.fit(recipe, out)


def test_a_bundle_says_what_is_missing_and_where_it_comes_from(place: Path) -> None:
    for name in ("score", "model-family"):
        code, tables = BLOCKS[name]
        before = [dict(table) for table in TABLES]
        (place / "addition.py").write_text(code, encoding="utf-8")
        run_script(place / "addition.py")
        path = regard.fit(recipes.validate(recipe_of(tables)), place / name)
        sys.modules.pop("addition")
        for table, entries in zip(TABLES, before, strict=True):
            table.clear()
            table.update(entries)
        with pytest.raises(BundleError, match=r"with an extension: .*(distance|bag).*must be one of .*--import FILE"):
            bundles.load(path)


def test_by_the_command_line_in_processes_of_their_own(place: Path) -> None:
    code, tables = BLOCKS["score"]
    (place / "score.py").write_text(code, encoding="utf-8")
    made = recipes.validate({**recipe_of(tables), "model": tomllib.loads(RECIPE)["model"]})
    text = recipes.to_toml(made, defaults=False).replace("[model]", '[model]\nscore = "distance"')
    (place / "tiny.toml").write_text(text, encoding="utf-8")
    (place / "line").write_text("a b\n", encoding="utf-8")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", "regard", *words], capture_output=True, text=True)

    trained = run("--import", "score.py", "train", "tiny.toml", "--out", "run")
    assert trained.returncode == 0, trained.stderr
    assert run("--import", "score.py", "translate", "run/bundle", "line").returncode == 0
    without = run("translate", "run/bundle", "line")
    assert without.returncode == 2
    assert "`regard --import FILE …`" in without.stderr
