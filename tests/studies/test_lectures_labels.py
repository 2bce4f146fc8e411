"""Names of numbers, texts and messages of `regard lecture` in Chinese."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from regard.apps.cli import main
from regard.studies.lectures.every import LECTURES, about
from regard.studies.lectures.labels import label, message, said
from regard.studies.lectures.trained import TRAINED

ROOT = Path(__file__).resolve().parents[2]
CHINESE = re.compile("[\u4e00-\u9fff]")
SYMBOLS = re.compile(
    r"[^A-Za-z]*|.{1,2}|cos 3, -sin 3, sin 3, cos 3|"
    r"1 / \(1 - p\)|\(R_m q\).*|[a-z]\d( · k)?|d_k|softmax|k n T|n\^T|q · \(R_3 k\)"
)
"""Names that are the same in both languages."""
NUMBERS = json.loads((ROOT / "docs" / "lectures" / "numbers.json").read_text("utf-8"))
"""Of each lecture; that their names are these is held by tests/house/test_lectures_docs.py."""
TOKEN = re.compile(r"\d+ \S+")


@pytest.mark.parametrize("name", LECTURES)
def test_every_number_of_a_lecture_has_a_chinese_name(name):
    names = list(NUMBERS[name])
    chinese = [label(number, "zh") for number in names]
    english = [c for n, c in zip(names, chinese, strict=True) if not CHINESE.search(c) and not SYMBOLS.fullmatch(n)]
    assert english == []
    assert len(set(chinese)) == len(chinese)
    left = [c for c in chinese if re.search(r"\b(the|of|at|that|by|from|with|largest|difference)\b", c)]
    assert left == []
    assert [label(number) for number in names] == names


@pytest.mark.parametrize("path", sorted((ROOT / "results" / "lectures").glob("*.json")), ids=lambda path: path.stem)
def test_every_number_of_a_trained_model_has_a_chinese_name(path):
    names = json.loads(path.read_text("utf-8"))[path.stem]
    assert [n for n in names if not CHINESE.search(label(n, "zh")) and not TOKEN.fullmatch(n)] == []


def test_values_and_messages_that_are_words_are_chinese():
    assert said("91.3; not run", "zh") == "91.3; 未跑"
    assert said("yes", "zh") == "是"
    assert said("A B C <eos>", "zh") == "A B C <eos>"
    assert message("drawn", "zh") == "已画"
    assert message("drawn") == "drawn"


def test_the_command_speaks_chinese(capsys, tmp_path):
    main(["lecture", "greedy", "--language", "zh", "--kind", "svg", "--out", str(tmp_path)])
    out = capsys.readouterr().out
    assert "贪心的概率: 0.048" in out
    assert about("greedy", "zh") in out
    assert f"已画: {tmp_path / 'greedy.svg'}" in out
    assert "probability" not in out
    main(["lecture", "--language", "zh"])
    listed = capsys.readouterr().out
    assert all(about(name, "zh") in listed for name in (*LECTURES, *TRAINED))
    assert message("of a trained model, with --bundle:", "zh") in listed


def test_json_keeps_the_english_names_and_another_language_is_refused(capsys):
    main(["lecture", "greedy", "--language", "zh", "--json"])
    assert "probability of greedy" in json.loads(capsys.readouterr().out)["greedy"]
    assert main(["lecture", "greedy", "--language", "de"]) == 2
    assert "--language is de; the lectures speak en and zh." in capsys.readouterr().err
