"""Corpora that a model makes: every line in its place, whatever interrupts them, and no pair that teaches nothing."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from bundles import ENGLISH, GERMAN, small_bundle

import regard
from regard import recipe as recipes
from regard.apps.cli import main
from regard.errors import ModelError, TextError
from regard.metrics import likeness
from regard.synthetic import records
from regard.synthetic.backtranslate import Cleaning
from regard.tasks.translate import Translator
from regard.tasks.translation import Translation
from regard.text import Tokenizer, read_lines, write_lines

MONOLINGUAL = [*GERMAN, "", *GERMAN[:3], "  "]
ALL = Cleaning(clean=False)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return small_bundle(tmp_path_factory.mktemp("made") / "bundle")


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(records, "SHARD", 5)
    write_lines("mono.de", MONOLINGUAL)
    write_lines("train.en", ENGLISH)
    write_lines("train.de", GERMAN)
    return tmp_path


def saying(monkeypatch, text_of, ended=True):
    """A translator that says what it is told, and how many lines it was asked for."""
    asked = []

    def translate(self, lines, options=None, *, first_line=1, **others):
        asked.extend(range(first_line, first_line + len(lines)))
        return [Translation(text_of(line), ended=ended) for line in lines]

    monkeypatch.setattr(Translator, "translate", translate)
    return asked


def test_every_line_gets_what_the_bundle_makes_of_it(made, place):
    found = regard.backtranslate(made.path, "mono.de", ("out/syn.en", "out/syn.de"), tag="<bt>", cleaning=ALL, beam=3)
    assert (found.lines, found.pairs, found.dropped) == (len(MONOLINGUAL), len(MONOLINGUAL), {})
    assert read_lines("out/syn.de") == MONOLINGUAL
    plainly = [t.text for t in regard.load(made.path).translate(MONOLINGUAL, beam=3)]
    assert read_lines("out/syn.en") == [f"<bt> {text}" for text in plainly]
    assert not list(place.rglob("*.shards"))


def test_a_tag_is_one_token_where_the_recipe_names_it():
    tokenizer = Tokenizer.train(ENGLISH, size=330, symbols=["<bt>"])
    assert tokenizer.tokens(tokenizer.encode(f"<bt> {ENGLISH[0]}")).count("<bt>") == 1


def test_pairs_that_teach_nothing_are_left_out(monkeypatch, made, place):
    lines = ["eins zwei drei", "eins zwei drei", "", "gleich", "kurz", "rund", "still", "halb"]
    says = {"eins zwei drei": "one two three", "gleich": "gleich", "kurz": "long " + "x y z u v w " * 9, "still": ""}
    says["halb"] = "a h\ufffdlf"
    says["rund"] = "a b " * 12
    write_lines("mono.de", lines)
    saying(monkeypatch, lambda line: says.get(line, ""))
    found = regard.backtranslate(made.path, "mono.de", ("syn.en", "syn.de"), cleaning=Cleaning(max_ratio=12))
    assert found.dropped == {"broken": 1, "copied": 1, "duplicate": 1, "empty": 2, "endless": 1, "ratio": 1}
    assert (read_lines("syn.en"), read_lines("syn.de")) == (["one two three"], ["eins zwei drei"])
    saying(monkeypatch, lambda line: f"{line}!", ended=False)
    assert regard.backtranslate(made.path, "mono.de", ("a.en", "a.de")).dropped["cut off"] == 7


def test_an_interrupted_job_does_only_what_is_missing(monkeypatch, made, place):
    whole = ("whole.en", "whole.de"), {"samples": 1, "seed": 3, "cleaning": ALL}
    regard.backtranslate(made.path, "mono.de", whole[0], **whole[1])
    real, asked = Translator.translate, []

    def stopping(self, lines, options=None, *, first_line=1, **others):
        asked.append(first_line)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return real(self, lines, options, first_line=first_line, **others)

    monkeypatch.setattr(Translator, "translate", stopping)
    with pytest.raises(KeyboardInterrupt):
        regard.backtranslate(made.path, "mono.de", ("syn.en", "syn.de"), **whole[1])
    assert not (place / "syn.en").exists()
    regard.backtranslate(made.path, "mono.de", ("syn.en", "syn.de"), **whole[1])
    assert asked == [1, 6, 11, 11, 16]
    assert read_lines("syn.en") == read_lines("whole.en")
    again = regard.backtranslate(made.path, "mono.de", ("syn.en", "syn.de"), **whole[1])
    assert (len(asked), again.pairs) == (5, len(MONOLINGUAL))  # what is done is not done again
    write_lines("syn.en", ["changed"])
    regard.backtranslate(made.path, "mono.de", ("syn.en", "syn.de"), **whole[1])
    assert read_lines("syn.en") == read_lines("whole.en")


def stopped_in_the_end(monkeypatch, *given, **options):
    """A distillation whose shards are all there when it is interrupted."""

    def stopping(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("regard.synthetic.distill.write_lines", stopping)
        with pytest.raises(KeyboardInterrupt):
            regard.distill(*given, **options)
    assert Path(f"{given[2]}.shards").is_dir()


def test_what_another_task_left_is_made_anew(monkeypatch, made, place):
    stopped_in_the_end(monkeypatch, made.path, "train.en", "taught.de")
    asked = saying(monkeypatch, lambda line: f"{line}!")
    regard.backtranslate(made.path, "train.en", ("taught.de", "same.en"), cleaning=ALL)
    assert read_lines("taught.de") == [f"{line}!" for line in ENGLISH]
    assert len(asked) == len(ENGLISH)


def test_of_other_references_another_one_is_taken(monkeypatch, made, place):
    write_lines("turned.de", reversed(GERMAN))
    stopped_in_the_end(monkeypatch, made.path, "train.en", "taught.de", reference="train.de", n_best=4)
    for out in ("taught.de", "anew.de"):
        regard.distill(made.path, "train.en", out, reference="turned.de", by="chrf", n_best=4)
    assert read_lines("taught.de") == read_lines("anew.de")


def test_no_work_is_done_for_a_place_that_no_file_can_have(monkeypatch, made, place):
    (place / "folder").mkdir()
    asked = saying(monkeypatch, lambda line: line)
    with pytest.raises(TextError, match="is a directory"):
        regard.distill(made.path, "train.en", "folder")
    assert not asked
    assert not list(place.rglob("*.shards"))


def test_the_command_line_says_what_it_made(made, place, capsys):
    with gzip.open("mono.de.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(MONOLINGUAL) + "\n")
    command = ["backtranslate", str(made.path), "mono.de.gz", "--out", "syn.en", "syn.de.gz", "--no-clean"]
    assert main([*command, "--tag", "<bt>", "--samples", "1", "--top-k", "5"]) == 0
    shown = capsys.readouterr()
    assert f"{len(MONOLINGUAL)} pairs of {len(MONOLINGUAL)} lines" in shown.out
    assert "symbols" in shown.err
    assert read_lines("syn.de.gz") == MONOLINGUAL
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pairs"] == len(MONOLINGUAL)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--tag", "a b"], "one token"),
        (["--samples", "4"], "one source"),
        (["--max-ratio", "0"], "max_ratio"),
        (["--beam", "0"], "beam"),
        (["--from", "fr"], "fr"),
    ],
)
def test_what_there_is_not_is_refused(made, place, capsys, options, says):
    assert main(["backtranslate", str(made.path), "mono.de", "--out", "syn.en", "syn.de", *options]) == 2
    assert says in capsys.readouterr().err


def test_nothing_that_is_read_is_written_over(made, place):
    for out in (("mono.de", "syn.de"), ("syn.en", "mono.de"), ("same", "same")):
        with pytest.raises(TextError, match="new files"):
            regard.backtranslate(made.path, "mono.de", out)
    with pytest.raises(TextError, match="new file"):
        regard.distill(made.path, "train.en", "train.en")
    assert read_lines("mono.de") == MONOLINGUAL


def test_a_teachers_lines_are_its_translations(made, place):
    assert regard.distill(made.path, "train.en", "taught.de", beam=3).name == "taught.de"
    assert read_lines("taught.de") == [t.text for t in regard.load(made.path).translate(ENGLISH, beam=3)]


def test_of_the_n_best_the_one_most_like_the_reference_is_taken(made, place):
    regard.distill(made.path, "train.en", "taught.de", reference="train.de", by="chrf", n_best=4)
    likes = likeness("chrf")
    for line, reference, found in zip(ENGLISH, GERMAN, read_lines("taught.de"), strict=True):
        texts = [h.text for h in regard.load(made.path).translate([line], n_best=4)[0].hypotheses]
        assert likes(found, reference) == max(likes(text, reference) for text in texts)
    with pytest.raises(ModelError, match="references"):
        regard.distill(made.path, "train.en", "other.de", n_best=4)
    with pytest.raises(ModelError, match=r"reference \(train.de\): it chooses among several"):
        regard.distill(made.path, "train.en", "other.de", reference="train.de")
    regard.distill(made.path, "train.en", "drawn.de", reference="train.de", by="chrf", samples=4)
    drawn = regard.load(made.path).translate(ENGLISH, samples=4)
    for each, reference, found in zip(drawn, GERMAN, read_lines("drawn.de"), strict=True):
        assert len(each.hypotheses) == 4
        assert likes(found, reference) == max(likes(one.text, reference) for one in each.hypotheses)
    with pytest.raises(TextError, match="17"):
        regard.distill(made.path, "train.en", "other.de", reference="mono.de", n_best=4)


def test_one_command_from_a_corpus_to_a_student(monkeypatch, made, place, capsys):
    tables = {
        "data": {"source": "nowhere", "target": "nowhere", "valid_source": "HERE/train.en", "valid_target": "train.de"},
        "text": {"size": 400, "shrink": True},
        "model": {"width": 16, "heads": 2, "feedforward": 32, "encoder_layers": 1, "decoder_layers": 1},
        "train": {"max_updates": 2, "precision": "float32", "device": "cpu", "average": "none"},
    }
    saying(monkeypatch, lambda line: f"{line} und")  # words enough to learn a vocabulary from
    monkeypatch.setenv("HERE", str(place))
    recipe = recipes.to_toml(recipes.validate(tables)).replace("HERE", "${HERE}")
    (place / "student.toml").write_text(recipe, encoding="utf-8")
    command = ["distill", str(made.path), "train.en", "--out", "taught.de", "--recipe", "student.toml"]
    assert main(command) == 2
    assert "--run" in capsys.readouterr().err
    with monkeypatch.context() as quick:
        quick.setattr("regard.apps.cli._SELDOM", 0.0)
        assert main([*command, "--run", "student"]) == 0
    told = capsys.readouterr()
    assert told.out.strip().endswith("bundle")
    assert "10 of 12 lines translated\n" in told.err  # a log without a terminal has both
    assert "update 1: loss" in told.err
    student = regard.load("student/bundle")
    assert (student.recipe.data.source, student.recipe.data.target) == ("train.en", "taught.de")
    saying(monkeypatch, lambda line: line)
    assert main([*command, "--run", "student"]) == 0  # goes on: the teacher is not asked again
    assert read_lines("taught.de") == [f"{line} und" for line in ENGLISH]
    assert main(["distill", str(made.path), "train.en", "--out", "taught.de", "--small", "small"]) == 2
    assert "--run" in capsys.readouterr().err
    for _ in range(2):  # and again, when it is there
        assert main([*command, "--run", "student", "--small", "small"]) == 0
        told = capsys.readouterr()
        assert told.out.strip() == "small"
        small = regard.load("small")
        size, whole = (
            sum(f.stat().st_size for f in Path(d).rglob("*.safetensors")) for d in ("small", "student/bundle")
        )
        assert "The small bundle has 0.1 MB." in told.err
        assert size < whole
        assert (small.recipe.search.precision, small.bundle.shortlist is not None) == ("int8", True)
        assert small.translate(ENGLISH[:1], shortlist=True)
