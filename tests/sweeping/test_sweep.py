"""Searching settings of a recipe: what is found, what is kept, and that no interruption changes anything."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import regard
from regard import bundle as bundles
from regard import recipe as recipes
from regard.apps.cli import main
from regard.errors import DataError, Interrupted, RecipeError, TrainingError
from regard.sweeping import sweep as module
from regard.sweeping.record import Sweep
from regard.sweeping.settings import Sweeping
from regard.sweeping.space import Choices, Range, axis_of, pairs_of, space_of, with_settings
from regard.text import write_lines

pytest.importorskip("optuna", reason="optuna is not installed: pip install '.[sweep]'")

RATES = {"train.learning_rate": "1e-5..2e-2"}


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> recipes.Recipe:
    """Copying a few words, learnt in a second; with a test set that no trial may read."""
    place = tmp_path_factory.mktemp("toy")
    rng = random.Random(1)
    lines = [" ".join(rng.choices(["eins", "zwei", "drei", "vier"], k=rng.randint(2, 5))) for _ in range(140)]
    for name, some in (("train", lines[:100]), ("valid", lines[100:120]), ("test", lines[120:])):
        write_lines(place / name, some)
    data = {"source": "train", "target": "train", "valid_source": "valid", "valid_target": "valid"}
    return recipes.validate(
        {
            "name": "toy",
            "data": {
                **{key: str(place / name) for key, name in data.items()},
                "batch_tokens": 200,
                "test": {"kept": {"source": str(place / "test"), "reference": str(place / "test")}},
            },
            "text": {"size": 300, "shrink": True},
            "model": {
                **{"width": 16, "heads": 2, "feedforward": 32, "dropout": 0.1},
                **{"encoder_layers": 1, "decoder_layers": 1},
            },
            "train": {
                **{"max_updates": 18, "validate_every": 2, "save_every": 5, "schedule": "constant", "warmup": 0},
                **{"learning_rate": 3e-3, "precision": "float32", "device": "cpu", "average": "none"},
            },
            "search": {"beam": 1, "extra_length": 5},
        }
    )


@pytest.fixture
def file(tmp_path: Path, recipe: recipes.Recipe) -> Path:
    path = tmp_path / "toy.toml"
    path.write_text(recipes.to_toml(recipe), encoding="utf-8")
    return path


def short(recipe: recipes.Recipe, updates: int = 2) -> recipes.Recipe:
    return recipes.changed(recipe, {"train": {"max_updates": updates, "validate_every": 1}}, name="short")


def told(found: Sweep) -> list[dict[str, object]]:
    """All trials, but for the time that they took."""
    return [trial.model_dump(exclude={"seconds"}) for trial in found.trials]


def weights(out: Path) -> dict[str, list[float]]:
    return {name: p.tolist() for name, p in bundles.load(out / "best").model().named_parameters()}


# -- what is found -----------------------------------------------------------------------------------------------------


def test_the_better_setting_is_found_and_its_recipe_trains(tmp_path, file, capsys):
    out = tmp_path / "sweep"
    given = ["--try", "train.learning_rate=1e-6,1e-2", "--sampler", "grid", "--no-prune", "--set", "train.keep='best'"]
    assert main(["sweep", str(file), "--out", str(out), *given]) == 0
    shown = capsys.readouterr()
    assert [line.split()[0] for line in shown.out.splitlines()[1:3]] == ["2", "1"]
    assert "2 trials: 2 complete, 0 pruned, 0 failed" in shown.out
    assert shown.err.count("trial ") == 2
    held = json.loads((out / "sweep.json").read_text("utf-8"))
    assert held["best"] == 2
    assert {"optuna", "regard", "torch"} <= held["versions"].keys()
    low, high = held["trials"]
    assert low["score"] > high["score"] == min(score for _, score in high["scores"])
    assert [update for update, _ in low["scores"]] == [*range(2, 19, 2)]
    # No trial has read a test set; the best recipe has it again, and makes the same weights.
    results = json.loads((out / "trials" / "0002" / "results.json").read_text("utf-8"))
    assert [score["set"] for score in results["scores"]] == ["dev"]
    assert main(["train", str(out / "best.toml"), "--out", str(tmp_path / "run")]) == 0
    results = json.loads((tmp_path / "run" / "results.json").read_text("utf-8"))
    assert [score["set"] for score in results["scores"]] == ["dev", "kept"]
    again = dict(bundles.load(tmp_path / "run" / "bundle").model().named_parameters())
    assert weights(out) == {name: p.tolist() for name, p in again.items()}


def test_only_the_best_trial_keeps_its_weights_unless_all_are_kept(tmp_path, recipe):
    tried = {"train.learning_rate": [1e-6, 1e-2], "model.dropout": [0.0, 0.2]}
    found = regard.sweep(short(recipe), tmp_path / "few", tried, Sweeping(sampler="grid", trials=4, prune=False))
    assert len(found.trials) == 4
    for trial in (tmp_path / "few" / "trials").iterdir():
        assert {path.name for path in trial.iterdir()} - {"curves"} == {"recipe.toml", "log.jsonl", "results.json"}
    settings = Sweeping(sampler="grid", trials=4, prune=False, keep=True)
    regard.sweep(short(recipe), tmp_path / "all", tried, settings)
    assert all((tmp_path / "all" / "trials" / f"000{n}" / "bundle").is_dir() for n in range(1, 5))
    assert weights(tmp_path / "all") == weights(tmp_path / "few")


def test_higher_bleu_is_better(tmp_path, recipe):
    tried = {"train.learning_rate": [2e-2, 1e-6]}
    found = regard.sweep(recipe, tmp_path, tried, Sweeping(sampler="grid", metric="bleu", prune=False))
    scores = [trial.score for trial in found.trials]
    assert found.best == 1
    assert scores[0] > scores[1]
    assert "bleu" in (tmp_path / "best.toml").read_text("utf-8")


def test_pruning_stops_a_trial_early(tmp_path, recipe):
    found = regard.sweep(recipe, tmp_path, RATES, Sweeping(trials=6))
    pruned = [trial for trial in found.trials if trial.state == "pruned"]
    assert pruned
    for trial in pruned:
        lines = (tmp_path / "trials" / f"{trial.number:04d}" / "log.jsonl").read_text("utf-8").splitlines()
        assert max(json.loads(line)["update"] for line in lines) == trial.update < 18
    assert all(len(trial.scores) == 9 for trial in found.trials if trial.state == "complete")
    assert found.best not in [trial.number for trial in pruned]


# -- interruptions -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, recipe: recipes.Recipe) -> tuple[Sweep, Path]:
    out = tmp_path_factory.mktemp("undisturbed")
    return regard.sweep(recipe, out, RATES, Sweeping(trials=5, seed=3)), out


def test_a_sweep_that_is_killed_goes_on_as_if_nothing_had_been(tmp_path, file, undisturbed):
    out = tmp_path / "sweep"
    given = ["--try", f"train.learning_rate={RATES['train.learning_rate']}", "--seed", "3", "--trials", "5"]
    command = [sys.executable, "-m", "regard", "sweep", str(file), "--out", str(out), *given]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        limit = time.monotonic() + 120
        while time.monotonic() < limit and process.poll() is None:
            trials = (
                json.loads((out / "sweep.json").read_text("utf-8"))["trials"] if (out / "sweep.json").exists() else []
            )
            if len(trials) > 1 and trials[1]["scores"]:
                break
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    first = out / "trials" / "0001" / "log.jsonl"
    made = first.stat().st_mtime_ns
    assert main(command[3:]) == 0
    assert first.stat().st_mtime_ns == made
    found = Sweep.model_validate_json((out / "sweep.json").read_text("utf-8"))
    assert told(found) == told(undisturbed[0])
    assert weights(out) == weights(undisturbed[1])


@pytest.mark.parametrize("validations", [0, 1, 4])
def test_an_interrupted_trial_goes_on(tmp_path, recipe, undisturbed, validations):
    """Before its first score, after that at which it might be stopped, and later; each by the first trial alone."""

    def hear(trial):
        if trial.state == "running" and len(trial.scores) == validations and not stopped:
            stopped.append(trial.number)
            os.kill(os.getpid(), signal.SIGINT)

    stopped: list[int] = []
    # Before training has begun Ctrl-C does what it does in a program that has just started, whatever ran here before.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises((Interrupted, KeyboardInterrupt)):
            regard.sweep(recipe, tmp_path, RATES, Sweeping(trials=5, seed=3), progress=hear)
    finally:
        signal.signal(signal.SIGINT, before)
    assert stopped == [1]
    assert told(regard.sweep(recipe, tmp_path, RATES, Sweeping(trials=5, seed=3))) == told(undisturbed[0])
    assert weights(tmp_path) == weights(undisturbed[1])


def test_a_trial_killed_when_it_was_found_behind_is_not_taken_up(tmp_path, recipe, undisturbed):
    """Between the score by which it is to be stopped and its end."""
    behind = next(trial for trial in undisturbed[0].trials if trial.state == "pruned")

    def hear(trial):
        if trial.number == behind.number and trial.scores:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        regard.sweep(recipe, tmp_path, RATES, Sweeping(trials=5, seed=3), progress=hear)
    assert told(regard.sweep(recipe, tmp_path, RATES, Sweeping(trials=5, seed=3))) == told(undisturbed[0])


def test_more_trials_may_be_asked_for(tmp_path, recipe, undisturbed):
    regard.sweep(recipe, tmp_path, RATES, Sweeping(trials=2, seed=3))
    assert told(regard.sweep(recipe, tmp_path, RATES, Sweeping(trials=5, seed=3))) == told(undisturbed[0])


def test_ctrl_c_ends_with_130_and_says_how_to_go_on(tmp_path, file, monkeypatch, capsys):
    def stop(*given, **more):
        raise Interrupted(tmp_path)

    monkeypatch.setattr(module, "fit", stop)
    assert main(["sweep", str(file), "--out", str(tmp_path / "s"), "--try", "model.dropout=0.1,0.2"]) == 130
    assert "The same command goes on" in capsys.readouterr().err


# -- trials that fail, and spaces that end -----------------------------------------------------------------------------


def test_a_trial_that_diverges_is_told_of_and_the_sweep_goes_on(tmp_path, recipe):
    found = regard.sweep(
        short(recipe, 6), tmp_path, {"train.learning_rate": [1e30, 1e-3]}, Sweeping(sampler="grid", prune=False)
    )
    assert [trial.state for trial in found.trials] == ["failed", "complete"]
    assert "diverged" in found.trials[0].why or "no number" in found.trials[0].why
    assert found.best == 2


def test_a_sweep_whose_trials_all_fail_is_an_error(tmp_path, recipe):
    with pytest.raises(TrainingError, match="no trial of 2 came to its end"):
        regard.sweep(short(recipe, 6), tmp_path, {"train.learning_rate": [1e30, 1e31]}, Sweeping(sampler="grid"))


def test_settings_that_do_not_go_together_are_left_out_and_none_is_tried_twice(tmp_path, recipe):
    tried = {"model.width": [16, 24], "model.heads": [2, 3]}
    found = regard.sweep(short(recipe), tmp_path, tried, Sweeping(trials=9))
    made = sorted((trial.settings["model.width"], trial.settings["model.heads"]) for trial in found.trials)
    assert made == [(16, 2), (24, 2), (24, 3)]


def test_no_trial_begins_after_the_minutes(tmp_path, recipe):
    assert len(regard.sweep(short(recipe), tmp_path, RATES, Sweeping(minutes=1e-6)).trials) == 1


def test_what_mattered_is_told_of_enough_trials(tmp_path, recipe):
    tried = {**RATES, "model.dropout": [0.0, 0.1]}
    found = regard.sweep(short(recipe), tmp_path, tried, Sweeping(trials=12, prune=False, sampler="random"))
    assert found.importance.keys() == tried.keys()
    assert sum(found.importance.values()) == pytest.approx(1)


# -- what is asked for -------------------------------------------------------------------------------------------------


def test_values_are_ranges_or_choices():
    rate, layers = axis_of("train.learning_rate", "1e-4..3e-3"), axis_of("model.encoder_layers", " 2..6 ")
    assert rate == Range("train.learning_rate", "1e-4..3e-3", 1e-4, 3e-3)
    assert rate.log
    assert layers == Range("model.encoder_layers", "2..6", 2, 6)
    assert layers.whole
    assert not layers.log
    assert [*layers.every()] == [2, 3, 4, 5, 6]
    assert not axis_of("model.dropout", "0..0.5").log
    assert not axis_of("model.dropout", "0.05..0.5").log  # exactly ten times
    assert axis_of("data.batch_tokens", "512..8192").log
    assert axis_of("model.dropout", "0.1,0.2").ends == (0.1, 0.2)
    assert axis_of("train.optimizer", "adamw, lion").ends == ("adamw", "lion")
    assert axis_of("train.optimizer", "'adamw','lion'").ends == ("adamw", "lion")
    assert axis_of("data.layout", ["packed", "padded"]).ends == ("packed", "padded")
    lists = axis_of("model.encoder_heads", "[1, 2],[2, 2]")
    assert isinstance(lists, Choices)
    assert lists.ends == ([1, 2], [2, 2])
    assert [lists.value(lists.drawn(value)) for value in lists.values] == [[1, 2], [2, 2]]
    assert axis_of("train.compile", "true,false").ends == (True, False)


def test_settings_go_into_tables_below_tables(recipe):
    made = with_settings(recipe, {"data.filters.max_length": 9, "train.regularizers.r-drop": 2.5, "seed": 4}, name="x")
    assert (made.data.filters.max_length, made.train.regularizers, made.seed) == (9, {"r-drop": 2.5}, 4)
    with pytest.raises(RecipeError, match="keys below"):
        with_settings(recipe, {"seed.other": 1}, name="x")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["train.learning_rat=1e-4..1e-3"], "learning_rate"),
        (["trian.learning_rate=1e-4..1e-3"], "trian"),
        (["train.learning_rate=3e-3..1e-4"], "lower to a higher"),
        (["model.encoder_layers=2..2"], "lower to a higher"),
        (["train.learning_rate=1e-4..1e999"], "lower to a higher"),
        (["train.learning_rate=1e-4..x"], "nothing to choose from"),
        (["model.dropout=0.1"], "nothing to choose from"),
        (["model.dropout=0.1,0.1"], "named twice"),
        (["model.dropout=0.1,,0.2"], "a value is missing"),
        (["model.dropout=0.1..1.5"], "dropout"),
        (["model.heads=2..3"], "must divide"),
        (["model.dropout"], "must be table.key=values"),
        (["model.dropout=0.1,0.2", "model.dropout=0.3,0.4"], "given twice"),
        (["train.validate_with=loss,bleu"], "the same for all"),
        (["data.valid_lines=10,20"], "the same for all"),
        (["text.size=300,400"], "--metric bleu"),
        (["train.learning_rate=1e-4..1e-3", "--sampler", "grid"], "no end of values"),
        (["model.encoder_layers=1..9", "--sampler", "grid", "--trials", "5"], "--trials 9"),
        (["model.dropout=0.1,0.2", "--metric", "accuracy"], "accuracy"),
        (["model.dropout=0.1,0.2", "--metric", "best"], "metric"),
        (["model.dropout=0.1,0.2", "--trials", "0"], "trials"),
    ],
)
def test_mistakes_are_told_before_anything_is_trained(tmp_path, file, capsys, given, said):
    flags = [word for each in given for word in (("--try", each) if "." in each and each[0] != "-" else (each,))]
    assert main(["sweep", str(file), "--out", str(tmp_path / "s"), *flags]) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert shown.count("\n") <= 3
    assert not (tmp_path / "s" / "trials").exists()


def test_nothing_to_try_is_said(recipe):
    with pytest.raises(RecipeError, match="nothing is to be tried"):
        space_of(recipe, pairs_of([]))


def test_another_command_is_refused_and_the_difference_named(tmp_path, recipe):
    tried = {"model.dropout": [0.1, 0.2]}
    regard.sweep(short(recipe), tmp_path, tried, Sweeping(trials=1))
    with pytest.raises(DataError, match=r"train.max_updates was 2 and is now 3\. Give"):
        regard.sweep(recipes.changed(short(recipe), {"train": {"max_updates": 3}}, name="x"), tmp_path, tried)
    with pytest.raises(DataError, match=r'--try model.dropout was "0.1,0.2" and is now "0.1,0.3"'):
        regard.sweep(short(recipe), tmp_path, {"model.dropout": [0.1, 0.3]})
    with pytest.raises(DataError, match="--prune was true and is now false; --seed was 0 and is now 1"):
        regard.sweep(short(recipe), tmp_path, tried, Sweeping(seed=1, prune=False))
    (tmp_path / "sweep.json").write_text("{", encoding="utf-8")
    with pytest.raises(DataError, match="damaged"):
        regard.sweep(short(recipe), tmp_path, tried)


def test_two_sweeps_do_not_share_a_directory(tmp_path, recipe):
    def again(trial):
        regard.sweep(short(recipe), tmp_path, {"model.dropout": [0.1, 0.2]})

    with pytest.raises(TrainingError, match="another process"):
        regard.sweep(short(recipe), tmp_path, {"model.dropout": [0.1, 0.2]}, progress=again)


def test_without_optuna_it_says_how_to_install(tmp_path, file, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert main(["sweep", str(file), "--out", str(tmp_path / "s"), "--try", "model.dropout=0.1,0.2"]) == 2
    assert "pip install '.[sweep]'" in capsys.readouterr().err


def test_its_help_loads_neither_torch_nor_optuna():
    code = "import regard.sweeping.command, sys; sys.exit(bool({'torch', 'optuna'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
