"""What a model's translations lose by the mistakes of people, kind by kind, beside another model's loss.

    python benchmarks/noise.py --bundle noised=runs/general-en-de/bundle --bundle plain=runs/plain/bundle \\
        --source everyday.en --reference everyday.de

Every source line gets one kind of mistake (`regard.text.noise`, drawn by seed, kind and line, so that all bundles read
the same), and translations are scored against the references; a picture that stands on both sides is put there too.
Shown is BLEU of the lines as they are, BLEU of each kind, and the mean of what the kinds lose.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any

from record import RESULTS, circumstances, write
from workers import BenchmarkError, exit_code

import regard
from regard.metrics import score
from regard.text import read_lines
from regard.text.noise import NOISES, noised


def spoilt(kind: str, sources: list[str], references: list[str], seed: int) -> tuple[list[str], list[str]]:
    """Both sides with this kind of mistake in every line."""
    pairs = [
        noised(pair, {kind: 1.0}, Random(f"{seed}:{kind}:{number}"))
        for number, pair in enumerate(zip(sources, references, strict=True))
    ]
    return [source for source, _ in pairs], [target for _, target in pairs]


def measured(path: str, sets: dict[str, tuple[list[str], list[str]]]) -> dict[str, Any]:
    """BLEU of a bundle on each set of lines, and what it loses by mistakes."""
    translator = regard.load(path)
    bleu = {}
    for kind, (sources, references) in sets.items():
        written = [each.text for each in translator.translate(sources)]
        bleu[kind] = score(written, references, ("bleu",), resamples=0)["bleu"].value
        print(f"{path} {kind:12s} {bleu[kind]:.2f}", flush=True)
    lost = {kind: bleu["clean"] - value for kind, value in bleu.items() if kind != "clean"}
    return {"bundle": regard.inspect(path).digest, "bleu": bleu, "lost": lost, "lost_on_average": mean(lost.values())}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", action="append", required=True, metavar="NAME=PATH")
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--reference", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", type=Path, default=RESULTS / "noise.json")
    given = parser.parse_args()
    if wrong := [each for each in given.bundle if not all(each.partition("="))]:
        raise BenchmarkError(f"--bundle {wrong[0]}: must be NAME=PATH, as noised=runs/general-en-de/bundle.")
    lines = read_lines(given.source), read_lines(given.reference)
    if len(lines[0]) != len(lines[1]):
        raise BenchmarkError(f"{given.source} has {len(lines[0])} lines and {given.reference} {len(lines[1])}.")
    sets = {"clean": lines, **{kind: spoilt(kind, *lines, given.seed) for kind in NOISES}}
    found = {name: measured(path, sets) for name, _, path in (each.partition("=") for each in given.bundle)}
    write(given.results, {**circumstances(), "lines": len(lines[0]), "seed": given.seed, "bundles": found})
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
