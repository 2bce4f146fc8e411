"""How many wrong pairs `regard clean` finds among real ones, and how many right ones go with them.

    REGARD_DATA=… python benchmarks/clean.py

The first pairs of two corpora of Tatoeba, some of which are given the translation of another: what is found of these is
counted, and what else goes, by rule. Corpora of people have wrong and very free translations too, so that not all of
the latter is a mistake. The default of `--worse` was chosen on the same pairs with another draw (seed 0).
"""

from __future__ import annotations

import argparse
import gzip
import os
import random
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from record import RESULTS, circumstances, write

from regard.cleaning.clean import clean
from regard.cleaning.rules import Rules

CORPORA = (("tatoeba_en-de", "de", 20_000), ("tatoeba_en-zh", "zh", 12_000))
WRONG = 300


def measured(name: str, language: str, count: int, seed: int, worse: float) -> dict[str, Any]:
    """Of one corpus what was found and what else went."""
    sides = []
    for code in ("en", language):
        with gzip.open(
            Path(os.environ["REGARD_DATA"], name, f"train.{code}.gz"), "rt", encoding="utf-8", newline="\n"
        ) as f:
            sides.append([line.rstrip("\n") for line, _ in zip(f, range(count), strict=False)])
    wrong = random.Random(seed).sample(range(len(sides[0])), WRONG)
    moved = [sides[1][i] for i in (*wrong[1:], wrong[0])]
    for i, line in zip(wrong, moved, strict=True):
        sides[1][i] = line
    with tempfile.TemporaryDirectory() as folder:
        names = [f"{folder}/{code}" for code in ("source", "target")]
        for file, lines in zip(names, sides, strict=True):
            Path(file).write_text("".join(f"{line}\n" for line in lines), "utf-8")
        began = time.process_time()
        made = clean(*names, f"{folder}/out", languages=("en", language), rules=Rules(worse=worse))
        seconds = time.process_time() - began
        rejected = [line.split("\t") for line in Path(made.files[2]).read_text("utf-8").splitlines()]
    why = {int(number) - 1: rule for rule, number, *_ in rejected}
    others = Counter(rule for number, rule in why.items() if number not in set(wrong))
    found = sum(number in why for number in wrong)
    return {"pairs": count, "wrong": WRONG, "found": found, "others": dict(others), "seconds_of_processor": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--worse", type=float, default=Rules().worse)
    parser.add_argument("--results", type=Path, default=RESULTS / "clean.json")
    given = parser.parse_args()
    found = {name: measured(name, language, count, given.seed, given.worse) for name, language, count in CORPORA}
    write(given.results, {**circumstances(), "seed": given.seed, "worse": given.worse, "corpora": found})


if __name__ == "__main__":
    main()
