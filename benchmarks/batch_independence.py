"""Count the lines whose translation depends on what else is translated with them.

    python benchmarks/batch_independence.py --bundle runs/multi30k/bundle --source test.en --lines 1000

Every line is translated alone first; then in batches of 7, 32 and 128, in the file's order and shuffled, in every
precision of the compiled decoder and in `exact`. A line differs if its text or a single bit of its log-probability is
another than when it was alone; exact may move the last bits, and none of the texts. Exit code 1 if any differs.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from record import RESULTS, circumstances, write

import regard
from regard.text import read_lines

MODES = ("float32", "bfloat16", "int8", "exact")


def translate(
    translator: regard.Translator, lines: Sequence[str], precision: str, size: int, order: Sequence[int]
) -> tuple[list[regard.Translation], float]:
    """Translations in the file's order, whatever order they were made in, and the seconds it took."""
    began = time.perf_counter()
    found = translator.translate([lines[i] for i in order], batch_size=size, precision=precision)
    seconds = time.perf_counter() - began
    return [translation for _, translation in sorted(zip(order, found, strict=True), key=lambda pair: pair[0])], seconds


def measure(
    translator: regard.Translator, lines: Sequence[str], precision: str, sizes: Sequence[int], seed: int
) -> dict[str, Any]:
    """One mode: the lines that differ from those translated alone, for each size and order."""
    in_order = list(range(len(lines)))
    shuffled = random.Random(seed).sample(in_order, len(lines))
    alone, seconds = translate(translator, lines, precision, 1, in_order)
    runs: list[dict[str, Any]] = [{"batch_size": 1, "order": "file", "seconds": round(seconds, 1)}]
    different: set[int] = set()
    for size in sizes:
        for name, order in (("file", in_order), ("shuffled", shuffled)):
            if size == 1 and name == "file":
                continue
            found, seconds = translate(translator, lines, precision, size, order)
            gaps = [abs(found[i].log_probability - alone[i].log_probability) for i in in_order]
            apart = 1e-9 if precision == "exact" else 0.0
            differ = [i for i in in_order if found[i].text != alone[i].text or gaps[i] > apart]
            different.update(differ)
            runs.append(
                {
                    "batch_size": size,
                    "order": name,
                    "seconds": round(seconds, 1),
                    "differing_lines": len(differ),
                    "largest_gap_of_log_probability": max(gaps, default=0.0),
                }
            )
            print(f"  {size:4d} {name:9s} {len(differ):4d} differ, {seconds:.1f} s", flush=True)
    shown = sorted(different)[:5]
    return {
        "precision": precision,
        "differing_lines": len(different),
        "numbers_of_some": [i + 1 for i in shown],
        "runs": runs,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--source", type=Path, required=True, help="source lines")
    parser.add_argument("--lines", type=int, default=1000, help="how many of them")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 7, 32, 128])
    parser.add_argument("--modes", nargs="+", choices=MODES, default=["float32", "bfloat16", "int8"])
    parser.add_argument("--seed", type=int, default=1, help="of the shuffled order")
    parser.add_argument("--results", type=Path, default=RESULTS / "batch_independence.json")
    arguments = parser.parse_args()
    translator = regard.load(arguments.bundle, device="cpu")
    lines = read_lines(arguments.source)[: arguments.lines]
    modes: dict[str, Any] = {}
    search = translator.recipe.search
    result = {
        **circumstances(),
        "threads": int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1),
        "bundle": translator.recipe.name,
        "parameters": translator.bundle.parameters if translator.bundle else None,
        "lines": len(lines),
        "beam": search.beam,
        "length_penalty": f"{search.penalty} {search.alpha}",
        "modes": modes,
    }
    for name in arguments.modes:
        print(name, flush=True)
        modes[name] = measure(translator, lines, name, arguments.sizes, arguments.seed)
        write(arguments.results, result)
        print(f"{name}: {modes[name]['differing_lines']} of {len(lines)} lines differ in any run", flush=True)
    return 1 if any(mode["differing_lines"] for mode in modes.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
