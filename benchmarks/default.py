"""`regard translate` without options against `--precision exact`, which was its default before: time and text.

    ./run bench default --bundles runs/multi30k/bundle runs/base --source test.en.gz --before older

All are commands in processes of their own, timed from their start to their end, in turn; the faster way is timed
`--rounds` times. Every line must be the same text. Exit code 1 if one is not. `--before` is the source of a version
before the compiled decoder became the default (see older.py), whose `regard translate` without options is timed too.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from older import older_copy
from record import RESULTS, circumstances, write
from workers import BenchmarkError, Machine, at_least, exit_code, threads_option

from regard.bundle import load
from regard.text import read_lines, write_lines


def translated(
    machine: Machine, bundle: Path, source: Path, *options: str, code: Path | None = None
) -> tuple[float, list[str]]:
    """Seconds of the command, of this version or of the one whose code is named, and the lines that it prints."""
    command = [sys.executable, "-m", "regard", "translate", str(bundle.resolve()), str(source), *options]
    began = time.perf_counter()
    environment = machine.environment | ({"PYTHONPATH": str(code)} if code else {})
    done = subprocess.run(command, env=environment, cwd=code, capture_output=True, text=True)
    seconds = time.perf_counter() - began
    if done.returncode:
        raise BenchmarkError(f"regard translate {' '.join(options)} failed: {done.stderr.strip()[-800:]}")
    return seconds, done.stdout.split("\n")[:-1]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bundles", type=Path, nargs="+", required=True)
    parser.add_argument("--source", type=Path, required=True, help="source lines")
    parser.add_argument("--lines", type=at_least(1), default=1000, help="how many of them (default: 1000)")
    parser.add_argument("--rounds", type=at_least(1), default=3, help="of the default (default: 3)")
    parser.add_argument("--results", type=Path, default=RESULTS / "default.json")
    parser.add_argument("--before", type=Path, metavar="FOLDER", help="source of an older version, timed too")
    threads_option(parser)
    arguments = parser.parse_args()
    machine = Machine(arguments.threads)
    lines = read_lines(arguments.source)[: arguments.lines]
    found: dict[str, Any] = {}
    result = {**circumstances(), "threads": arguments.threads, "lines": len(lines), "bundles": found}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        write_lines(source, lines)
        for path in arguments.bundles:
            bundle = load(path)
            default = [translated(machine, path, source) for _ in range(arguments.rounds)]
            exact, texts = translated(machine, path, source, "--precision", "exact")
            before = None
            if arguments.before:
                older = older_copy(path, Path(folder) / bundle.recipe.name)
                before, others = translated(machine, older, source, code=arguments.before.resolve())
                texts = [text if text == other else "" for text, other in zip(texts, others, strict=True)]
            seconds = median(each for each, _ in default)
            differ = sum(a != b for a, b in zip(default[0][1], texts, strict=True))
            found[bundle.recipe.name] = {
                "parameters": bundle.parameters,
                "seconds_by_default": seconds,
                "seconds_exact": exact,
                "times_as_fast": exact / seconds,
                "seconds_before": before,
                "times_as_fast_as_before": before / seconds if before else None,
                "differing_lines": differ,
            }
            write(arguments.results, result)
            print(
                f"{bundle.recipe.name}: {seconds:.2f} s by default, {exact:.2f} s exact, {exact / seconds:.1f} times; "
                + (f"{before:.2f} s before, {before / seconds:.1f} times; " if before else "")
                + f"{differ} of {len(lines)} lines differ",
                flush=True,
            )
    return 1 if any(one["differing_lines"] for one in found.values()) else 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
