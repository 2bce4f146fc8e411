"""Families trained alike by the clock, and the report of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from bundles import ENGLISH, GERMAN

from regard import recipe as recipes
from regard.apps.cli import main
from regard.errors import RecipeError
from regard.recipe import Recipe
from regard.studies.lineage import extrapolation, report
from regard.studies.lineage.alignments import shown_lines
from regard.studies.lineage.costs import measure_layers
from regard.studies.lineage.runs import builtin, collect, plan_runs, train
from regard.studies.lineage.table import Result, by_halves, grouped, results
from regard.tasks.fit import fit
from regard.text import read_lines, write_lines
from regard.train import Interrupted, loop

# -- stopping by the clock ---------------------------------------------------------------------------------------------


class Clock:
    """A second passes whenever somebody looks."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def perf_counter(self) -> float:
        self.seconds += 1.0
        return self.seconds


def _pairs(place: Path) -> None:
    write_lines(place / "train.de", GERMAN * 3)
    write_lines(place / "train.en", ENGLISH * 3)


def _timed(place: Path, **train: Any) -> Recipe:
    _pairs(place)
    return recipes.validate(
        {
            "data": {"source": str(place / "train.de"), "target": str(place / "train.en"), "batch_tokens": 200},
            "text": {"size": 400, "shrink": True},
            "model": {"width": 16, "heads": 2, "feedforward": 32, "encoder_layers": 1, "decoder_layers": 1},
            "train": {
                "minutes": 0.5, "max_updates": 10**9, "schedule": "linear", "learning_rate": 0.01,
                "warmup": 5, "log_every": 1,
                "average": "none", "precision": "float32", "device": "cpu", **train,
            },
            "search": {"beam": 1, "extra_length": 2},
        }
    )  # fmt: skip


def test_training_stops_by_the_clock_and_the_schedule_ends_there(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "time", Clock())
    events: list[dict[str, Any]] = []
    fit(_timed(tmp_path, validate_every=7), tmp_path / "run", callbacks=[events.append])
    trained = [event for event in events if event["event"] == "train"]
    assert [event["trained"] for event in trained] == list(range(1, 31)), "a second an update, and no other"
    rates = [event["learning_rate"] for event in trained]
    assert max(rates) == pytest.approx(0.01, rel=0.3)
    assert rates[-1] == pytest.approx(0.0, abs=1e-3)
    assert rates[6:] == sorted(rates[6:], reverse=True)
    assert [event["update"] for event in events if event["event"] == "validate"] == [7, 14, 21, 28, 30]
    held = json.loads((tmp_path / "run" / "results.json").read_text())
    assert held["training"]["trained"] == 30
    assert held["training"]["seconds"] > 30


def test_a_run_that_is_resumed_has_the_time_that_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "time", Clock())
    recipe = _timed(tmp_path)

    def stop(event: dict[str, Any]) -> None:
        if event["event"] == "train" and event["update"] == 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(recipe.model_copy(update={"train": recipe.train.model_copy(update={"save_every": 10})}), tmp_path / "run",
            callbacks=[stop])  # fmt: skip
    events: list[dict[str, Any]] = []
    fit(
        recipe.model_copy(update={"train": recipe.train.model_copy(update={"save_every": 10})}),
        tmp_path / "run",
        resume=True,
        callbacks=[events.append],
    )
    assert [event["trained"] for event in events if event["event"] == "train"] == list(range(11, 31))


# -- the comparison ----------------------------------------------------------------------------------------------------

