"""Notebooks of the lectures: each is valid, in both languages, and two are run cell by cell."""

from __future__ import annotations

import json

import pytest

from regard.apps.cli import main
from regard.errors import DataError
from regard.studies.lectures.every import LECTURES, about, lecture
from regard.studies.lectures.notebooks import notebook


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_notebook_says_what_the_lecture_shows_and_holds_its_source(language):
    nbformat = pytest.importorskip("nbformat")
    for name in ("by-hand", "greedy"):
        read = nbformat.reads(notebook(name, language), as_version=4)
        nbformat.validate(read)
        assert about(name, language) in read.cells[0].source
        assert f"def {LECTURES[name].__name__}(" in read.cells[2].source


@pytest.mark.parametrize(("name", "language"), [("by-hand", "en"), ("greedy", "zh")])
def test_the_cells_of_a_notebook_give_the_lectures_numbers(name, language, capsys):
    names: dict[str, object] = {}
    for cell in json.loads(notebook(name, language))["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert names["one"].numbers == lecture(name).numbers
    assert ("贪心的概率: 0.048" if language == "zh" else "softmax: ") in capsys.readouterr().out


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
