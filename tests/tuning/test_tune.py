"""Choosing how a bundle searches: what is chosen, what is written, and that nothing else changes."""

from __future__ import annotations

import json
import shutil

import pytest
from bundles import ENGLISH, GERMAN, small_bundle

import regard
from regard import bundle as bundles
from regard.apps.cli import main
from regard.errors import DataError, ModelError, TextError
from regard.metrics import score
from regard.tasks.evaluate import Evaluation
from regard.tasks.golden import answers
from regard.tasks.translate import Translator
from regard.text import write_lines
from regard.tuning import tune as module
from regard.tuning.settings import Grid
from regard.tuning.shortlist import shortlist


@pytest.fixture(scope="module")
def made_once(tmp_path_factory):
    return small_bundle(tmp_path_factory.mktemp("made") / "bundle")


@pytest.fixture
def files(tmp_path, made_once):
    made = bundles.load(shutil.copytree(made_once.path, tmp_path / "bundle"))
    write_lines(tmp_path / "val.en", ENGLISH)
    write_lines(tmp_path / "val.de", GERMAN)
    return made, tmp_path / "val.en", tmp_path / "val.de"


def command(files, *more):
    made, source, reference = files
    return ["tune", str(made.path), "--source", str(source), "--reference", str(reference), *more]


REFERENCES = GERMAN * 50  # 600 lines


def pretended(write):
    """`evaluate_lines` with outputs made of a reference's words by `write(search, number, words)`."""

    def evaluate(translator, source, references, *, search, metrics, **others):
        found = [" ".join(write(search, n, line.split())) for n, line in enumerate(references[0])]
        scores = score(found, references, ["bleu", *metrics], resamples=0)
        return Evaluation(scores, len(found), {}, 1.0, found, {})

    return evaluate


def chosen_of(monkeypatch, files, write, **given):
    monkeypatch.setattr(module, "evaluate_lines", pretended(write))
    return regard.tune(files[0].path, ENGLISH * 50, REFERENCES, dry_run=True, **given)


def test_the_penalty_whose_lengths_fit_is_chosen(monkeypatch, files):
    def write(search, number, words):
        short = max(0, round(4 * (1.2 - search["alpha"])))  # too long above 1.2, too short below
        long = max(0, round(4 * (search["alpha"] - 1.2)))
        return words[: len(words) - short] + ["und"] * long

    found = chosen_of(monkeypatch, files, write, beams=(2,), mbr=False)
    assert found.chosen.search.alpha == pytest.approx(1.2)
    assert found.chosen.length_ratio == pytest.approx(1.0)
    assert found.before.search.alpha == 0.6
    assert {one.search.alpha for one in found.tried} >= {0.0, 0.4, 0.6, 0.8, 1.2, 1.6, 2.0, 1.0, 1.4}


def test_the_length_decides_between_penalties_that_nothing_tells_apart(monkeypatch, files):
    """A word too few in a sixth of the lines costs as much BLEU as a wrong one in fewer; in twice as many, more."""

    def write(search, number, words):
        if search["alpha"] < 1:
            return words[:-1] if number % 6 == 0 else words
        return [*words[:-1], "x"] if number < wrong * search["alpha"] else words

    wrong = 96
    found = chosen_of(monkeypatch, files, write, alphas=(0.6, 1.0, 2.0), beams=(2,), mbr=False)
    values = {one.search.alpha: one.score.value for one in found.tried}
    assert values[0.6] > values[1.0] > values[2.0]
    assert found.chosen.search.alpha == 1.0
    assert "which nothing tells apart from alpha 0.6" in found.why[0]
    wrong = 192
    assert chosen_of(monkeypatch, files, write, alphas=(0.6, 1.0), beams=(2,), mbr=False).chosen.length_ratio < 1


