"""Small students beside their teacher on one core: lines a second, BLEU on validation data and bytes of the bundles.

    REGARD_DATA=… regard distill … --run runs/student --small runs/student/small    (see the recipe's first lines)
    ./run bench student --teacher runs/multi30k-en-de/bundle --student runs/student/small \\
        --source $REGARD_DATA/multi30k/val.en.gz --reference $REGARD_DATA/multi30k/val.de.gz

`--student` may be repeated, each then with a name: `--student attention=runs/student/small`. All translate the same
lines in one process with one thread, in turn, with their own search, and students with the beams that are asked for as
well; the teacher in its default precision and in int8. Loading is not timed.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from record import RESULTS, circumstances, write
from workers import at_least, exit_code

import regard
from regard.kernels.build import threads_at_most
from regard.metrics import score
from regard.text import read_lines


def size_of(bundle: Path) -> int:
    return sum(path.stat().st_size for path in bundle.iterdir())


def named(text: str) -> tuple[str, Path]:
    name, _, path = text.rpartition("=")
    return name or "student", Path(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--teacher", type=Path, required=True, help="a bundle")
    parser.add_argument("--student", type=named, action="append", required=True, help="a bundle, or NAME=BUNDLE")
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--reference", type=Path, required=True)
    parser.add_argument("--beams", type=at_least(1), nargs="*", default=[2, 1], help="of students, besides their own")
    parser.add_argument("--rounds", type=at_least(1), default=5)
    parser.add_argument("--results", type=Path, default=RESULTS / "student.json")
    arguments = parser.parse_args()
    names = [name for name, _ in arguments.student]
    if len({"teacher", *names}) <= len(names):
        parser.error(f"--student: {', '.join(names)}: several need a name each, none of them teacher: NAME=BUNDLE")
    lines, references = read_lines(arguments.source), read_lines(arguments.reference)
    ways: dict[str, tuple[Path, dict[str, Any]]] = {
        "teacher": (arguments.teacher, {}),
        "teacher, int8": (arguments.teacher, {"precision": "int8"}),
    }
    for name, path in arguments.student:
        ways[name] = (path, {})
        ways |= {f"{name}, beam {beam}": (path, {"beam": beam}) for beam in arguments.beams}
    found: dict[str, Any] = {}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    with threads_at_most(1):
        translators = {path: regard.load(path) for path, _ in ways.values()}
        for _ in range(arguments.rounds):
            for name, (path, options) in ways.items():
                translators[path].translate(lines[:32], **options)
                start = time.perf_counter()
                made = translators[path].translate(lines, **options)
                seconds[name].append(time.perf_counter() - start)
                scored = score([one.text for one in made], references, ["bleu"])["bleu"]
                found[name] = {"bleu": scored.value, "signature": scored.signature, "bytes": size_of(path)}
    for name, each in found.items():
        each["lines_s"] = len(lines) / median(seconds[name])
        each["slowest_and_quickest"] = [len(lines) / take(seconds[name]) for take in (max, min)]
        each["times_the_teacher"] = each["lines_s"] / found["teacher"]["lines_s"]
        print(f"{name}: {each['lines_s']:.0f} lines/s, {each['times_the_teacher']:.2f} times, BLEU {each['bleu']:.2f}")
    write(arguments.results, {**circumstances(), "threads": 1, "lines": len(lines), "ways": found})
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
