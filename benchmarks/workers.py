"""What the benchmarks share: measurements in processes of their own, and mistakes told without a traceback."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import RegardError
from regard.text import BEGIN, END

__all__ = [
    "ISAS",
    "SCRATCH",
    "SCRIPTS",
    "BenchmarkError",
    "Machine",
    "at_least",
    "exit_code",
    "save_batches",
    "synthetic",
    "threads_option",
]

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = Path(__file__).resolve().parent / "peers"
SCRATCH = ROOT / ".peers"
"""Environments of the peers and prepared data; git ignores it."""

ISAS: dict[str, dict[str, str]] = {
    "native": {},
    "avx512": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16", "ATEN_CPU_CAPABILITY": "avx512"},
    "avx2": {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"},
}
"""What libraries may use of the processor; avx512 is without AMX. MKL's products (float32) are not held back by it."""

PATIENCE = 3600
"""Seconds until a measurement that does not end is an error."""


class BenchmarkError(RegardError):
    """A measurement cannot be made, or failed."""


class Machine:
    """Runs the scripts of `peers/`, each with as many threads and as much of the processor as it is given."""

    def __init__(self, threads: int, isa: str = "native") -> None:
        self.threads = threads
        self.environment = {
            **os.environ,
            **ISAS[isa],
            **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads)),
        }

    def run(
        self, script: str, job: dict[str, Any], python: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """What the script, given the job on standard input, writes as the last line of standard output."""
        done = subprocess.run(
            [str(python or sys.executable), str(SCRIPTS / f"{script}.py")],
            input=json.dumps({"seed": 1, **job}),
            capture_output=True,
            text=True,
            env={**self.environment, **(environment or {})},
            timeout=PATIENCE,
        )
        lines = done.stdout.strip().splitlines()
        if done.returncode or not lines:
            said = "\n".join(done.stderr.strip().splitlines()[-12:])
            raise BenchmarkError(f"peers/{script}.py failed with exit code {done.returncode}:\n{said}")
        found: dict[str, Any] = json.loads(lines[-1])
        if found["threads"] != self.threads:
            raise BenchmarkError(f"peers/{script}.py ran on {found['threads']} threads instead of {self.threads}.")
        return found


def save_batches(path: Path, batches: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]]) -> None:
    """Write batches as `peers/loop.py` reads them: source (B, S), and target (B, T + 1) that begins with BEGIN."""
    np.savez(
        path,
        **{
            f"{side}_{i}": ids
            for i, pair in enumerate(batches)
            for side, ids in zip(("source", "target"), pair, strict=True)
        },
    )


def synthetic(count: int, rows: int, length: int, vocabulary: int) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Batches of `rows` pairs of random tokens, all `length` long on both sides, ends counted."""
    draw = np.random.default_rng(1)
    batches = []
    for _ in range(count):
        source, target = (draw.integers(END + 1, vocabulary, (rows, n), dtype=np.int64) for n in (length, length + 1))
        source[:, -1] = target[:, -1] = END
        target[:, 0] = BEGIN
        batches.append((source, target))
    return batches


def threads_option(parser: argparse.ArgumentParser) -> None:
    """Add --threads."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    parser.add_argument("--threads", type=at_least(1), default=cores, help="of each process (default: all cores)")


def at_least(least: int) -> Callable[[str], int]:
    """A whole number of at least `least`, for argparse."""

    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
        return value

    return number


def exit_code(main: Callable[[], int]) -> int:
    """Run `main`; a mistake that the user can mend is told in a line, and the exit code is 2."""
    try:
        return main()
    except RegardError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
