"""Pairs encoded into a store a second, by one process and by several.

    python benchmarks/prepare.py --source train.en.gz --target train.de.gz --repeat 100 --workers 1 2 4 8

The files are repeated so many times into one corpus, each line with the number of the repetition in front.
Subwords are learnt once, from the files as they are; then the store is built anew for each number of workers, round
after round. Times are of the building alone, reading included, and the medians count. Exit code 1 if any file of a
store differs from that of the first.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from record import RESULTS, circumstances, write

from regard.data.shards import cores
from regard.data.store import Store
from regard.settings import Filters
from regard.text import Tokenizer, write_lines
from regard.text.lines import read_pairs


def files_of(store: Path) -> dict[str, str]:
    """SHA-256 of every file of a store."""
    found = {}
    for path in sorted(store.iterdir()):
        with path.open("rb") as stream:
            found[path.name] = hashlib.file_digest(stream, "sha256").hexdigest()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--repeat", type=int, default=100, help="how often the files make up the corpus")
    parser.add_argument("--workers", type=int, nargs="+", default=sorted({1, cores()}))
    parser.add_argument("--rounds", type=int, default=3, help="each number of workers so many times")
    parser.add_argument("--size", type=int, default=8000, help="of the vocabulary, which both sides share")
    parser.add_argument("--duplicates", action="store_true", help="look for duplicates too")
    parser.add_argument("--results", type=Path, default=RESULTS / "prepare.json")
    arguments = parser.parse_args()

    pairs = list(read_pairs(arguments.source, arguments.target))
    tokenizer = Tokenizer.train((line for pair in pairs for line in pair), size=arguments.size)
    filters = Filters(drop_duplicates=arguments.duplicates)
    seconds: dict[int, list[float]] = {workers: [] for workers in arguments.workers}
    first: dict[str, str] = {}
    same = True
    with tempfile.TemporaryDirectory() as folder:
        names = [Path(folder) / name for name in ("source", "target")]
        for side, name in enumerate(names):
            write_lines(name, (f"{n} {pair[side]}" for n in range(arguments.repeat) for pair in pairs))
        for _ in range(arguments.rounds):
            for workers in arguments.workers:
                place = Path(folder) / "store"
                began = time.perf_counter()
                store = Store.build(
                    place, read_pairs(*names), tokenizer, tokenizer, filters, "benchmark", workers=workers
                )
                seconds[workers].append(time.perf_counter() - began)
                found = files_of(place)
                first = first or found
                same = same and found == first
                print(f"{workers:3d} workers: {len(store) / seconds[workers][-1]:,.0f} pairs/s", flush=True)
                shutil.rmtree(place)
    count = len(pairs) * arguments.repeat
    runs: list[dict[str, Any]] = [
        {
            "workers": workers,
            "pairs_per_second": round(count / statistics.median(taken)),
            "median_seconds": round(statistics.median(taken), 2),
            "seconds": [round(one, 2) for one in taken],
        }
        for workers, taken in seconds.items()
    ]
    result = {
        **circumstances(),
        "cores": cores(),
        "pairs": count,
        "shards": len(first) - 1,
        "vocabulary": len(tokenizer),
        "drop_duplicates": arguments.duplicates,
        "same_files": same,
        "runs": runs,
    }
    write(arguments.results, result)
    for run in runs:
        print(f"{run['workers']} workers: {run['pairs_per_second']:,} pairs/s, median of {arguments.rounds}")
    print("every file is the same" if same else "FILES DIFFER")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