_SMALL = {
    "seq2seq": 'cell = "gru"\nwidth = 16\nembedding = 8\nlayers = 1',
    "bahdanau": "width = 16\nencoder_width = 16\nembedding = 8\nreadout = 8",
    "transformer": "width = 16\nheads = 2\nfeedforward = 32\nencoder_layers = 1\ndecoder_layers = 1",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Small recipes and a small corpus."""
    place = tmp_path_factory.mktemp("lineage")
    _pairs(place)
    write_lines(place / "test.de", GERMAN)
    write_lines(place / "test.en", ENGLISH)
    (place / "recipes").mkdir()
    for family, model in _SMALL.items():
        (place / "recipes" / f"{family}.toml").write_text(
            f"""
            [data]
            source = "${{REGARD_DATA}}/train.de"
            target = "${{REGARD_DATA}}/train.en"
            target_language = "en"
            batch_tokens = 300
            [data.test.test]
            source = "${{REGARD_DATA}}/test.de"
            reference = "${{REGARD_DATA}}/test.en"
            [text]
            size = 400
            shrink = true
            [model]
            family = "{family}"
            {model}
            [train]
            schedule = "linear"
            learning_rate = 0.01
            warmup = 10
            average = "none"
            device = "cpu"
            [search]
            beam = 1
            extra_length = 3
            """
        )
    return place


def _lineage(place: Path, *more: str) -> int:
    basic = ["--data", str(place), "--recipes", str(place / "recipes"), "--minutes", "0.005"]
    return main(["lineage", *basic, "--out", str(place / "out"), *more])


def test_runs_are_trained_once_and_tabulated_together(place, monkeypatch, capsys):
    monkeypatch.setattr(report, "measure_layers", lambda: measure_layers((2, 4, 8), (8, 16, 32)))
    assert _lineage(place, "--families", "seq2seq,transformer", "--no-extrapolation") == 0
    before = {path: path.stat().st_mtime_ns for path in (place / "out").rglob("bundle/*.safetensors")}
    assert len(before) == 2
    assert _lineage(place, "--seeds", "2", "--no-extrapolation") == 0
    table = capsys.readouterr().out
    assert [line.split()[1] for line in table.splitlines() if line.startswith("| ")][-3:] == list(_SMALL)
    after = {path: path.stat().st_mtime_ns for path in (place / "out").rglob("bundle/*.safetensors")}
    assert len(after) == 6
    assert {path: after[path] for path in before} == before, "what was done is left alone"
    stores = {path.parent for path in (place / "out").rglob("subwords.model") if "bundle" not in path.parts}
    assert len(stores) == 1, "one vocabulary for all"

    results = place / "out" / "results"
    found = json.loads((results / "lineage.json").read_text())
    assert [row["seeds"] for row in found["families"]] == [[1, 2]] * 3
    for row in found["families"]:
        assert row["bleu"]["lowest"] <= row["bleu"]["mean"] <= row["bleu"]["highest"]
        assert row["trained"] >= 0.3
    assert sum(each["lines"] for each in found["by_length"]["groups"]) == len(GERMAN)
    assert sum(found["by_halves"]["lines"]) == len(GERMAN)
    assert len(found["told_apart"]) == 3
    kept = (results / "bahdanau-2" / "recipe.toml").read_text()
    assert str(place) not in kept
    assert recipes.parse(kept, {"REGARD_DATA": str(place)}).seed == 2
    assert (results / "bahdanau-2" / "log.jsonl").exists()

    elsewhere = place / "elsewhere"
    shutil.copytree(results, elsewhere / "results")
    assert _lineage(place, "--seeds", "2", "--no-extrapolation", "--out", str(elsewhere)) == 0
    assert not list(elsewhere.rglob("*.safetensors")), "what was trained on another machine is not trained again"
    assert json.loads((elsewhere / "results" / "lineage.json").read_text()) == found
    assert _lineage(place, "--seeds", "2", "--out", str(elsewhere), "--set", "train.clip=0.5") == 2
    assert "was trained with other settings" in capsys.readouterr().err


def test_folders_may_be_named_as_parts_of_keys_are(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(place, "data", ignore=shutil.ignore_patterns("out", "elsewhere"))
    variables = {"REGARD_DATA": "data"}
    planned = plan_runs(Path("out"), Path("data/recipes"), families=["seq2seq"], minutes=0.005, variables=variables)
    train(planned[0])
    collect(planned[0])
    shutil.rmtree("out/runs")
    assert planned[0].done
    assert [run.lines() for run in results(Path("out"), variables)] == [(GERMAN, ENGLISH)]


def test_the_report_shows_alignments_costs_and_what_lies_beyond_the_trained_lengths(place, monkeypatch, capsys):
    monkeypatch.setattr(extrapolation, "SCHEMES", ("learned", "alibi"))
    monkeypatch.setattr(report, "measure_layers", lambda: measure_layers((2, 4, 8), (8, 16, 32)))
    write_lines(place / "gold.text", [f"{source} ||| {target}" for source, target in zip(GERMAN, ENGLISH, strict=True)])
    write_lines(place / "gold.links", ["1-1 2-2"] * len(GERMAN))
    gold = ["--gold", str(place / "gold.links"), "--gold-text", str(place / "gold.text")]
    assert _lineage(place, "--families", "seq2seq,transformer", *gold, "--language", "zh") == 0
    assert "report.html" in capsys.readouterr().out
    out = place / "out"
    page = (out / "report.html").read_text("utf-8")
    assert 'show("zh")' in page
    found = json.loads((out / "results" / "report.json").read_text("utf-8"))
    families = {name for line in found["pictures"] for name in line["families"]}
    assert "transformer" in families
    assert "seq2seq" not in families, "there is nothing to look at"
    for line in found["pictures"]:
        picture = line["families"]["transformer"]
        assert [sum(row) for row in picture["weights"]] == pytest.approx([1.0] * len(picture["rows"]), abs=0.01)
    assert {"seq2seq"} & {each["family"] for each in found["alignment"]} == set()
    beyond = found["extrapolation"]
    assert list(beyond["schemes"]) == ["learned", "alibi"]
    assert sum(group["lines"] for group in beyond["groups"]) == len(GERMAN)
    assert {group["to"] <= beyond["longest"] for group in beyond["groups"]} == {True, False}
    short = [len(line.split()) for line in read_lines(out / "extrapolation" / "short" / "train.source")]
    assert 0 < max(short) <= beyond["longest"] < max(len(line.split()) for line in GERMAN)
    made = {path: path.stat().st_mtime_ns for path in (out / "results" / "kept").iterdir()}
    assert _lineage(place, "--families", "seq2seq,transformer", *gold) == 0
    assert {path: path.stat().st_mtime_ns for path in (out / "results" / "kept").iterdir()} == made, (
        "nothing is done again"
    )


def test_unequal_recipes_and_other_settings_are_refused(place, tmp_path, capsys):
    (tmp_path / "recipes").mkdir()
    for family in ("seq2seq", "transformer"):
        text = (place / "recipes" / f"{family}.toml").read_text()
        (tmp_path / "recipes" / f"{family}.toml").write_text(
            text.replace("400", "350") if family == "seq2seq" else text
        )
    with pytest.raises(RecipeError, match=r"differ in \[text\] size"):
        plan_runs(tmp_path, tmp_path / "recipes", variables={"REGARD_DATA": "data"})
    with pytest.raises(RecipeError, match=r"has no lstm\.toml; there is: bahdanau"):
        plan_runs(tmp_path, place / "recipes", families=["lstm"], variables={"REGARD_DATA": "data"})
    assert _lineage(place, "--families", "seq2seq", "--set", "train.clip=0.5") == 2
    assert "was trained with other settings" in capsys.readouterr().err


def test_a_stopped_comparison_goes_on(place, tmp_path, monkeypatch):
    (run, *_) = plan_runs(tmp_path, place / "recipes", minutes=0.5, variables={"REGARD_DATA": str(place)})
    monkeypatch.setattr(loop, "time", Clock())
    assert not run.done

    def stop(event: dict[str, Any]) -> None:
        if event["event"] == "train":
            raise Interrupted(tmp_path)

    with pytest.raises(Interrupted):
        train(run, stop)
    assert not run.done
    train(run)
    assert run.done
    assert not (run.path / "checkpoints").exists()


def test_groups_of_lines_are_of_like_length_and_size():
    lengths = [5, 3, 3, 9, 4, 4, 4, 20, 11, 6]
    groups = grouped(lengths, 3)
    assert sorted(i for group in groups for i in group) == list(range(10))
    assert [[lengths[i] for i in group] for group in groups] == [[3, 3], [4, 4, 4, 5, 6], [9, 11, 20]]
    assert [len(group) for group in grouped([1] * 17 + [2] * 16 + [3] * 16 + [9], 3)] == [17, 16, 17], "no small rest"
    assert grouped([2, 2], 3) == [[0, 1]]
    assert shown_lines(["a " * 5] * 3 + ["a " * 11, "a " * 15]) == [0, 3, 4]


def test_bleu_falls_where_the_longer_half_is_worse(tmp_path):
    lines = [" ".join(f"w{(i * j) % 11}" for j in range(1, 5 + i % 8)) for i in range(64)]
    for side in ("source", "reference"):
        write_lines(tmp_path / side, lines)
    files = {"source": str(tmp_path / "source"), "reference": str(tmp_path / "reference")}
    recipe = recipes.validate({"data": {"source": "a", "target": "b", "test": {"test": files}}})
    forgetful = [" ".join(line.split()[:5] + ["…"] * (len(line.split()) - 5)) for line in lines]
    runs = [
        Result(family, 1, recipe, {}, {}, "test", wrote, tmp_path)
        for family, wrote in (("forgets", forgetful), ("knows", lines))
    ]
    found = by_halves(runs)
    assert found is not None
    assert (found["up_to"], found["lines"]) == (7, [32, 32])
    forgets, knows = found["families"]["forgets"], found["families"]["knows"]
    low, high = forgets["interval"]
    assert (low + high) / 2 == pytest.approx(forgets["longer"] - forgets["shorter"])
    assert high < 0
    assert [knows["shorter"], knows["longer"], *knows["interval"]] == pytest.approx([100.0, 100.0, 0.0, 0.0])
    write_lines(tmp_path / "source", ["of one length"] * 64)
    assert by_halves(runs) is None


def test_files_of_ones_own_stand_in_the_place_of_the_recipes(place, tmp_path, capsys):
    table = {"source": str(place / "train.de"), "target": str(place / "train.en")}
    (run,) = plan_runs(tmp_path, place / "recipes", families=["bahdanau"], data=table)
    assert run.recipe.data.test == {}
    assert run.recipe.data.batch_tokens == 300, "a family's own setting stays"
    assert main(["lineage", "--out", str(tmp_path), "--target", "x.en"]) == 2
    assert "begin with --source" in capsys.readouterr().err


def test_the_built_in_corpus_has_one_direction(tmp_path, monkeypatch):
    pytest.importorskip("babel")
    monkeypatch.setattr("regard.studies.lineage.runs._LINES", {"train": 3, "valid": 2, "heldout": 2})
    table = builtin(tmp_path)
    source, target = read_lines(table["source"]), read_lines(table["target"])
    assert len(source) == len(target) == 15
    assert not [line for line in (*source, *target) if line.startswith("<2")]
