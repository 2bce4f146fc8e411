"""The metrics of recipes/cmudict/stress.py: stress is left out on both sides, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.extensions import run_script
from regard.metrics import METRICS

SCRIPT = Path(__file__).parents[2] / "recipes" / "cmudict" / "stress.py"


def test_stress_is_left_out() -> None:
    before = dict(METRICS)
    run_script(SCRIPT)
    try:
        said, right = ["AH0 B", "K AE1 T", "D AO1 G"], [["AH1 B", "K AA1 T", "D AO1 G"], ["AH2 B", "K AE0 T", "D AA1"]]
        with_stress, without = (METRICS[name](said, right).value for name in ("per", "per-unstressed"))
        assert with_stress == pytest.approx(100 * 2 / 8)
        assert without == 0.0
        score = METRICS["wer-unstressed"](said, right)
        assert score.value == 0.0
        assert "stress:no" in score.signature
        assert METRICS["wer"](said, right).value == pytest.approx(100 * 2 / 3)
    finally:
        for name in METRICS.keys() - before.keys():
            del METRICS[name]
