"""A notebook shows what a model did with a line: executed by Jupyter's own client, and looked at in Chromium."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from pathlib import Path
from typing import Any

import pytest
from chromium import offline

import regard
from regard.errors import ModelError

BUNDLE = Path(__file__).resolve().parents[1] / "bundle" / "made-by-0.1" / "transformer"
CELLS = [
    f"import regard\ntranslator = regard.load({str(BUNDLE)!r})\n[made] = translator.translate(['abc <b> de'])",
    "made.explore()",
    "made.explore(language='zh')",
    f"regard.look({str(BUNDLE)!r}, 'abc de')",
]


def frame_of(output: Any) -> str:
    """What a front end shows: of the kinds of an output the richest that it knows, which is HTML."""
    assert output["output_type"] == "execute_result"
    html = str(output["data"]["text/html"])
    assert html.startswith("<iframe srcdoc=")
    assert 'sandbox="allow-scripts allow-downloads"' in html  # not allow-same-origin: it cannot reach the notebook
    return html


@pytest.fixture(scope="module")
def outputs() -> list[Any]:
    """What the cells give."""
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: pip install '.[dev]'")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed: pip install '.[dev]'")
    nbformat = pytest.importorskip("nbformat")
    cells = [nbformat.v4.new_code_cell(cell) for cell in CELLS]
    notebook = nbformat.v4.new_notebook(cells=cells)
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    nbclient.NotebookClient(notebook, timeout=300, startup_timeout=300).execute()
    return [cell["outputs"] for cell in notebook.cells]


@pytest.mark.filterwarnings("ignore")  # those of Jupyter are not ours
def test_a_notebook_shows_the_page(outputs: list[Any], chromium: Any, tmp_path: Path) -> None:
    assert outputs[0] == []
    for number, title in ((1, "Attention"), (2, "注意力"), (3, "Attention")):
        [output] = outputs[number]
        assert output["data"]["text/plain"] != ""
        file = tmp_path / f"{number}.html"
        file.write_text(f"<!doctype html><meta charset=utf-8><body>{frame_of(output)}", encoding="utf-8")
        with offline(chromium, file, viewport={"width": 1280, "height": 900}) as page:
            inside = page.frame_locator("iframe")
            assert title in inside.locator("body").inner_text()
            assert "abc" in inside.locator("body").inner_text()
            inside.locator("canvas, svg").first.wait_for(state="attached")


def test_a_translation_knows_what_it_was_made_of() -> None:
    translator = regard.load(BUNDLE)
    made, empty = translator.translate(["abc de", ""], confidence=True)
    assert "abc" in made.explore()
    assert made.asked is not None
    assert made.asked.translator is translator
    with pytest.raises(ModelError, match="does not know what it was made of"):
        empty.explore()


def test_what_is_copied_or_written_down_leaves_the_model_behind() -> None:
    [made] = regard.load(BUNDLE).translate(["abc de"])
    for other in (pickle.loads(pickle.dumps(made)), copy.deepcopy(made)):
        assert other == made
        assert other.asked is None
    assert len(pickle.dumps(made)) < 10_000
    assert "asked" not in dataclasses.asdict(made)
    assert "asked" not in repr(made)
    assert "asked" not in made.to_dict()


def test_a_frame_holds_any_text() -> None:
    """No text ends the frame, or becomes a part of the notebook."""
    [made] = regard.load(BUNDLE).translate(['"></iframe><script>alert(1)</script> abc'])
    html = made.explore()._repr_html_()
    assert html.count("<iframe") == html.count("</iframe>") == 1
    assert "<script" not in html