def test_lines_that_run_on_make_no_length_right(monkeypatch, files):
    """Two lines that go on make up for words that an eighth of the others lack; wrong words cost as much elsewhere."""

    def write(search, number, words):
        if search["alpha"] == 1:
            return words[:-1] if number % 9 == 0 else [*words[:-1], "x"] if number % 60 == 1 else words
        return [*words, *["und"] * 37] if number in (1, 2) else words[:-1] if number % 8 == 0 else words

    found = chosen_of(monkeypatch, files, write, alphas=(1.0, 1.2), beams=(2,), mbr=False)
    tried = {one.search.alpha: one for one in found.tried}
    assert (tried[1.2].ran_on, tried[1.0].ran_on) == (2, 0)
    assert tried[1.2].length_ratio < tried[1.0].length_ratio < 1
    assert found.chosen is tried[1.0]
    everything = found.tried[-1].to_dict()
    assert everything["ran_on"] == found.tried[-1].ran_on


def test_a_line_that_runs_on_weighs_more_than_a_length(monkeypatch, files):
    """Where nothing else tells penalties apart: one has the nearer length, and the better score, and such a line."""

    def write(search, number, words):
        if search["alpha"] == 1:
            return words[:-1] if number % 9 == 0 else words
        return [*words, *["und"] * 37] if number == 1 else words[:-1] if number % 10 == 0 else words

    found = chosen_of(monkeypatch, files, write, alphas=(1.0, 1.2), beams=(2,), mbr=False)
    tried = {one.search.alpha: one for one in found.tried}
    assert (tried[1.2].ran_on, tried[1.0].ran_on) == (1, 0)
    assert tried[1.0].score.value < tried[1.2].score.value
    assert tried[1.0].length_ratio < tried[1.2].length_ratio < 1
    assert found.chosen is tried[1.0]


def test_where_every_line_runs_on_the_length_is_that_of_all(monkeypatch, files):
    found = chosen_of(monkeypatch, files, lambda search, number, words: words * 10, beams=(2,), mbr=False)
    assert found.chosen.ran_on == len(REFERENCES)
    assert found.chosen.length_ratio == pytest.approx(10.0)


def test_a_wider_beam_is_chosen_only_if_it_is_better_by_more_than_chance(monkeypatch, files):
    def little(search, number, words):
        """Beam 4 has 200 of the lines better than narrower ones; beam 8 has one line more."""
        good = number % 3 == 0 if search["beam"] == 4 else number % 3 == 0 or number == 1
        return words if search["beam"] >= 4 and good else words[:3] + ["x"] * len(words[3:])

    found = chosen_of(monkeypatch, files, little, alphas=(0.6,), beams=(1, 2, 4, 8), mbr=False)
    assert found.chosen.search.beam == 4
    assert "chance explains" in found.why[-1]
    values = {one.search.beam: one.score.value for one in found.tried}
    assert values[8] > values[4] > values[2] == values[1]


def test_minimum_bayes_risk_must_be_better_by_more_than_chance(monkeypatch, files):
    def better(search, number, words):
        return words if search["mbr"] == "chrf" else [*words[:-2], "x", "y"]

    found = chosen_of(monkeypatch, files, better, alphas=(0.6,), beams=(1, 4))
    assert (found.chosen.search.mbr, found.chosen.search.beam) == ("chrf", 4)
    same = chosen_of(monkeypatch, files, lambda search, number, words: words, alphas=(0.6,), beams=(1, 4))
    assert (same.chosen.search.mbr, same.chosen.search.beam) == ("none", 1)


def test_a_metric_of_errors_is_made_small(monkeypatch, files):
    found = chosen_of(
        monkeypatch,
        files,
        lambda search, number, words: words if search["alpha"] == 0.4 else words[2:],
        alphas=(0.0, 0.4, 2.0),
        beams=(2,),
        mbr=False,
        metric="ter",
    )
    assert found.chosen.search.alpha == 0.4
    assert found.chosen.score.value == 0


def test_draws_give_way_to_a_beam_that_is_as_good(monkeypatch, tmp_path):
    made = small_bundle(tmp_path / "bundle", search={"samples": 3, "top_k": 5, "mbr": "chrf", "extra_length": 5})
    found = chosen_of(monkeypatch, (made,), lambda search, number, words: words, mbr=False)
    assert (found.before.search.samples, found.chosen.search.samples, found.chosen.search.top_k) == (3, 0, 0)
    assert found.chosen.search.mbr == "none"
    assert found.before.name == "3 samples, mbr chrf"


