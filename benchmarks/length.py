"""What becomes of a translation when more is read at once: Bahdanau et al. 2015's figure 2, the text being held equal.

    REGARD_DATA=… ./run bench length

Captions of Multi30k, German to English, are joined by ones, twos, threes and fours. Each family learns from all four,
as many words of each, by its recipe of `recipes/multi30k-de-en`, and translates the dev set's captions by ones, twos,
threes and fours. What it says of a group is compared with what it says of each caption, joined: source and reference
are the same text, so that what BLEU loses, it loses by length. Nothing is chosen on the dev set.

Runs are kept in `--runs` and taken up again; with `--minutes` no run begins after so many.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import multi30k
import torch
from variants import keep, train_once
from workers import ROOT, SCRATCH, at_least, exit_code, threads_option

from regard.metrics import paired_bootstrap
from regard.recipe import Recipe, load
from regard.text import read_lines, write_lines

FAMILIES = ("seq2seq", "bahdanau", "luong", "convs2s", "transformer")
SIZES = (1, 2, 3, 4)
"""Captions that are read at once."""
_WHOLE = math.lcm(*SIZES)
"""Captions are taken in multiples of this, so that groups of every size hold the same ones."""


def joined(lines: Sequence[str], size: int) -> list[str]:
    """Lines in groups of so many, each group one line."""
    return [" ".join(lines[i : i + size]) for i in range(0, len(lines), size)]


def write_corpus(place: Path, lines: int | None = None) -> dict[str, str]:
    """Write the joined captions, or those of the first `lines`; returns keys of `[data]`.

    Neighbours in training are drawn anew for each size. The dev set keeps its order, ones before twos, and so on.
    """
    place.mkdir(parents=True, exist_ok=True)
    captions, paths = multi30k.folder(), {}
    for key, name in (("", "train"), ("valid_", "val")):
        sides = [read_lines(captions / f"{name}.{side}.gz")[:lines] for side in ("de", "en")]
        pairs = list(zip(*sides, strict=True))
        pairs = pairs[: len(pairs) // _WHOLE * _WHOLE]
        made: list[list[str]] = [[], []]
        for size in SIZES:
            if name == "train":
                random.Random(size).shuffle(pairs)
            for into, side in zip(made, zip(*pairs, strict=True), strict=True):
                into += joined(side, size)
        for part, text in zip(("source", "target"), made, strict=True):
            paths[key + part] = str(place / f"{name}.{part}")
            write_lines(place / f"{name}.{part}", text)
    return paths


def recipe_of(family: str, seed: int, paths: dict[str, str], changes: Sequence[str]) -> Recipe:
    """The family's own recipe, of the joined captions and without a test set."""
    data = [f"data.{key}={json.dumps(path)}" for key, path in paths.items()]
    cache = f"data.cache={json.dumps(str(SCRATCH / 'variants'))}"
    file = ROOT / "recipes" / "multi30k-de-en" / f"{family}.toml"
    return load(file, os.environ, [*changes, *data, cache, "data.test={}", f"seed={seed}"])


def by_size(lines: Sequence[str]) -> dict[int, list[str]]:
    """The dev set's lines by how many captions are in one."""
    captions = len(lines) * _WHOLE // sum(_WHOLE // size for size in SIZES)
    parts, first = {}, 0
    for size in SIZES:
        parts[size] = list(lines[first : first + captions // size])
        first += captions // size
    return parts


def compared(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """BLEU by size, and what it is more or less than that of the same captions one by one, with its 95 % interval."""
    said, right = by_size(hypotheses), by_size(references)
    found = {}
    for size in SIZES[1:]:
        test = paired_bootstrap(joined(said[1], size), said[size], [right[size]], language="en")["bleu"]
        found[str(size)] = {
            "one_by_one": test.baseline,
            "at_once": test.system,
            "difference": test.difference,
            "interval": list(test.interval),
            "signature": test.signature,
        }
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=FAMILIES, metavar="FAMILY", help=", ".join(FAMILIES))
    parser.add_argument("--seeds", type=at_least(1), default=1, help="of each family (default: 1)")
    parser.add_argument("--updates", type=at_least(1), default=3000, help="of each run (default: 3000)")
    parser.add_argument("--minutes", type=at_least(1), default=120, help="no run begins after these (default: 120)")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "length", help="where runs are kept")
    parser.add_argument(
        "--quick", action="store_true", help="one family, few captions, 4 updates: to see that it works"
    )
    parser.add_argument("--results", type=Path, help="where to write (default: benchmarks/results, not in part)")
    threads_option(parser)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    changes = [f"train.max_updates={arguments.updates}"]
    if arguments.quick:
        changes = ["train.max_updates=4", "search.beam=1", "search.extra_length=2", "text.shrink=true"]
        arguments.only, arguments.seeds = (arguments.only or list(FAMILIES))[:1], 1
    paths = write_corpus(arguments.runs / ("quick" if arguments.quick else "data"), 48 if arguments.quick else None)
    until = time.monotonic() + 60 * arguments.minutes
    families: dict[str, Any] = {}
    for family in arguments.only or FAMILIES:
        for seed in range(1, arguments.seeds + 1):
            recipe = recipe_of(family, seed, paths, changes)
            out = train_once(family, recipe, arguments.runs, until)
            if out is None:
                continue
            found = compared(read_lines(out / "hypotheses" / "dev.txt"), read_lines(paths["valid_target"]))
            training = json.loads((out / "results.json").read_text(encoding="utf-8"))["training"]
            families.setdefault(family, {})[seed] = {
                "by_size": found,
                "model": recipe.model.model_dump(mode="json", exclude_defaults=True),
                "rate": recipe.train.learning_rate,
                **{key: training[key] for key in ("updates", "target_tokens", "seconds", "precision")},
            }
            for size, row in found.items():
                low, high = row["interval"]
                print(
                    f"  {family}, seed {seed}, {size} at once: BLEU {row['at_once']:.2f}, one by one "
                    f"{row['one_by_one']:.2f}: {row['difference']:+.2f} [{low:+.2f}, {high:+.2f}]",
                    flush=True,
                )
    words = {
        str(size): fmean(len(line.split()) for line in lines)
        for size, lines in by_size(read_lines(paths["valid_source"])).items()
    }
    keep(arguments, "length", {"source_words": words, "families": families})
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
