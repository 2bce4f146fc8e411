"""Law 7 through the command line: a run killed at random moments and resumed ends with the same bits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "kill_and_resume.py"


def measured(tmp_path: Path, *options: str) -> dict[str, Any]:
    results = tmp_path / "results.json"
    command = [sys.executable, str(BENCHMARK), "--results", str(results), *options]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(results.read_text("utf-8"))
    return found


def test_three_kills_and_an_interrupt_change_no_bit(tmp_path: Path) -> None:
    found = measured(tmp_path, "--kills=3", "--interrupts=1", "--updates=16", "--runs=bpe")
    assert found["kills"] == 3
    assert found["kills_inside_a_save"] >= 1
    assert found["interrupts"] == 1
    assert found["identical"]


@pytest.mark.slow
def test_no_kill_anywhere_changes_a_bit(tmp_path: Path) -> None:
    """Both recipes; kills while preparing, training, validating, and inside saves of every kind."""
    found = measured(tmp_path)
    assert found["kills"] >= 24
    assert found["kills_inside_a_save"] >= 6
    assert found["interrupts"] >= 4
    assert found["identical"]
