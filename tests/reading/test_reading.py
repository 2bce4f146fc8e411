"""Reading: SQuAD's files and scores, spans and windows, a reader trained, saved, asked again, and refused plainly."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard.apps.cli import main
from regard.errors import DataError, ModelError, RecipeError
from regard.reading import Question, exact, f1, normalized, read_questions, scores_of, write_questions
from regard.reading.squad import Span
from regard.reading.synthetic import synthesize

PASSAGE = "Anna moved from Berlin to Rome in 1998.\nShe sold the clock."
RECIPE = """
name = "tiny"
[data]
batch_tokens = 600
[data.filters]
max_length = 100
[text]
size = 400
shrink = true
[model]
family = "span-reader"
width = 16
layers = 1
heads = 2
max_positions = 100
[train]
max_updates = 6
learning_rate = 0.01
schedule = "constant"
warmup = 1
validate_every = 3
save_every = 3
average = "none"
"""


def _file(passage: str = PASSAGE, **asked: Any) -> dict[str, Any]:
    """A file of one question."""
    question = {"id": "q1", "question": "Where to?", "answers": [{"text": "Rome", "answer_start": 26}], **asked}
    return {"version": "1.1", "data": [{"title": "t", "paragraphs": [{"context": passage, "qas": [question]}]}]}


# -- files -------------------------------------------------------------------------------------------------------------


def test_both_versions_are_read_and_written_again(tmp_path: Path) -> None:
    first = tmp_path / "one.json.gz"
    first.write_bytes(gzip.compress(json.dumps(_file()).encode()))
    [question] = read_questions(first)
    assert question == Question("Where to?", PASSAGE, (Span("Rome", 26),), "q1")
    none = _file(is_impossible=True, answers=[], plausible_answers=[{"text": "Berlin", "answer_start": 16}])
    (tmp_path / "two.json").write_text(json.dumps(none), encoding="utf-8")
    [other] = read_questions(tmp_path / "two.json")
    assert other.answers == ()
    both = [question, Question("Who?", PASSAGE, (), "q2")]
    assert read_questions(write_questions(tmp_path / "both.json", both)) == both


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("{", "is no JSON, cut short"),
        ("[" * 100_000, "is no JSON, cut short, or nested too deeply"),
        ("[]", "the file = "),
        ('{"data": [{"paragraphs": [{"context": "a", "qas": [{"id": 5, "question": "b"}]}]}]}', r"qas.0.id = 5"),
        ('{"version": "1.1"}', "data: field required"),
        (json.dumps(_file(answers=[{"text": "Rome", "answer_start": 3}])), "does not stand at character 3"),
        (json.dumps(_file(answers=[{"text": "Rome", "answer_start": -1}])), "answer_start = -1"),
        (json.dumps(_file(passage="")), "context = "),
        ("\ud800".encode("utf-8", "surrogatepass"), "is no JSON"),
    ],
)
def test_a_strangers_file_is_refused_in_a_sentence(
    given: str | bytes, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "odd.json"
    file.write_bytes(given if isinstance(given, bytes) else given.encode())
    with pytest.raises(DataError, match=said):
        read_questions(file)
    assert main(["read", "evaluate", "nowhere", str(file)]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_ids_are_each_questions_own(tmp_path: Path) -> None:
    given = _file()
    given["data"] *= 2
    (tmp_path / "twice.json").write_text(json.dumps(given), encoding="utf-8")
    with pytest.raises(DataError, match="two questions have the id 'q1'"):
        read_questions(tmp_path / "twice.json")


# -- scores ------------------------------------------------------------------------------------------------------------


def test_scores_worked_out_by_hand() -> None:
    assert normalized("The  U.S. Army, an army!") == "us army army"
    assert exact("the Army.", "army") == 1.0
    # Two of three words are right, and the right answer has five once "the" is left out: 2·2 / (3 + 5).
    assert f1("in Rome Italy", "the city of Rome in Lazio") == pytest.approx(2 * 2 / (3 + 5))
    assert f1("a cat cat", "cat sat") == pytest.approx(2 * 1 / (2 + 2)), "a word counts as often as both have it"
    assert (f1("", ""), f1("", "Rome"), f1("the", "")) == (1.0, 0.0, 1.0)


def test_the_best_of_several_right_answers_counts_and_no_answer_is_one() -> None:
    two = Question("?", "Rome, in Italy", (Span("Rome", 0), Span("Rome, in Italy", 0)), "a")
    none = Question("?", "Rome", (), "b")
    scores = scores_of([two, none], {"a": "Rome in Italy", "b": "Rome"})
    assert (scores.exact, scores.f1) == (50.0, 50.0)
    assert (scores.answerable_exact, scores.unanswerable_exact) == (100.0, 0.0)
    assert scores_of([two], {"a": "in Italy"}).f1 == pytest.approx(100 * 2 * 2 / (2 + 3))
    with pytest.raises(DataError, match="question 'b' has no answer"):
        scores_of([two, none], {"a": ""})


# -- synthetic questions -----------------------------------------------------------------------------------------------


def test_synthetic_answers_stand_where_they_are_said_to_and_names_are_new() -> None:
    parts = {part: synthesize(200, part=part) for part in ("train", "valid", "test")}
    for questions in parts.values():
        spans = [(q.passage, a) for q in questions for a in q.answers]
        assert all(passage[a.start :].startswith(a.text) for passage, a in spans)
        assert 20 <= sum(not q.answers for q in questions) <= 80
    assert synthesize(20) == synthesize(20) != synthesize(20, seed=2)
    names = [
        {w.strip(".,?") for q in qs for w in q.passage.split() if len(w) > 5 and w[0].isupper()}
        for qs in parts.values()
    ]
    assert not names[0] & names[2]
    with pytest.raises(DataError, match="part 'dev' is unknown"):
        synthesize(3, part="dev")


# -- spans -------------------------------------------------------------------------------------------------------------


def test_the_best_span_is_that_of_trying_all() -> None:
    from regard.reading.model import best_span

    drawn = np.random.default_rng(0)
    for _ in range(50):
        scores, longest = drawn.normal(size=(9, 2)), int(drawn.integers(1, 6))
        pairs = [(i, j) for i in range(3, 8) for j in range(i, min(8, i + longest))]
        right = max(pairs, key=lambda pair: scores[pair[0], 0] + scores[pair[1], 1])
        best, *found = best_span(scores, 3, longest)
        assert tuple(found) == right
        assert best == pytest.approx(scores[right[0], 0] + scores[right[1], 1])


def test_an_answer_is_in_a_window_of_a_long_passage_and_its_tokens_give_it_back() -> None:
    from regard.reading.lines import windows_of
    from regard.text import Tokenizer

    passage = "Über 你好 and " + "more words here, " * 30 + "the end was Rome.\n"
    question = Question("Where was it?", passage, (Span("Rome", passage.index("Rome")),), "q")
    tokenizer = Tokenizer.train([passage, question.question], size=400, symbols=("<passage>",), shrink=True)
    windows = windows_of(tokenizer, [question], 40, "<passage>")
    assert len(windows) > 2
    assert all(len(window.ids) < 40 for window in windows)
    having = [window for window in windows if window.answer]
    assert having
    for window in having:
        start, end = (window.spans[i - window.first] for i in window.answer or ())
        assert passage[start[0] : end[1]].strip() == "Rome"
    covered = {i for window in windows for a, b in window.spans for i in range(a, b)}
    assert covered == set(range(len(passage))), "every character is read"
    with pytest.raises(DataError, match=r"question 'q' has \d+ tokens, and with its passage a line has at most 5"):
        windows_of(tokenizer, [question], 5, "<passage>")


# -- a reader ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of six updates, by the command line."""
    place = tmp_path_factory.mktemp("reading")
    (place / "tiny.toml").write_text(RECIPE, encoding="utf-8")
    for part, count in (("train", "60"), ("valid", "20")):
        assert main(["read", "synthesize", str(place / f"{part}.json"), "--count", count, "--part", part]) == 0
    assert main(_training(place, "run")) == 0
    return place


