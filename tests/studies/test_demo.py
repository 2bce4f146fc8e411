"""The demonstration: honest figures, files that suffice to recompute them, and a prompt that knows what it knows."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from rich.console import Console

from regard import recipe
from regard.studies.demo import evaluate as task
from regard.studies.demo import show as app
from regard.studies.demo.corpus import DIRECTIONS, KINDS, Example, corpus, known, significant, split_of, write
from regard.text.lines import read_lines

HELDOUT = corpus("heldout", per_cell=2)
TRAIN = corpus("train", per_cell=20)


@pytest.fixture
def done(tmp_path: Path) -> task.Demo:
    """A finished run whose model is right on every line but those into Chinese."""
    outputs = ["?" if example.target_language == "zh" else example.target for example in HELDOUT]
    weights = np.eye(3, 4)
    alignment = task.Alignment("<2zh> 9 [b]", "9年", ["▁", "<2zh>", "▁9", "[b]"], ["9", "年", "</s>"], weights)
    shown = [task.Shown("<2zh> 3:05 PM", "下午3:05", "下午3:05"), task.Shown("<2fr> 3:05 PM", "[/]", "15:05")]
    answers = task.answer(HELDOUT, outputs, TRAIN)
    return task.Demo(tmp_path, tmp_path / "bundle", answers, shown, alignment, 12.5)


def test_rates_are_shares_of_right_lines(done: task.Demo) -> None:
    assert task.rate(done.answers, "model") == pytest.approx(0.75)
    assert task.rate(done.answers, "model", direction=("en", "zh")) == 0
    assert task.rate(done.answers, "model", direction=("zh", "en")) == 1
    assert task.rate(done.answers, "model", kind="date") == pytest.approx(0.75)
    assert task.rate(done.answers, "model", kind="date", direction=("zh", "en")) == 1


def test_copy_answers_with_the_line_itself_without_its_tag() -> None:
    lines = [
        Example("<2fr> 15:05", "15:05", "time", "de", "fr"),
        Example("<2zh> 15:05", "下午3:05", "time", "de", "zh"),
    ]
    answers = task.answer(lines, ["", ""], TRAIN)
    assert [answer.outputs["copy"] for answer in answers] == ["15:05", "15:05"]
    assert [answer.right("copy") for answer in answers] == [True, False]


def test_nearest_answers_with_the_target_of_a_training_line_of_the_same_tag() -> None:
    answers = task.answer(TRAIN[:40], [""] * 40, TRAIN)
    assert all(answer.right("nearest") for answer in answers)  # a line that it remembers
    targets = {code: {e.target for e in TRAIN if e.target_language == code} for code in ("en", "de", "fr", "zh")}
    for answer in task.answer(HELDOUT, [""] * len(HELDOUT), TRAIN):
        assert answer.outputs["nearest"] in targets[answer.example.target_language]


def test_the_summary_counts_every_cell_and_lists_what_is_wrong(done: task.Demo) -> None:
    summary = json.loads(json.dumps(task.summary(done)))
    assert summary["lines"] == len(HELDOUT) == 120
    assert list(summary["kind"]) == list(KINDS)
    assert sorted(summary["direction"]) == sorted(f"{a}-{b}" for a, b in DIRECTIONS)
    assert len(summary["wrong"]) == 30
    assert summary["overall"]["model"] == pytest.approx(0.75)


def test_what_it_leaves_suffices_to_recompute_the_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "LINES", {"train": 2, "valid": 2, "heldout": 3})
    train, heldout = task._write_corpus(tmp_path)
    assert read_lines(tmp_path / "heldout.source") == [example.source for example in heldout]
    assert read_lines(tmp_path / "heldout.reference") == [example.target for example in heldout]
    assert read_lines(tmp_path / "train.target") == [example.target for example in train]
    cells = Counter(read_lines(tmp_path / "heldout.cells"))
    assert cells == {f"{a}-{b}\t{kind}\t{a}-{b} {kind}": 3 for a, b in DIRECTIONS for kind in KINDS}


def test_enough_lines_are_held_out() -> None:
    assert task.LINES["heldout"] >= 40


def test_the_recipe_can_be_written_down_and_read_back() -> None:
    written = task.demo_recipe(Path("demo"))
    assert recipe.parse(recipe.to_toml(written)) == written


def test_the_lines_it_shows_are_of_a_known_form_and_in_no_training_data() -> None:
    for value, source, target in task.SHOWN:
        assert known(f"<2{target}> {write(value, source)}")
        if value.kind in ("number", "amount"):
            assert split_of("number", significant(value.number)) == "heldout"
        else:
            day, minute = split_of("year", str(value.moment.year)), split_of("minute", str(value.moment.minute))
            assert (day if value.kind == "date" else minute) != "train"


# --- what is shown ----------------------------------------------------------------------------------------------------


def screen(draw: Callable[[Console], None]) -> str:
    console = Console(file=io.StringIO(), width=100)
    draw(console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_figures_examples_and_heat_map_are_shown_and_drawn(done: task.Demo) -> None:
    shown = screen(lambda console: app.show(done, console))
    assert "75.0" in shown
    assert "下午3:05" in shown
    assert "[/]" in shown  # what a model writes is no markup
    assert "wrong: 15:05" in shown
    assert "regard evaluate" in shown
    assert "██" in shown
    ElementTree.parse(done.directory / "alignment.svg")
    assert "9年" in (done.directory / "alignment.html").read_text("utf-8")


@pytest.mark.parametrize(("share", "text"), [(1.0, "100.0"), (0.99996, "99.9"), (0.97, "97.0"), (0.0, "0.0")])
def test_only_all_right_is_shown_as_a_hundred_per_cent(share: float, text: str) -> None:
    assert app.percent(share) == text


def session(*typed: str) -> str:
    """What a user sees who types these lines and then Ctrl-D; the model writes its input in angle quotes."""
    lines = iter(typed)

    def read(question: str) -> str:
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None

    return screen(lambda console: app.prompt(lambda line: f"«{line}»", console, read))


def test_the_prompt_translates_a_tagged_line() -> None:
    seen = session("  <2fr> 3:05 PM ")
    assert "«<2fr> 3:05 PM»" in seen
    assert "Unlike" not in seen


def test_the_prompt_asks_for_the_language_of_a_line_without_tag() -> None:
    assert "«<2de> 3:05 PM»" in session("3:05 PM", "DE")
    assert "Not one of" in session("3:05 PM", "klingon")
    assert "Not one of" in session("<2es> 3:05 PM")


def test_the_prompt_says_when_a_line_is_unlike_its_training() -> None:
    seen = session("<2fr> How are you?")
    assert "Unlike anything it was trained on" in seen
    assert "Its guess: «<2fr> How are you?»" in seen


def test_an_empty_line_ends_the_prompt() -> None:
    assert "«" not in session("", "<2fr> 3:05 PM")
