"""The lectures' pages hold: every "path:symbol" is there, every lecture has its picture, the pages are fresh."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

from regard.studies.lectures.every import LECTURES, lecture
from regard.studies.lectures.trained import TRAINED

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / "docs" / "lectures"
PAGES = [*sorted(PLACE.rglob("*.md")), *sorted((ROOT / "docs").glob("paper-to-code*.md"))]
NAMED = re.compile(r"`((?:regard|tests|tools|benchmarks|recipes|results)/[\w./-]+?)(?::([\w.]+))?`")


@pytest.fixture
def maker(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    import lectures

    return lectures


@cache
def symbols(path: Path) -> set[str]:
    """What a Python file makes: its functions, classes, their methods and fields, its names."""
    found = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        names = _names(node)
        found |= names
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{inner}" for part in node.body for inner in _names(part)}
    return found


def _names(node: ast.AST) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return {target.id for target in targets if isinstance(target, ast.Name)}
    return set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_named_symbol_is_there(page):
    named = NAMED.findall(page.read_text("utf-8"))
    missing = [path for path, _ in named if not (ROOT / path).exists()]
    assert missing == []
    assert [f"{path}:{name}" for path, name in named if name and name not in symbols(ROOT / path)] == []


def test_pages_are_fresh(maker):
    for language in maker.LANGUAGES:
        for name, make in maker.PAGES.items():
            page = PLACE / language / f"{name}.md"
            assert page.read_text("utf-8") == make(language), f"run `python tools/lectures.py`: {page} is stale"


def test_the_animation_is_fresh(maker):
    assert maker.ANIMATION.read_text("utf-8") == maker.animation(), "run `python tools/lectures.py`"


def test_every_lecture_is_of_a_formula_and_has_its_picture(maker):
    rows = [row for group in maker.tables("formulas")["group"] for row in group["rows"]]
    assert {row["lecture"] for row in rows if "lecture" in row} == set(LECTURES)
    drawn = {path.stem for path in maker.RESULTS.glob("*.json")}  # of the figures of models, those that were trained
    assert {path.stem for path in (PLACE / "pictures").glob("*.svg")} == set(LECTURES) | drawn
    numbers = json.loads((PLACE / "numbers.json").read_text("utf-8"))
    assert {name: list(found) for name, found in numbers.items()} == {n: list(lecture(n).numbers) for n in LECTURES}
    assert all(row["code"] and row["documents"] for row in rows)


def test_every_figure_of_a_model_is_of_a_formula_and_of_its_recipe(maker):
    rows = [row for group in maker.tables("formulas")["group"] for row in group["rows"]]
    figures = {figure["name"]: figure for figure in maker.tables("models")["figure"]}
    assert {row["model"] for row in rows if "model" in row} == set(TRAINED) == set(figures)
    for path in maker.RESULTS.glob("*.json"):
        model = json.loads(path.read_text("utf-8"))[path.stem]["model"]
        assert model == tomllib.loads((ROOT / figures[path.stem]["recipe"]).read_text("utf-8"))["name"]


def test_a_formula_is_the_line_of_code_that_stands_beside_it(maker):
    rows = [row for group in maker.tables("formulas")["group"] for row in group["rows"] if "line" in row]
    gone = []
    for row in rows:
        files = {(ROOT / place.partition(":")[0]).read_text("utf-8") for place in row["code"]}
        gone += [] if any(row["line"] in text for text in files) else [(row["form"], row["line"])]
    assert gone == [], "write the new line into docs/lectures/formulas.toml and run `python tools/lectures.py`"
    assert len(rows) > 60


@pytest.mark.parametrize("page", ["README.md", "README.zh.md"])
def test_the_readme_quotes_the_memorial_as_it_was_translated(maker, page):
    numbers = json.loads((maker.RESULTS / "memorial.json").read_text("utf-8"))["memorial"]
    lines = (ROOT / "recipes" / "classical-modern-zh" / "chu-shi-biao.txt").read_text("utf-8").splitlines()
    text = (ROOT / page).read_text("utf-8")
    assert [line for line in lines if f"> {line}\n> → {numbers[line]}\n" not in text] == []


def test_every_document_is_there(maker):
    rows = [row for group in maker.tables("formulas")["group"] for row in group["rows"]]
    assert {number for row in rows for number in row["documents"]} == {1, 2, 3, 4, 5}
    assert {slip["document"] for slip in maker.tables("errata")["slip"]} == {1, 2, 3, 4, 5}
