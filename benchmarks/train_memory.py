"""Memory of one training step at 32,000 tokens: Regard against a plain loop that forms all logits at once.

    ./run bench train_memory

The plain loop is `peers/batched_products.py` with F.cross_entropy over all logits. Both train on the same random
batches, each in a process of its own. A step's memory is the most that was resident during the step above what was
resident before it, when weights and the optimiser's state stand and freed memory was given back; the most of a few
steps after a warm-up. Needs Linux (/proc/self).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from record import RESULTS, circumstances, write
from workers import Machine, at_least, exit_code, save_batches, synthetic, threads_option

SHAPES = {
    "small": {"layers": 4, "width": 256, "feedforward": 1024, "heads": 4},
    "base": {"layers": 6, "width": 512, "feedforward": 2048, "heads": 8},
    "tiny": {"layers": 1, "width": 32, "feedforward": 64, "heads": 2},
}
SYSTEMS = {"regard": "regard_trainer", "plain loop": "batched_products"}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=["small", "base"])
    parser.add_argument("--vocabulary", type=at_least(8), default=32_000)
    parser.add_argument("--batch-tokens", type=at_least(32), default=4096, help="tokens a side")
    parser.add_argument("--length", type=at_least(2), default=32, help="tokens of a sentence, its end counted")
    parser.add_argument("--steps", type=at_least(1), default=3, help="measured steps")
    parser.add_argument("--quick", action="store_true", help="a tiny model: to see that it works")
    parser.add_argument(
        "--results", type=Path, help="where to write (default: benchmarks/results, nowhere with --quick)"
    )
    threads_option(parser)
    arguments = parser.parse_args()
    machine = Machine(arguments.threads)
    warmup, shapes = 2, ["tiny"] if arguments.quick else arguments.shapes
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "batches.npz"
        rows = max(1, arguments.batch_tokens // arguments.length)
        save_batches(path, synthetic(warmup + arguments.steps, rows, arguments.length, arguments.vocabulary))
        for name in shapes:
            shape = {**SHAPES[name], "dropout": 0.1, "smoothing": 0.1, "vocabulary": arguments.vocabulary}
            found[name] = {"shape": shape, "step_bytes": {}, "peak_bytes": {}}
            for system, script in SYSTEMS.items():
                for bfloat16 in (True, False):
                    setting = "bfloat16" if bfloat16 else "float32"
                    job = {
                        "batches": str(path),
                        "shape": shape,
                        "bfloat16": bfloat16,
                        "precision": setting,
                        "warmup": warmup,
                        "steps": arguments.steps,
                        "rate": 5e-4,
                        "memory": True,
                    }
                    ran = machine.run(script, job)
                    step = max(ran["step_bytes"])
                    found[name]["step_bytes"][f"{system}, {setting}"] = step
                    found[name]["peak_bytes"][f"{system}, {setting}"] = ran["peak_bytes"]
                    print(f"{name}: {system}, {setting}: a step adds {step / 2**20:,.0f} MB", flush=True)
            for setting in ("bfloat16", "float32"):
                share = (
                    found[name]["step_bytes"][f"regard, {setting}"]
                    / found[name]["step_bytes"][f"plain loop, {setting}"]
                )
                found[name][f"regard_over_plain_{setting}"] = share
                print(f"{name}: Regard's step takes {share:.2f} of the plain loop's in {setting}", flush=True)
    result = {
        **circumstances(),
        "threads": arguments.threads,
        "batch_tokens": arguments.batch_tokens,
        "length": arguments.length,
        "steps": arguments.steps,
        "shapes": found,
    }
    where = arguments.results or (None if arguments.quick else RESULTS / "train_memory.json")
    if where:
        write(where, result)
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
