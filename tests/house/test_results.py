"""The page of results is what its tool makes of the results and of the published figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def maker(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    import results

    return results


def test_the_page_is_what_the_tool_writes(maker):
    assert maker.PAGE.read_text("utf-8") == maker.page(), "run `python tools/results.py`"


def test_every_result_of_a_recipe_is_on_the_page(maker):
    found = [path.relative_to(ROOT) for path in ROOT.glob("results/*/*/results.json")]
    paths = [path for path in found if path.parts[1] not in maker.COMPARISONS]
    page = maker.PAGE.read_text("utf-8")
    assert [str(path) for path in paths if f"(../{path})" not in page] == []


def test_recipes_that_were_not_run_say_so_and_seeds_are_told_together(maker, monkeypatch, tmp_path):
    monkeypatch.setattr(maker, "ROOT", tmp_path)
    anchors = tmp_path / "anchors.toml"
    monkeypatch.setattr(maker, "ANCHORS", anchors)
    anchors.write_text(
        """
        [[set]]
        name = "Some"
        test = "test"
        figures = ["bleu", "chrf"]
        note = ""
        recipes = ["multi30k-de-en/a", "multi30k-de-en/b", "multi30k-de-en/d", "other/a"]
        baselines = { "A copy" = "results/copy.json" }
        published = [{ system = "Theirs", figures = ["30"], source = "Somebody 2020" }]
        """,
        encoding="utf-8",
    )

    def put(folder: str, name: str, value: float) -> None:
        place = tmp_path / "results" / folder / name
        place.mkdir(parents=True)
        scores = {"bleu": {"value": value, "interval": [value - 1, value + 1]}}
        (place / "results.json").write_text(json.dumps({"scores": [{"set": "test", "scores": scores}]}))

    put("multi30k-de-en", "a", 20)
    put("lineage", "b-1", 30)
    put("lineage", "b-2", 34)
    put("lineage", "d-1", 8)
    put("convolutions", "d-1", 9)
    put("new", "c", 7)
    copied = [{"set": "test", "scores": {"chrf": {"value": 5.0, "interval": None}}}]
    (tmp_path / "results" / "copy.json").write_text(json.dumps({"scores": copied}))
    (tmp_path / "recipes" / "new").mkdir(parents=True)
    (tmp_path / "recipes" / "new" / "c.toml").touch()
    pretraining = {"best_on_dev": {"scores": {"perplexity": 9.0}}}
    (tmp_path / "results" / "new" / "d").mkdir()
    (tmp_path / "results" / "new" / "d" / "results.json").write_text(
        json.dumps({"scores": [], "training": pretraining})
    )
    (tmp_path / "recipes" / "new" / "d.toml").touch()
    page = maker.page()
    assert "| **multi30k-de-en/a** | 20.00 [19.00, 21.00] | – |" in page
    assert "| **multi30k-de-en/b** | 32.00, 30.00 to 34.00 of 2 seeds | – |" in page
    assert "| **multi30k-de-en/d** | 9.00 [8.00, 10.00] | – |" in page
    assert "| **other/a** | not run | not run |" in page
    assert "| A copy | – | 5.00 | [result](../results/copy.json) |" in page
    assert "| Theirs | 30\\* | – | Somebody 2020 |" in page
    assert "| **new/c** | `test` | BLEU 7.00 [6.00, 8.00] |" in page
    assert "| **new/d** | `dev` | perplexity per token 9.00 |" in page
