"""A metric of a user's own is one entry that a script adds: `regard evaluate` and recipes take it by its name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bundles import ENGLISH, GERMAN, small_bundle

from regard.apps.cli import main
from regard.errors import DataError
from regard.metrics import METRICS
from regard.tasks.evaluate import evaluate, wanted_of

SCRIPT = """
from regard.metrics import METRICS, Metric, rate


def length(hypotheses, references, language):
    return rate([len(h) for h in hypotheses], [len(r) for r in references[0]], len(references), "unit:character")


METRICS["length"] = Metric("length ratio", length, "percent of the reference's characters")
"""


def test_a_script_adds_a_metric(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(METRICS, "length", raising=False)
    with pytest.raises(DataError, match=r"no metric named 'length'.*--import"):
        wanted_of(["length"])
    bundle = small_bundle(tmp_path / "bundle").path
    script, source, target = tmp_path / "own_metric_of_a_user.py", tmp_path / "test.en", tmp_path / "test.de"
    for file, text in ((script, SCRIPT), (source, "\n".join(ENGLISH) + "\n"), (target, "\n".join(GERMAN) + "\n")):
        file.write_text(text, encoding="utf-8")
    files = ["--source", str(source), "--reference", str(target)]
    asked = ["evaluate", str(bundle), *files, "--metric", "length", "--json"]
    try:
        assert main(["--import", str(script), *asked]) == 0
        scores = json.loads(capsys.readouterr().out)["scores"]
        assert list(scores) == ["bleu", "length"]
        assert scores["length"]["signature"].startswith("nrefs:1|bs:1000|seed:12345|unit:character")
        found = evaluate(bundle, source=source, reference=target, metrics=["length"], resamples=0)
        written = sum(map(len, found.hypotheses))
        assert found.scores["length"].value == pytest.approx(100 * written / sum(map(len, GERMAN)))
        assert wanted_of(["length"]) == ["bleu", "length"]  # what a recipe's data.metrics is checked by
    finally:
        METRICS.pop("length", None)
