"""Regard's speed and memory in training against sequence length, width, depth and batch size, one at a time.

    ./run bench scaling

Batches are random tokens, all sentences of one length; each point is a process of its own, driven by the Trainer. A
straight line is fitted through the seconds of a step against the tokens of a batch: where its R² is near 1, cost is
linear in tokens.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from record import RESULTS, circumstances, write
from workers import Machine, at_least, exit_code, save_batches, synthetic, threads_option

BASE = {"length": 32, "width": 256, "layers": 4, "batch_tokens": 4096}
AXES = {
    "length": [8, 16, 32, 64, 128, 256],
    "width": [128, 256, 384, 512, 768],
    "layers": [1, 2, 4, 6, 8],
    "batch_tokens": [512, 1024, 2048, 4096, 8192, 16384],
}
QUICK_BASE = {"length": 8, "width": 64, "layers": 1, "batch_tokens": 256}
QUICK_AXES = {"length": [4, 8], "width": [64, 128], "layers": [1, 2], "batch_tokens": [128, 256, 512]}
VOCABULARY = 8000
HEAD = 64


def point(machine: Machine, place: dict[str, int], precision: str, warmup: int, steps: int) -> dict[str, Any]:
    """Speed and memory with the given length, width, layers and batch tokens."""
    rows = max(1, place["batch_tokens"] // place["length"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "batches.npz"
        save_batches(path, synthetic(warmup + steps, rows, place["length"], VOCABULARY))
        job = {
            "batches": str(path),
            "shape": {
                "layers": place["layers"],
                "width": place["width"],
                "feedforward": 4 * place["width"],
                "heads": place["width"] // HEAD,
                "dropout": 0.1,
                "vocabulary": VOCABULARY,
                "smoothing": 0.1,
            },
            "precision": precision,
            "warmup": warmup,
            "steps": steps,
            "rate": 5e-4,
            "memory": False,
        }
        found = machine.run("regard_trainer", job)
    return {
        **place,
        "target_tokens_per_step": found["tokens"] / steps,
        "seconds_per_step": found["seconds"] / steps,
        "target_tokens_per_second": found["tokens"] / found["seconds"],
        "peak_bytes": found["peak_bytes"],
        "parameters": found["parameters"],
    }


def line(x: list[float], y: list[float]) -> dict[str, float]:
    """The straight line through some points by least squares, and the share of y's variance that it explains."""
    slope, intercept = np.polyfit(x, y, 1)
    rest = np.array(y) - (slope * np.array(x) + intercept)
    spread = np.array(y) - np.mean(y)
    return {
        "slope": float(slope),
        "intercept": float(intercept),
        "r_squared": float(1 - (rest @ rest) / (spread @ spread)),
    }


def draw(axes: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """Speed and memory over each axis, as SVG."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot as plt

    figure, grid = plt.subplots(2, len(axes), figsize=(3.2 * len(axes), 5), sharey="row", layout="constrained")
    for column, (axis, points) in enumerate(axes.items()):
        x = [p[axis] for p in points]
        grid[0, column].plot(x, [p["target_tokens_per_second"] for p in points], "o-")
        grid[1, column].plot(x, [p["peak_bytes"] / 2**20 for p in points], "o-")
        grid[1, column].set_xlabel(axis.replace("_", " "))
        for panel in grid[:, column]:
            panel.set_xscale("log", base=2)
            panel.grid(alpha=0.3)
    for panel in grid[:, 0]:
        panel.set_ylim(bottom=0)
    grid[0, 0].set_ylabel("target tokens a second")
    grid[1, 0].set_ylabel("peak memory, MB")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few small points: to see that it works")
    parser.add_argument("--axes", nargs="+", choices=AXES, default=list(AXES))
    parser.add_argument("--precision", choices=["auto", "float32", "bfloat16"], default="auto")
    parser.add_argument("--warmup", type=at_least(1), default=3)
    parser.add_argument("--steps", type=at_least(1), default=8)
    parser.add_argument(
        "--results", type=Path, help="where to write (default: benchmarks/results, nowhere with --quick)"
    )
    threads_option(parser)
    arguments = parser.parse_args()
    base, axes = (QUICK_BASE, QUICK_AXES) if arguments.quick else (BASE, AXES)
    machine = Machine(arguments.threads)
    found: dict[str, list[dict[str, Any]]] = {}
    known: dict[tuple[int, ...], dict[str, Any]] = {}  # the axes meet in one point
    for axis in arguments.axes:
        found[axis] = []
        for value in axes[axis]:
            place = {**base, axis: value}
            key = tuple(place.values())
            if key not in known:
                known[key] = point(machine, place, arguments.precision, arguments.warmup, arguments.steps)
            made = known[key]
            found[axis].append(made)
            speed, peak = made["target_tokens_per_second"], made["peak_bytes"] / 2**20
            print(f"{axis} {value}: {speed:,.0f} target tokens/s, {peak:,.0f} MB", flush=True)
    result = {
        **circumstances(),
        "threads": arguments.threads,
        "precision": arguments.precision,
        "vocabulary": VOCABULARY,
        "base": base,
        "axes": found,
    }
    if points := found.get("batch_tokens"):
        tokens = [p["target_tokens_per_step"] for p in points]
        result["seconds_against_tokens"] = line(tokens, [p["seconds_per_step"] for p in points])
        result["bytes_against_tokens"] = line(tokens, [float(p["peak_bytes"]) for p in points])
        print(f"a step's seconds against its tokens: R² = {result['seconds_against_tokens']['r_squared']:.4f}")
    where = arguments.results or (None if arguments.quick else RESULTS / "scaling.json")
    if where:
        write(where, result)
        if find_spec("matplotlib"):
            draw(found, where.with_suffix(".svg"))
        else:
            print("matplotlib is not installed, so nothing was drawn.", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
