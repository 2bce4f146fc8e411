"""The paper's tables and arithmetic: as printed, as counted, and where its own numbers agree."""

from __future__ import annotations

import json
import os
import re
import tomllib
from pathlib import Path

import pytest

from regard.studies.lectures import paper
from regard.studies.lectures.every import lecture

ROOT = Path(__file__).resolve().parents[2]
NAMES = {
    1: "000_a40b71a8f262e87c.txt",
    2: "001_e1b4f984ff261fd7.txt",
    3: "002_b86493527c18e907.txt",
    4: "003_da9a23e8917ad25c.txt",
    5: "004_bac12914446e18ef.txt",
}
"""The lecture documents as extracted; they are not part of the project."""


def document(number: int, *, whole: bool = False) -> str:
    """A lecture document without spaces, or as it is; skips where the documents are not there."""
    folder = os.environ.get("REGARD_SEEDS")
    if not folder:
        pytest.skip("REGARD_SEEDS names no folder with the text of the lecture documents")
    text = (Path(folder) / NAMES[number]).read_text("utf-8")
    return text if whole else squeezed(text)


def squeezed(text: str) -> str:
    """Text without spaces, its punctuation of one width."""
    return re.sub(r"\s+", "", text).translate(str.maketrans("，（）：；！？", ",():;!?"))


def test_slips_quote_their_documents():
    gone = []
    for slip in tomllib.loads((ROOT / "regard/studies/lectures/errata.toml").read_text("utf-8"))["slip"]:
        text = document(slip["document"])
        printed = (squeezed(slip["quote"]), squeezed(slip["slide"].partition("（")[0]))
        gone += [(slip["id"], what) for what in printed if what not in text]
    assert gone == []


def test_hours_times_gpus_are_the_flops_that_table_2_prints():
    numbers = lecture("paper-arithmetic").numbers
    for size in ("base", "big"):
        printed = numbers[f"{size}: FLOPs as printed"]
        assert float(f"{numbers[f'{size}: hours · 8 GPUs · 9.5 TFLOPS']:.1e}") == printed
        # The updates at their printed seconds take no longer than the printed hours.
        hours, updates = (numbers[f"{size}: hours {which}"] for which in ("as printed", _UPDATES))
        assert 0.9 * hours < updates < hours
        assert 0.2 < numbers[f"{size}: share of the printed FLOPs that the model needs"] < 0.5


_UPDATES = "of the updates at the paper's seconds each"


def test_the_models_flops_are_six_for_each_weight_and_token():
    """Matrices that a token passes through, 6 FLOPs for each of their weights, and what attention's products add."""
    d, f, v, tokens = 512, 2048, 37_000, 25_000
    encoder, decoder = 6 * (4 * d * d + 2 * d * f), 6 * (8 * d * d + 2 * d * f)
    matrices = 6 * tokens * (encoder + decoder + d * v)
    assert matrices < paper.update_flops("base") < 1.02 * matrices


def test_recipes_average_every_ten_minutes_of_the_paper():
    for folder in ("wmt14-en-de", "wmt14-en-fr"):
        for size, last in (("base", 5), ("big", 20)):
            train = tomllib.loads((ROOT / "recipes" / folder / f"{size}.toml").read_text("utf-8"))["train"]
            time = paper.printed()["time"][size]
            assert train["average_every"] * time["seconds"] == pytest.approx(600)
            assert (train["max_updates"], train["average_last"]) == (time["updates"], last)


def test_the_papers_rows_are_all_there_and_say_what_was_not_run():
    numbers = lecture("paper-tables").numbers
    rows = {n: [key for key in numbers if key.startswith(f"Table {n},")] for n in (2, 3, 4)}
    assert {n: len(found) for n, found in rows.items()} == {2: 10, 3: 20, 4: 12}
    for found in rows.values():
        assert all("not run" in numbers[key] or "in small" in numbers[key] for key in found)
    assert numbers["Table 4, Transformer, 4 layers, WSJ only: F1"] == "91.3; not run"
    assert numbers["Table 4, Transformer, 4 layers, semi-supervised: F1"] == "92.7; not run"
    assert numbers["Table 3, base: perplexity, BLEU"].startswith("4.92, 25.8; in small 12.16")


def test_what_stands_beside_the_paper_is_of_the_files_of_results(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    import lectures

    assert lectures.MEASURED.read_text("utf-8") == lectures.measured(), "run `python tools/lectures.py`"
    found = paper.measured()
    small = json.loads((ROOT / found["table3"]["file"]).read_text("utf-8"))
    assert found["table3"]["command"] == small["command"]
    assert found["table3"]["rows"]["D: dropout 0"]["perplexity"] == pytest.approx(
        small["table"]["D: dropout 0"]["perplexity"]["mean"] - small["table"]["base"]["perplexity"]["mean"]
    )


def test_directions_agree_with_the_paper_where_it_has_them():
    """No dropout and too narrow keys are worse on either scale; without smoothing the perplexity is better."""
    small = paper.measured()["table3"]["rows"]
    printed = {row["name"]: row["values"][0] for row in paper.printed()["variation"]}
    for ours, theirs in (("D: dropout 0", "(D) P_drop = 0"), ("B: d_k 4", "(B) d_k = 16")):
        assert small[ours]["perplexity"] > 0 < printed[theirs] - printed["base"]
    assert small["D: smoothing 0"]["perplexity"] < 0 > printed["(D) ε_ls = 0"] - printed["base"]
