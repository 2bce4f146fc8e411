"""Loss curves of `precision = "auto"` against the float32 reference on Multi30k: beyond the noise of seeds, or not.

    REGARD_DATA=… ./run bench loss_curves

float32 runs on PyTorch's operations alone, without the compiled kernels. Each precision trains with the same seeds, so
each pair begins with the same weights and reads the same batches. The noise of the seeds is the standard deviation of
the float32 runs; a difference of the means within it is one that another seed makes as well.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import multi30k
import torch
from record import RESULTS, circumstances, write
from workers import SCRATCH, at_least, exit_code, threads_option

import regard
from regard.nn.layers import only_references
from regard.recipe import Recipe, validate

PRECISIONS = ("auto", "float32")


def recipe_of(seed: int, precision: str, updates: int, every: int, quick: bool) -> Recipe:
    """Multi30k with the model of `train_step.py`."""
    place = multi30k.folder()
    files = {"source": "train.en", "target": "train.de", "valid_source": "val.en", "valid_target": "val.de"}
    shape = {"width": 32, "heads": 2, "feedforward": 64, "encoder_layers": 1, "decoder_layers": 1}
    if not quick:
        shape = {"width": 256, "heads": 4, "feedforward": 1024, "encoder_layers": 4, "decoder_layers": 4}
    return validate(
        {
            "name": "loss-curves",
            "seed": seed,
            "data": {
                **{key: str(place / f"{name}.gz") for key, name in files.items()},
                "batch_tokens": 512 if quick else 2048,
                "cache": str(SCRATCH / "loss-curves"),
            },
            "text": {"kind": "bpe", "size": 8000},
            "model": {**shape, "dropout": 0.1, "norm": "pre"},
            "train": {
                "updates": updates,
                "schedule": "linear",
                "rate": 1e-3,
                "warmup": max(1, updates // 10),
                "clip": 1.0,
                "average": "none",
                "precision": precision,
                "log_every": every,
                "validate_every": every,
                "save_every": updates,
                "device": "cpu",
            },
            "search": {"beam": 1, "extra_length": 5},
        }
    )


def curve(recipe: Recipe) -> dict[str, Any]:
    """The training loss (label-smoothed, a target token) and the dev set's, by update."""
    events: list[dict[str, Any]] = []
    reference = only_references() if recipe.train.precision == "float32" else nullcontext()
    with tempfile.TemporaryDirectory() as folder, reference:
        regard.fit(recipe, folder, callbacks=[events.append])
    made: dict[str, Any] = {"precision": next(e["precision"] for e in events if e["event"] == "start")}
    for name, event in (("train", "train"), ("dev", "validate")):
        made[name] = {e["update"]: e["loss"] for e in events if e["event"] == event}
    return made


def compare(runs: dict[str, list[dict[str, Any]]], name: str) -> dict[int, dict[str, Any]]:
    """By update: mean of each precision, difference of the means, and the seeds' noise."""
    found = {}
    for update in runs["float32"][0][name]:
        auto, exact = ([run[name][update] for run in runs[precision]] for precision in PRECISIONS)
        noise = stdev(exact)
        gap = mean(auto) - mean(exact)
        found[update] = {
            "auto": mean(auto),
            "float32": mean(exact),
            "difference": gap,
            "difference_by_seed": [a - b for a, b in zip(auto, exact, strict=True)],
            "noise": noise,
            "within_noise": abs(gap) <= noise,
        }
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--updates", type=at_least(2), help="of each run (default: 300)")
    parser.add_argument("--every", type=at_least(1), help="updates between points of the curve (default: 50)")
    parser.add_argument("--seeds", type=at_least(2), default=3, help="how many seeds")
    parser.add_argument("--quick", action="store_true", help="a tiny model, 6 updates: to see that it works")
    parser.add_argument(
        "--results", type=Path, help="where to write (default: benchmarks/results, nowhere with --quick)"
    )
    threads_option(parser)
    arguments = parser.parse_args()
    updates = arguments.updates or (6 if arguments.quick else 300)
    every = arguments.every or (2 if arguments.quick else 50)
    torch.set_num_threads(arguments.threads)
    runs: dict[str, list[dict[str, Any]]] = {precision: [] for precision in PRECISIONS}
    for seed in range(1, arguments.seeds + 1):
        for precision in PRECISIONS:
            made = curve(recipe_of(seed, precision, updates, every, arguments.quick))
            runs[precision].append(made)
            print(f"seed {seed}, {precision} ({made['precision']}): dev loss {made['dev'][updates]:.4f}", flush=True)
    curves = {name: compare(runs, name) for name in ("train", "dev")}
    last = curves["dev"][updates]
    points = [point["within_noise"] for curve in curves.values() for point in curve.values()]
    result = {
        **circumstances(),
        "threads": arguments.threads,
        "updates": updates,
        "seeds": arguments.seeds,
        "auto_is": runs["auto"][0]["precision"],
        "within_noise_at_the_end": last["within_noise"],
        "points_within_noise": f"{sum(points)} of {len(points)}",
        "curves": curves,
        "runs": runs,
    }
    verdict = "within" if last["within_noise"] else "beyond"
    print(
        f"dev loss after {updates} updates: auto {last['auto']:.4f}, float32 {last['float32']:.4f}; the difference "
        f"{last['difference']:+.4f} is {verdict} the seeds' noise of {last['noise']:.4f}; "
        f"{result['points_within_noise']} points are within it"
    )
    where = arguments.results or (None if arguments.quick else RESULTS / "loss_curves.json")
    if where:
        write(where, result)
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
