"""What each way to train is worth by itself: regularisers, optimisers and averages, changed one at a time.

    REGARD_DATA=… ./run bench ablation

As in `table3.py` a Transformer of width 128 (`recipes/multi30k-de-en/small.toml`) is trained on the first 10,000 pairs
of Multi30k, German to English, three seeds each: so few that it reads them some twenty times and regularisers have
something to do. Every row has as many updates of as many target tokens, but for the last one, which has the time that
R-Drop takes. Figures are of val, the test set is not read. Each row's translations are held against those of the
unchanged recipe with the same seed by both paired tests of `regard compare`, and the differences of the seeds give
Student's interval.

Runs are kept in `--runs` and taken up again; with `--minutes` no run begins after so many. Rows may be trained by
several processes (`--only`); one more call without it tells of all.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import multi30k
import torch
from table3 import shortened
from variants import chosen, compared, folder, keep, recipe_of, show, train_all
from workers import ROOT, at_least, exit_code, threads_option

from regard.comparison import Comparing, compare

UPDATES = 1500
RDROP = "r-drop = 1.0"
WORDS = "word-dropout = 0.1"


def updates(number: int) -> list[str]:
    """So many updates, the first tenth of them warming up."""
    return [f"train.max_updates={number}", f"train.warmup={number // 10}"]


VARIANTS: dict[str, list[str]] = {
    "base": [],
    "Muon": ['train.optimizer="muon"', "train.learning_rate=3e-3", "train.weight_decay=0.01"],
    "rotary positions": ['model.positions="rotary"'],
    "moving average": ['train.average="ema"', "train.ema_decay=0.995"],
    "no label smoothing": ["train.label_smoothing=0.0"],
    "dropout 0.2": ["model.dropout=0.2"],
    "BPE-dropout": ["text.sampling=0.1"],
    "word dropout": [f"train.regularizers={{{WORDS}}}"],
    "word replacement": ["train.regularizers={word-replacement = 0.1}"],
    "stochastic depth": ["train.regularizers={stochastic-depth = 0.1}"],
    "R-Drop": [f"train.regularizers={{{RDROP}}}"],
    "R-Drop and word dropout": [f"train.regularizers={{{RDROP}, {WORDS}}}"],
    "twice the updates": updates(2 * UPDATES),
}


def tested(
    common: list[str], variants: dict[str, list[str]], made: dict[str, dict[int, dict[str, Any]]], runs: Path
) -> dict[str, dict[int, dict[str, float]]]:
    """By row and seed, p of both paired tests against the first row of the same seed."""
    base = next(iter(made))
    reference = multi30k.folder() / "val.en.gz"
    found: dict[str, dict[int, dict[str, float]]] = {}
    for seed in made[base]:
        rows = {
            name: folder(name, recipe_of(variants[name], seed, common), runs) / "hypotheses" / "dev.txt"
            for name in made
            if seed in made[name]
        }
        if len(rows) > 1:
            for test in ("bootstrap", "randomisation"):
                asked = Comparing(metric=("bleu",), language="en", test=test, examples=0)
                results = compare(rows, reference, settings=asked).scores["bleu"]
                for name, result in zip(rows, results, strict=True):
                    if result.p is not None:
                        found.setdefault(name, {}).setdefault(seed, {})[test] = result.p
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=at_least(1), default=3, help="of each row (default: 3)")
    parser.add_argument("--pairs", type=at_least(100), default=10_000, help="trained on (default: 10,000)")
    parser.add_argument("--minutes", type=at_least(1), default=240, help="no run begins after these (default: 240)")
    parser.add_argument("--only", nargs="+", choices=VARIANTS, metavar="NAME", help=", ".join(VARIANTS))
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "ablation", help="where runs are kept")
    parser.add_argument("--quick", action="store_true", help="two rows, one seed, 20 updates: to see that it works")
    parser.add_argument("--results", type=Path, help="where to write (default: benchmarks/results, not in part)")
    threads_option(parser)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    variants = chosen(VARIANTS, arguments.only)
    common = ['data.metrics=["bleu"]', *updates(20 if arguments.quick else UPDATES)]
    if arguments.quick:
        variants, arguments.seeds = dict(list(variants.items())[:2]), 1
        common += ["search.beam=1", "search.extra_length=2", "train.validate_every=20"]
    shared = [*common, *shortened(arguments.pairs)]
    until = time.monotonic() + 60 * arguments.minutes
    made = train_all(variants, arguments.seeds, until, arguments.runs, shared)
    table = compared(made, ["perplexity", "bleu"])
    show(table)
    tests = tested(shared, variants, made, arguments.runs)
    for name, seeds in tests.items():
        told = ", ".join(f"{each['bootstrap']:.3f} / {each['randomisation']:.3f}" for each in seeds.values())
        print(f"{name}: p by bootstrap / randomisation, seed by seed: {told}")
    keep(
        arguments,
        "ablation",
        {"pairs": arguments.pairs, "changes": variants, "common": common, "runs": made, "table": table, "tests": tests},
    )
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
