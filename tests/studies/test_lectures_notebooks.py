"""Notebooks of the lectures: each is valid, and is run cell by cell, in both languages."""

from __future__ import annotations

import ast
import json

import pytest

from regard.apps.cli import main
from regard.errors import DataError
from regard.explore.page import Page
from regard.studies.lectures.every import LECTURES, about, lecture, words
from regard.studies.lectures.labels import label
from regard.studies.lectures.notebooks import notebook


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_notebook_says_what_the_lecture_shows_and_holds_its_source(language):
    nbformat = pytest.importorskip("nbformat")
    for name in ("by-hand", "greedy"):
        read = nbformat.reads(notebook(name, language), as_version=4)
        nbformat.validate(read)
        assert about(name, language) in read.cells[0].source
        assert f"def {LECTURES[name].__name__}(" in read.cells[2].source


def run(name: str, language: str) -> list[object]:
    """What the last line of each cell is, as a notebook shows it; the cells are run as they stand, in order."""
    names: dict[str, object] = {}
    shown = []
    for cell in json.loads(notebook(name, language))["cells"]:
        if cell["cell_type"] == "code":
            tree = ast.parse("".join(cell["source"]))
            last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, name, "exec"), names)
            shown.append(last and eval(compile(ast.Expression(last.value), name, "eval"), names))
    return [names["one"], *shown]


@pytest.mark.parametrize("name", LECTURES)
def test_every_notebook_runs_in_both_languages(name, capsys):
    known = lecture(name).numbers
    for language in ("en", "zh"):
        one, *shown = run(name, language)
        assert one.numbers == known
        said = capsys.readouterr().out
        assert all(label(key, language) in said for key in known)
        pages = [each for each in shown if isinstance(each, Page)]
        assert len(pages) == (name in words()["widget"])
        assert all(f'<html lang="{language}">' in page and "<iframe" in page._repr_html_() for page in pages)


def test_a_notebook_runs_in_a_kernel_of_its_own():
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: pip install '.[dev]'")
    read = nbformat.reads(notebook("scaling", "zh"), as_version=4)
    nbclient.NotebookClient(read, timeout=300, startup_timeout=300).execute()
    drawn = [output["data"]["text/html"] for cell in read.cells[-3:] for output in cell.get("outputs", ())]
    assert ["data:image/svg+xml" in drawn[0], "<iframe" in drawn[1]] == [True, True]


def test_a_notebook_of_a_lecture_that_there_is_not_is_refused():
    with pytest.raises(DataError, match="there is no notebook of 'nothing'"):
        notebook("nothing")


def test_the_command_writes_notebooks(tmp_path, capsys):
    assert main(["lecture", "by-hand", "heads", "--kind", "ipynb", "--language", "zh", "--out", str(tmp_path)]) == 0
    assert sorted(file.name for file in tmp_path.iterdir()) == ["by-hand.ipynb", "heads.ipynb"]
    assert (tmp_path / "heads.ipynb").read_text("utf-8") == notebook("heads", "zh")
    assert main(["lecture", "by-hand", "--kind", "ipynb"]) == 2
    assert "--out DIR" in capsys.readouterr().err
    assert main(["lecture", "pronoun", "--kind", "ipynb", "--out", str(tmp_path)]) == 2
