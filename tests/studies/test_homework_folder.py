"""The homework kit as a student and a teacher use it: folders, the other process and its limits, the class's report."""

from __future__ import annotations

import csv
import json
import shutil
import textwrap
from pathlib import Path

import pytest
import torch

from regard.apps.cli import main
from regard.errors import DataError
from regard.studies.homework import asking
from regard.studies.homework.asking import Asked, Failure, ask
from regard.studies.homework.exercise import exercises
from regard.studies.homework.folder import write
from regard.studies.homework.grade import check, report
from regard.studies.homework.showing import shown
from regard.studies.homework.values import Unknown, decoded, encoded


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of model answers."""
    folder = tmp_path_factory.mktemp("answers") / "answers"
    write(folder, answered=True)
    return folder


def with_code(answers: Path, folder: Path, name: str, code: str) -> Path:
    """A folder with one exercise: the model answer, and this code behind it."""
    exercise = exercises()[name]
    folder.mkdir(exist_ok=True)
    text = (answers / exercise.file).read_text("utf-8")
    (folder / exercise.file).write_text(f"{text}\n\n{textwrap.dedent(code)}", "utf-8")
    return folder


def names_of(folder: Path, name: str, seconds: float = 0.0) -> tuple[int, list[str]]:
    """The points of an exercise and the names of what is wrong with it."""
    (graded,) = check(folder, [name], seconds=seconds)
    return graded.points, [finding.name for each in graded.checks for finding in each.findings]


# -- writing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_new_folder_has_a_file_for_each_exercise_and_says_how_to_go_on(tmp_path: Path, language: str, capsys) -> None:
    assert main(["homework", str(tmp_path / "new"), "--language", language]) == 0
    files = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert files == sorted(["README.md", *(exercise.file for exercise in exercises().values())])
    text = (tmp_path / "new" / "README.md").read_text("utf-8")
    assert "regard homework check . scores" in text
    assert all(file in text for file in files[:-1])
    assert str(tmp_path / "new") in capsys.readouterr().out


def test_nothing_is_ever_overwritten(tmp_path: Path, capsys) -> None:
    (tmp_path / "mine").mkdir()
    assert main(["homework", str(tmp_path / "mine")]) == 0  # an empty one is as good as none
    (tmp_path / "mine" / "01_scores.py").write_text("mine", "utf-8")
    for words in ([], ["answers"]):
        assert main(["homework", *words, str(tmp_path / "mine")]) == 2
        assert "is not an empty folder; name a new one" in capsys.readouterr().err
    assert (tmp_path / "mine" / "01_scores.py").read_text("utf-8") == "mine"
    assert main(["homework", str(tmp_path / "mine" / "01_scores.py")]) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["check"], "check of which folder?"),
        (["check", "nowhere"], "nowhere is no folder"),
        (["check", "."], "holds none of the files 01_scores.py"),
        (["check", ".", "mask"], "there is no exercise 'mask'"),
        (["a", "b"], "one new folder, and 2 are given"),
        (["report", "."], "report needs it"),
        (["report", ".", "--output", "class.csv"], "holds no folder with exercises"),
        (["check", ".", "--output", "class.csv"], "--output is the file that report writes"),
        (["new", "--json"], "--json is for"),
        (["new", "--seconds", "3"], "--seconds limits"),
        (["new", "--language", "fr"], "there are en and zh"),
    ],
)
def test_mistakes_are_said_and_end_with_2(words: list[str], said: str, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["homework", *words]) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_alone_it_lists_the_exercises(capsys) -> None:
    assert main(["homework"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [e.file for e in exercises().values()]


# -- checking ----------------------------------------------------------------------------------------------------------


def test_model_answers_get_full_points_training_included(answers: Path, capsys) -> None:
    """Of three of them, in processes of their own; test_homework.py asks the functions of all in its own process."""
    assert main(["homework", "check", str(answers), "masks", "beam", "transformer", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(each["name"], each["points"]) for each in found["exercises"]] == [
        ("masks", 10),
        ("beam", 10),
        ("transformer", 10),
    ]
    assert found["points"] == found["of"] == 30


def test_a_folder_that_is_not_begun_says_so_in_its_language(tmp_path: Path, capsys) -> None:
    write(tmp_path / "new", "zh")
    assert main(["homework", "check", str(tmp_path / "new"), "bleu", "rouge"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "bleu: 0 / 10  BLEU（还没有开始）",
        "rouge: 0 / 10  ROUGE（还没有开始）",
        "总分：0 / 20",
    ]
    (graded,) = check(tmp_path / "new", ["transformer"])
    assert {finding.name for each in graded.checks for finding in each.findings} == {"empty", "untrained"}


def test_what_is_wrong_is_said_with_the_smallest_input(answers: Path, tmp_path: Path, capsys) -> None:
    folder = with_code(answers, tmp_path / "one", "bleu", "def brevity(candidate, references): return 1.0")
    (graded,) = check(folder, ["bleu"])
    assert graded.points == 4
    assert shown(graded, "en").splitlines() == [
        "bleu: 4 / 10  BLEU",
        "  ✓ precision: precision of n-grams (4 / 4)",
        "  ✗ brevity: the brevity penalty (0 / 3)",
        "      There is no penalty: short candidates must be punished.",
        "        the smallest input that shows it: brevity(candidate=['A', 'B', 'C'], "
        "references=[['A', 'B', 'C', 'D', 'E']])",
        "        yours: 1",
        "        right: 0.5134",
        "  ✗ bleu: BLEU (0 / 3)",
        "      `bleu` itself is right; it fails because it calls `brevity`, which is still wrong.",
    ]


@pytest.mark.parametrize(
    ("sorted_by", "points", "name"), [("-candidate[0]", 4, "follows"), ("candidate[0]", 0, "worst")]
)
def test_what_follows_from_another_mistake_is_told_from_a_mistake_of_its_own(
    sorted_by: str, points: int, name: str, answers: Path, tmp_path: Path
) -> None:
    folder = with_code(answers, tmp_path / "one", "beam", "")
    file = folder / "12_beam.py"
    text = file.read_text("utf-8").replace("log_probability / length**alpha", "log_probability * length**alpha")
    file.write_text(text.replace("-candidate[0]", sorted_by), "utf-8")
    assert names_of(folder, "beam") == (points, ["wrong-way", name])


def test_what_the_code_writes_into_its_folder_is_no_result(answers: Path, tmp_path: Path) -> None:
    lines = '{"ends": 99}\\n{"ends": "a", "value": 1}\\n{"begins": [1]}\\n[]\\n{"ends": 0, "value": {"tensor": 1}}\\n'
    code = f"open('results.jsonl', 'a').write('{lines}')"
    assert names_of(with_code(answers, tmp_path / "one", "bleu", code), "bleu") == (10, [])


@pytest.mark.parametrize(
    ("name", "code", "points", "names"),
    [
        ("bleu", "def brevity(candidate, references):\n    while True: pass", 4, ["slow", "slow"]),
        ("bleu", "import sys\ndef brevity(candidate, references): sys.exit(0)", 4, ["exit", "follows"]),
        ("bleu", "import os\ndef brevity(candidate, references): os._exit(0)", 4, ["crash", "crash"]),
        ("bleu", "import os, signal\ndef brevity(c, r): pass\nprecision = None", 0, ["missing", "error", "follows"]),
        ("bleu", "del brevity", 4, ["missing", "follows"]),
        ("bleu", "def brevity(candidate): return 1.0", 4, ["error", "follows"]),
        ("bleu", "def brevity(candidate, references)\n    return 1", 0, ["syntax"] * 3),
        ("bleu", "raise SystemExit", 0, ["exit"] * 3),
        ("bleu", "def brevity(candidate, references): return [0] * (1 << 33)", 4, ["memory", "follows"]),
        ("bleu", "def brevity(candidate, references): references.clear(); return 1.0", 4, ["changed", "follows"]),
        ("bleu", "def brevity(candidate, references): return lambda: 1", 4, ["kind", "follows"]),
        ("bleu", "def brevity(candidate, references): input()", 4, ["error", "follows"]),
        ("masks", "def causal(size): return torch.ones(1 << 33)", 7, ["memory"]),
        (
            "masks",
            "def weigh(scores, mask): return scores.masked_fill_(~mask, -1e9).softmax(-1) * mask",
            5,
            ["changed"],
        ),
    ],
)
def test_code_that_misbehaves_costs_its_own_points_alone(
    name: str, code: str, points: int, names: list[str], answers: Path, tmp_path: Path
) -> None:
    found = names_of(with_code(answers, tmp_path / "one", name, code), name, seconds=4)
    assert found == (points, names)


def test_a_syntax_error_is_said_once_with_its_line_and_no_traceback(answers: Path, tmp_path: Path, capsys) -> None:
    folder = tmp_path / "one"
    folder.mkdir()
    (folder / "13_bleu.py").write_text("import math\n\ndef bleu(candidate references):\n    return 0\n", "utf-8")
    assert main(["homework", "check", str(folder), "bleu"]) == 0
    out, err = capsys.readouterr()
    assert out.count("Python cannot read the file: invalid syntax") == 1
    assert "(line 3 of your file)" in out
    assert "Traceback" not in out + err


def test_prints_and_files_that_are_no_text_do_no_harm(answers: Path, tmp_path: Path, capfd) -> None:
    noisy = "import sys\nprint('x' * 100_000)\nsys.stderr.write('y' * 100_000)"
    folder = with_code(answers, tmp_path / "one", "bleu", noisy)
    assert names_of(folder, "bleu") == (10, [])
    assert capfd.readouterr() == ("", "")
    (folder / "13_bleu.py").write_bytes(b"\xff\xfe\x00")
    points, names = names_of(folder, "bleu")
    assert (points, len(names)) == (0, 3)


def test_a_missing_file_is_said(answers: Path, tmp_path: Path) -> None:
    shutil.copytree(answers, tmp_path / "mine")
    (tmp_path / "mine" / "13_bleu.py").unlink()
    assert names_of(tmp_path / "mine", "rouge") == (10, [])
    found = {each.name: each for each in check(tmp_path / "mine", ["bleu", "rouge"])}
    assert found["bleu"].points == 0
    assert found["bleu"].checks[0].findings[0].text == "The folder has no file 13_bleu.py."


def test_what_it_starts_ends_with_it(answers: Path, tmp_path: Path) -> None:
    """A process that the student's file leaves behind does not outlive the check."""
    mark = tmp_path / "mark"
    code = f"import subprocess\nsubprocess.Popen(['sh', '-c', 'sleep 3; touch {mark}'])"
    assert names_of(with_code(answers, tmp_path / "one", "bleu", code), "bleu") == (10, [])
    import time

    time.sleep(3.5)
    assert not mark.exists()


