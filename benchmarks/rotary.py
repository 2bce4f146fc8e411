"""What rotary positions cost a training update: target tokens/s with sinusoids, and with queries and keys turned.

    ./run bench rotary

They are turned by the compiled kernel, or by PyTorch's own operations where it is taken away. Regard's Trainer trains
the same Transformer on the same synthetic batches with each, in a process of its own, in turn, over several rounds.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from record import RESULTS, circumstances, write
from train_step import spread
from workers import Machine, at_least, exit_code, save_batches, synthetic, threads_option

WAYS: dict[str, dict[str, Any]] = {
    "sinusoids": {"positions": "sinusoidal", "without": []},
    "rotary, compiled": {"positions": "rotary", "without": []},
    "rotary, PyTorch": {"positions": "rotary", "without": ["rotary"]},
}
PRECISIONS = ("bfloat16", "float32")


def compare(arguments: argparse.Namespace) -> dict[str, Any]:
    machine, width = Machine(arguments.threads), arguments.width
    model = {
        "family": "transformer",
        "width": width,
        "heads": max(1, width // 64),
        "feedforward": 4 * width,
        "norm": "pre",
    }
    model |= {"encoder_layers": 4, "decoder_layers": 3, "dropout": 0.1}
    shape = {"vocabulary": 8000, "width": width, "smoothing": 0.1}
    job = {"shape": shape, "warmup": 3, "steps": arguments.steps, "rate": 5e-4, "memory": False}
    tokens = arguments.steps * arguments.rows * 32
    speeds: dict[str, dict[str, list[float]]] = {kind: {way: [] for way in WAYS} for kind in PRECISIONS}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "batches.npz"
        save_batches(path, synthetic(4, arguments.rows, 32, 8000))
        for turn in range(arguments.rounds):
            for kind in PRECISIONS:
                for way in list(WAYS)[:: 1 if turn % 2 == 0 else -1]:
                    changed = {"model": {**model, "positions": WAYS[way]["positions"]}, "without": WAYS[way]["without"]}
                    found = machine.run("regard_trainer", {**job, **changed, "batches": str(path), "precision": kind})
                    speeds[kind][way].append(tokens / found["seconds"])
                    print(f"  round {turn + 1}: {kind}, {way}: {speeds[kind][way][-1]:,.0f} tokens/s", flush=True)
    return {
        "threads": arguments.threads,
        "model": model,
        "target_tokens_a_batch": arguments.rows * 32,
        **{kind: {way: spread(each) for way, each in ways.items()} for kind, ways in speeds.items()},
        "compiled_to_pytorch": {
            kind: spread([a / b for a, b in zip(ways["rotary, compiled"], ways["rotary, PyTorch"], strict=True)])
            for kind, ways in speeds.items()
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small model, few updates: to see that it works")
    parser.add_argument("--rounds", type=at_least(1), help="how often each is timed (default: 5)")
    parser.add_argument("--steps", type=at_least(1), help="timed updates (default: 12)")
    parser.add_argument("--rows", type=at_least(1), help="pairs of a batch, of 32 tokens a side (default: 128)")
    parser.add_argument("--width", type=at_least(16), help="features (default: 256)")
    parser.add_argument(
        "--results", type=Path, help="where to write (default: benchmarks/results, nowhere with --quick)"
    )
    threads_option(parser)
    arguments = parser.parse_args()
    for name, quick, usual in (("rounds", 1, 5), ("steps", 2, 12), ("rows", 16, 128), ("width", 64, 256)):
        if getattr(arguments, name) is None:
            setattr(arguments, name, quick if arguments.quick else usual)
    if arguments.results is None and not arguments.quick:
        arguments.results = RESULTS / "rotary.json"
    result = {**circumstances(), **compare(arguments)}
    for kind in PRECISIONS:
        said = ", ".join(f"{way} {result[kind][way]['median']:,.0f}" for way in WAYS)
        print(
            f"{kind}: {said} tokens/s; the kernel is {result['compiled_to_pytorch'][kind]['median']:.2f} times as fast"
        )
    if arguments.results:
        write(arguments.results, result)
        print(f"\nwritten to {arguments.results}")
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
