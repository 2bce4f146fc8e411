"""Several references of a line: read from one file, counted right, and scored by a run and by `regard evaluate`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from regard import fit, recipe
from regard.apps.cli import main
from regard.errors import DataError, TextError
from regard.metrics import paired_bootstrap, score
from regard.metrics.lines import edits
from regard.text import write_lines
from regard.text.lines import holds_both, read_pairs, references_of

WORDS = ["a\tAH0", "a\tEY1", "cat\tK AE1 T", "lives\tL AY1 V Z", "lives\tL IH1 V Z", "lives\tL IH1 V S"]


# -- reading -----------------------------------------------------------------------------------------------------------


def test_pairs_in_a_row_with_one_source_are_its_references(tmp_path: Path) -> None:
    write_lines(tmp_path / "words.tsv.gz", [*WORDS, "a\tAA1"])
    sources, sets = references_of(read_pairs(tmp_path / "words.tsv.gz"))
    assert sources == ["a", "cat", "lives", "a"], "a source that comes again later is another line"
    assert sets == [
        ["AH0", "K AE1 T", "L AY1 V Z", "AA1"],
        ["EY1", "K AE1 T", "L IH1 V Z", "AA1"],
        ["AH0", "K AE1 T", "L IH1 V S", "AA1"],
    ]
    assert references_of([]) == ([], [])


def test_lists_in_jsonl_are_sentences_and_references(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write_lines(
        path,
        ['{"source": ["One.\\n", "", "Two  three."], "target": ["x ", "y\\nz"]}', '{"source": "w", "target": "v"}'],
    )
    assert list(read_pairs(path)) == [("One. Two three.", "x"), ("One. Two three.", "y z"), ("w", "v")]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"source": "x", "target": []}', ["line 1", "'target'", "empty list"]),
        ('{"source": ["x", 3], "target": "y"}', ["line 1", "'source'", "int"]),
        ('{"source": ["x\\u0000"], "target": "y"}', ["line 1", "NUL"]),
    ],
)
def test_lists_that_are_no_texts_are_refused(tmp_path: Path, line: str, words: list[str]) -> None:
    write_lines(tmp_path / "a.jsonl", [line])
    with pytest.raises(TextError) as caught:
        list(read_pairs(tmp_path / "a.jsonl"))
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_which_files_hold_both_sides() -> None:
    assert [holds_both(name) for name in ("a.tsv", "b/a.JSONL.gz", "a.txt", "tsv.gz", "a.tsv.old")] == [
        True,
        True,
        False,
        True,
        False,
    ]


# -- counting ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "count"),
    [("", "", 0), ("abc", "", 3), ("", "ab", 2), ("kitten", "sitting", 3), ("abc", "abc", 0), ("ab", "ba", 2)],
)
def test_edits_by_hand(one: str, other: str, count: int) -> None:
    assert edits(one, other) == edits(other, one) == count


def test_error_rates_by_hand() -> None:
    # The first: one symbol too many against either of one; the second: right; the third: one edit from "L IH1 V S".
    written = ["EY1 Z", "K AE1 T", "L IH1 F S"]
    _, sets = references_of(tuple(line.split("\t")) for line in WORDS)  # type: ignore[misc]
    found = score(written, sets, ["per", "wer"], resamples=0)
    assert found["per"].value == pytest.approx(100 * (1 + 0 + 1) / (1 + 3 + 4))
    assert found["wer"].value == pytest.approx(100 * 2 / 3)
    assert not found["per"].higher_is_better
    assert found["per"].signature.startswith("nrefs:3|")


def test_of_equally_close_references_the_longest_counts_whatever_their_order() -> None:
    for sets in ([["a b"], ["a c d"]], [["a c d"], ["a b"]]):  # one edit from "a c" either way
        assert score(["a c"], sets, ["per"], resamples=0)["per"].value == pytest.approx(100 / 3)


def test_rates_may_pass_a_hundred_and_empty_references_divide_by_nothing() -> None:
    assert score(["a b c"], ["x"], ["per"], resamples=0)["per"].value == pytest.approx(300)
    assert score(["a"], [""], ["per"], resamples=0)["per"].value == pytest.approx(100)
    assert score([""], [""], ["per", "wer"], resamples=0)["per"].value == 0


def test_a_rate_is_drawn_line_by_line_with_its_length() -> None:
    right, wrong = ["a b c d e f g h"] * 60 + ["a"] * 60, ["a b c d e f g h"] * 60 + ["b"] * 60
    found = score(wrong, right, ["per"])["per"]
    assert found.value == pytest.approx(100 * 60 / 540), "long lines weigh more"
    assert found.interval is not None
    low, high = found.interval
    assert low < found.value < high < 20
    change = paired_bootstrap(wrong, right, right, ["per"])["per"]
    assert (change.system, change.difference) == (0, pytest.approx(-found.value))
    assert change.p_value < 0.05
    assert not change.higher_is_better


# -- a run -------------------------------------------------------------------------------------------------------------

RECIPE = """
name = "words"
[data]
source = "{place}/words.tsv"
valid_source = "{place}/words.tsv"
metrics = ["per", "wer"]
test.test.source = "{place}/words.tsv"
[text]
kind = "characters"
target_kind = "words"
joint = false
[model]
width = 16
heads = 2
feedforward = 16
encoder_layers = 1
decoder_layers = 1
share = "target"
[train]
max_updates = 2
precision = "float32"
device = "cpu"
[search]
beam = 1
extra_length = 5
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_lines(tmp_path / "words.tsv", WORDS)
    (tmp_path / "words.toml").write_text(RECIPE.format(place=tmp_path), encoding="utf-8")
    return tmp_path


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of a library that TensorBoard brings
def test_a_run_and_evaluate_score_words_with_several_pronunciations(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = fit(recipe.load(place / "words.toml"), place / "run")
    results = json.loads((place / "run" / "results.json").read_text("utf-8"))
    assert [each["set"] for each in results["scores"]] == ["dev", "test"]
    for each in results["scores"]:
        assert each["lines"] == 3
        assert list(each["scores"]) == ["bleu", "per", "wer"]
        assert "nrefs:3" in each["scores"]["per"]["signature"]
    options = ["--source", str(place / "words.tsv"), "--metric", "per", "--json"]
    assert main(["evaluate", str(bundle), *options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["lines"] == 3
    assert found["scores"]["per"]["value"] == results["scores"][1]["scores"]["per"]["value"]


def test_a_metric_that_there_is_not_is_said_before_training(place: Path) -> None:
    with pytest.raises(DataError, match="no metric named 'pre'"):
        fit(recipe.load(place / "words.toml", overrides=['data.metrics=["pre"]']), place / "run")
    assert not (place / "run").exists()


def test_a_test_set_of_one_file_must_hold_both_sides(place: Path) -> None:
    with pytest.raises(Exception, match="needs source and reference"):
        recipe.load(place / "words.toml", overrides=["data.test.test.source=words.txt"])