def test_the_choice_is_written_and_all_else_kept(files, capsys):
    made = files[0]
    shortlist(made.path, ENGLISH, GERMAN)
    before = bundles.add_calibration(bundles.load(made.path), bundles.Calibration(temperature=1.5))
    assert main(command(files, "--metric", "chrf", "--alphas", "0.5,2", "--beams", "3", "--json")) == 0
    told = json.loads(capsys.readouterr().out)
    after = bundles.load(made.path)
    assert after.recipe.search.beam == told["chosen"]["search"]["beam"] == 3
    assert after.recipe.search.alpha == told["chosen"]["search"]["alpha"]
    assert after.recipe.search.extra_length == 5
    assert after.recipe.model_copy(update={"search": before.recipe.search}) == before.recipe
    changed = {"recipe.toml", "golden.json", "MODEL_CARD.md"}
    assert {name for name in before.files if after.files[name] != before.files[name]} <= changed
    assert after.calibration == before.calibration
    note = after.provenance.notes["tuned"]
    assert (note["metric"], note["lines"], note["chosen"]) == ("chrf", len(ENGLISH), told["chosen"])
    found = answers(after.model(), after.recipe, after.source, [g.source_ids for g in after.golden])
    assert [list(g.target_ids) for g in after.golden] == found
    assert main(["inspect", "--verify", str(made.path)]) == 0


def test_what_was_chosen_is_how_it_translates(files, tmp_path):
    out = tmp_path / "tuned"
    found = regard.tune(files[0].path, files[1], files[2], out=out, metric="chrf", beams=[3, 5], alphas=[1, 2])
    assert found.written == out
    assert [t.text for t in regard.load(out).translate(ENGLISH)] == found.chosen.hypotheses
    assert [t.text for t in regard.load(files[0].path).translate(ENGLISH)] == found.before.hypotheses


def test_nothing_is_written_where_nothing_is_asked_for(files, capsys):
    assert main(command(files, "--dry-run", "--no-mbr", "--beams", "1,2", "--alphas", "0.6")) == 0
    shown = capsys.readouterr()
    for words in ("nothing was written", "greedy", "tell little apart"):
        assert words in shown.out
    assert "length ratio" in shown.err
    assert bundles.load(files[0].path).digest == files[0].digest


def test_ctrl_c_leaves_the_bundle(monkeypatch, files):
    done = []

    def interrupted(*given, **others):
        done.append(1)
        if len(done) == 3:
            raise KeyboardInterrupt
        return pretended(lambda search, number, words: words)(*given, **others)

    monkeypatch.setattr(module, "evaluate_lines", interrupted)
    assert main(command(files)) == 130
    assert bundles.load(files[0].path).digest == files[0].digest


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--metric", "perplexity"], "no metric of what a search writes"),
        (["--metric", "brackets"], "choose from"),
        (["--metric", "bleau"], "choose from"),
        (["--alphas", "1,x"], "--alphas 1,x"),
        (["--alphas", "-1"], "alpha"),
        (["--alphas", "nan"], "finite"),
        (["--beams", "2.5"], "integer"),
        (["--beams", "0"], "greater than 0"),
        (["--beams", "100000"], "1000"),
        (["--penalty", "words"], "penalty"),
        (["--to", "fr"], "fr"),
        (["--out", __file__], "is in the way"),
    ],
)
def test_what_there_is_not_is_refused(files, capsys, options, says):
    assert main(command(files, *options)) == 2
    assert says in capsys.readouterr().err
    assert bundles.load(files[0].path).digest == files[0].digest


def test_lines_must_fit(files):
    with pytest.raises(TextError, match="12"):
        regard.tune(files[0].path, ENGLISH, GERMAN[:-1])
    with pytest.raises(DataError):
        regard.tune(files[0].path, [], [])
    with pytest.raises(ModelError, match="alpha"):
        Grid.of(alpha=[1.0])


def test_a_model_of_all_positions_has_no_beam(monkeypatch, files):
    monkeypatch.setattr(Translator, "in_order", property(lambda translator: False))
    with pytest.raises(ModelError, match="token by token"):
        regard.tune(files[0].path, ENGLISH, GERMAN)