def test_a_file_without_the_exercises_words_is_a_failure(tmp_path: Path) -> None:
    file = tmp_path / "one.py"
    file.write_text("def double(x): return 2 * x\n", "utf-8")
    first, second = ask(file, [Asked("double", {"x": torch.ones(2)}), Asked("triple", {"x": 1})], 20.0)  # type: ignore[misc]
    assert torch.equal(first.value, torch.full((2,), 2.0))
    assert second.failure == Failure("missing")


def test_values_pass_between_processes_as_they_are() -> None:
    given = [
        1,
        2.5,
        True,
        None,
        "a",
        (1, [2]),
        {"a": 1, 2: (3,)},
        torch.ones(2, 0),
        torch.tensor([True]),
        float("-inf"),
    ]
    back = decoded(json.loads(json.dumps(encoded(given))))
    assert str(back) == str(given)
    for strange in (object(), 1j, {1}, torch.ones(1, dtype=torch.complex64), b"a", lambda: 1):
        assert isinstance(decoded(json.loads(json.dumps(encoded(strange)))), Unknown)
    assert "pickle" not in Path(asking.__file__).read_text("utf-8")


# -- a class -----------------------------------------------------------------------------------------------------------


def test_the_report_has_a_row_for_each_student_and_no_formula(answers: Path, tmp_path: Path, capsys) -> None:
    for student in ("=HYPERLINK(1)", "李华", "+1", "Ada, Countess"):
        write(tmp_path / "class" / student)
    shutil.copy(answers / "13_bleu.py", tmp_path / "class" / "李华")
    write(tmp_path / "class" / "inner" / "homework", answered=True)
    (tmp_path / "class" / "nobody").mkdir()
    words = ["homework", "report", str(tmp_path / "class"), "bleu", "rouge", "--output", str(tmp_path / "class.csv")]
    assert main(words) == 0
    assert "5 students" in capsys.readouterr().out
    with open(tmp_path / "class.csv", encoding="utf-8-sig", newline="") as file:
        rows = list(csv.reader(file))
    assert rows == [
        ["student", "bleu", "rouge", "total"],
        ["", "10", "10", "20"],
        ["'+1", "0", "0", "0"],
        ["'=HYPERLINK(1)", "0", "0", "0"],
        ["Ada, Countess", "0", "0", "0"],
        ["inner", "10", "10", "20"],
        ["李华", "10", "0", "10"],
    ]


def test_a_report_is_no_folder(answers: Path, tmp_path: Path) -> None:
    write(tmp_path / "class" / "one")
    with pytest.raises(DataError, match="name a file"):
        report(tmp_path / "class", tmp_path, ["bleu"])