def _training(place: Path, run: str, *more: str) -> list[str]:
    files = [str(place / name) for name in ("tiny.toml", "train.json", "valid.json")]
    return ["read", "train", *files, "--out", str(place / run), *more]


def test_a_run_that_was_stopped_goes_on_to_the_same_weights(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.train import Trainer

    update = Trainer._update

    def stopping(self: Trainer) -> tuple[float, float]:
        self.stop = self.progress.update == 3
        return update(self)

    monkeypatch.setattr(Trainer, "_update", stopping)
    assert main(_training(trained, "again")) == 130
    monkeypatch.undo()
    assert main(_training(trained, "again", "--resume")) == 0
    weights = [(trained / run / "bundle" / "weights.safetensors").read_bytes() for run in ("run", "again")]
    assert weights[0] == weights[1]


def test_a_bundle_answers_as_it_did_and_says_what_it_is(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from regard.reading.answer import answer

    bundle = trained / "run" / "bundle"
    questions = read_questions(trained / "valid.json")
    given = answer(bundle, questions, always=True)
    for question, found in zip(questions, given, strict=True):
        assert found.text
        assert question.passage[found.start : found.end] == found.text
        assert 0 < found.probability <= 1
    alone = [answer(bundle, [question], always=True)[0] for question in questions]
    assert [each.text for each in alone] == [each.text for each in given], "no answer depends on its neighbours"
    assert main(["inspect", str(bundle), "--verify"]) == 0
    assert main(["translate", str(bundle)]) == 2
    assert "this bundle finds answers in passages; use `regard read answer`" in capsys.readouterr().err


def test_the_command_answers_and_scores(trained: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    bundle, questions = str(trained / "run" / "bundle"), str(trained / "valid.json")
    asked = ["read", "answer", bundle, "--question", "Where did Anna go?", "--passage", "Anna went to Rome."]
    assert main([*asked, "--always", "--json"]) == 0
    [found] = json.loads(capsys.readouterr().out)
    assert found["text"] in "Anna went to Rome."
    assert main(["read", "answer", bundle, questions, "--out", str(tmp_path / "answers.json")]) == 0
    assert json.loads((tmp_path / "answers.json").read_text("utf-8")).keys() == {f"valid-{n}" for n in range(1, 21)}
    assert main(["read", "evaluate", bundle, questions, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["questions"] == 20


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["write"], "regard read 'write': is unknown; choose train, answer"),
        (["answer"], r"takes BUNDLE \[QUESTIONS.json\], and 0 are given"),
        (["answer", "BUNDLE"], "a file of questions, or --question with --passage"),
        (["train", "a", "b", "c"], "needs --out"),
        (["synthesize", "x.json", "--part", "dev"], "part 'dev' is unknown"),
    ],
)
def test_a_wrong_word_is_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["read", *words]) == 2
    assert re.search(said, capsys.readouterr().err)


def test_other_recipes_and_bundles_are_refused(trained: Path, tmp_path: Path) -> None:
    from regard.reading.answer import answer
    from regard.reading.learn import learn
    from regard.recipe import parse

    with pytest.raises(RecipeError, match='and `regard read train` trains "span-reader"'):
        learn(parse('[data]\n[model]\nfamily = "bert"'), tmp_path / "run", [], [])
    with pytest.raises(RecipeError, match="holds a run already"):
        learn(trained / "tiny.toml", trained / "run", trained / "train.json", trained / "valid.json")
    with pytest.raises(ModelError, match="longest is 0"):
        answer(trained / "run" / "bundle", [], longest=0)


def test_matches_are_tokens_of_both_parts() -> None:
    import torch

    from regard.nn.state import Padded
    from regard.reading.model import SpanReader, SpanReaderConfig

    model = SpanReader(SpanReaderConfig(width=16, heads=2, layers=1), 12, 12)
    model.spell([*"abcd", "<passage>", *"efghijk"], [])
    ids = torch.tensor([[6, 7, 4, 7, 8, 3], [6, 4, 9, 3, 0, 0]])
    marked = model._marked(ids, Padded(torch.tensor([6, 4]), 6))
    assert marked[0].tolist() == [0, 2, 1, 3, 1, 1]
    assert marked[1, :4].tolist() == [0, 1, 1, 1]
