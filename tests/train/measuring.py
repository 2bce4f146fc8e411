"""Runs a benchmark that is a test too, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def measured(benchmark: str, tmp_path: Path, *options: str) -> dict[str, Any]:
    """What the benchmark of this name has found."""
    results = tmp_path / "results.json"
    command = [sys.executable, str(BENCHMARKS / f"{benchmark}.py"), "--results", str(results), *options]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(results.read_text("utf-8"))
    return found
