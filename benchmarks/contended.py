"""Training and translating beside busy processes: how much of its fair share of the processor each system keeps.

    REGARD_DATA=… ./run bench contended --bundle runs/base

Beside each measurement 0 to 4 other processes run that do nothing but compute, one thread each, in the same session and
at the same priority. A system with T threads on C cores beside B busy processes is due min(1, C / (T + B)) of what it
does alone, if the scheduler gives every thread that is ready as much as every other: with two threads on two cores 2/3
beside one, 1/2 beside two, 2/5 beside three, 1/3 beside four. `share` is what it keeps of that. A system with fewer
threads is due more of less, so the speeds stand beside it.

Training: Regard's Trainer, a plain PyTorch loop (attention by batched products) and eole's model in it, all on the same
batches. Translating: Regard and CTranslate2 in int8 and float32, CTranslate2 in each split of workers and threads.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from decode import Bench, Choice
from environments import interpreter
from record import RESULTS, circumstances, write
from workers import Machine, at_least, exit_code, save_batches, synthetic, threads_option

from regard.bundle import load

SHAPE = {"layers": 4, "width": 256, "feedforward": 1024, "heads": 4, "dropout": 0.1, "smoothing": 0.1}
VOCABULARY, WARMUP = 8000, 5
TRAINERS = {"regard": "regard_trainer", "plain loop": "batched_products", "eole": "eole_model"}
PATIENCE = 12.0
"""Seconds after which a peer's loop is cut off; its speed is that of the steps that it made."""


@contextmanager
def busy(count: int) -> Iterator[None]:
    """As many processes that only compute."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
        for other in others:
            other.wait()


def trainers(arguments: argparse.Namespace, folder: Path) -> dict[str, tuple[int, Callable[[], float]]]:
    """By name: threads, and what measures target tokens a second."""
    path, rows = folder / "batches.npz", arguments.batch_tokens // 32
    save_batches(path, synthetic(WARMUP + arguments.steps, rows, 32, VOCABULARY))
    machine = Machine(arguments.threads)

    def measured(system: str, precision: str) -> float:
        job = {
            "batches": str(path),
            "shape": {**SHAPE, "vocabulary": VOCABULARY},
            "bfloat16": precision == "bfloat16",
            "precision": precision,
            "warmup": WARMUP,
            "steps": arguments.steps,
            "rate": 5e-4,
            "memory": False,
            "limit": PATIENCE,
        }
        found = machine.run(TRAINERS[system], job, interpreter(system))
        return float(found["tokens"] / found["seconds"])

    pairs = [
        ("regard", "auto"),
        *((system, p) for system in TRAINERS if system != "regard" for p in arguments.precisions),
    ]
    return {
        f"training, {system} {precision}": (arguments.threads, lambda s=system, p=precision: measured(s, p))  # type: ignore[misc]
        for system, precision in pairs
        if system in arguments.only
    }


def decoders(arguments: argparse.Namespace, folder: Path) -> dict[str, tuple[int, Callable[[], float]]]:
    """The same of translating."""
    if arguments.bundle is None:
        return {}
    arguments.shortlist, arguments.turns = False, 1
    bench, threads = Bench(arguments, load(arguments.bundle), folder), arguments.threads
    choices = [Choice("regard", "int8", threads), Choice("regard", "auto", threads)]
    if "ctranslate2" in arguments.only:
        for workers, total in sorted({(1, 1), (1, threads), (threads, threads)}):
            choices.append(Choice("ctranslate2", "int8_float32", total, workers))
        choices.append(Choice("ctranslate2", "float32", threads, threads))
    job = bench.setting("batch 32, beam 4")
    return {
        f"translating, {choice}": (choice.threads, lambda c=choice: float(bench.measured(c, [job], 1)[0]["speed"]))  # type: ignore[misc]
        for choice in choices
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bundle", type=Path, help="for translating; without it only training is measured")
    parser.add_argument("--source", type=Path, help="sentences (default: Multi30k's test in REGARD_DATA)")
    parser.add_argument("--lines", type=at_least(2), default=64)
    parser.add_argument("--busy", type=int, nargs="+", default=[0, 1, 2, 3, 4], help="busy processes; 0 must be first")
    parser.add_argument("--steps", type=at_least(2), default=12, help="timed updates of a training")
    parser.add_argument("--batch-tokens", type=at_least(64), default=2048)
    parser.add_argument("--precisions", nargs="+", choices=["bfloat16", "float32"], default=["bfloat16", "float32"])
    others = ["regard", "plain loop", "eole", "ctranslate2"]
    parser.add_argument("--only", nargs="+", choices=others, default=others)
    parser.add_argument("--rounds", type=at_least(1), default=1)
    parser.add_argument("--results", type=Path, default=RESULTS / "contended.json")
    threads_option(parser)
    arguments = parser.parse_args()
    if arguments.bundle and arguments.source is None:
        import multi30k

        arguments.source = multi30k.folder() / "test_2016_flickr.en.gz"
    arguments.reference = arguments.source
    rows: dict[str, Any] = {}
    result = {**circumstances(), "threads": arguments.threads, "cores": arguments.threads, "systems": rows}
    with tempfile.TemporaryDirectory() as folder:
        systems = trainers(arguments, Path(folder)) | decoders(arguments, Path(folder))
        for count in [0, *(count for count in arguments.busy if count)]:
            for name, (threads, measure) in systems.items():
                with busy(count):
                    speed = median(measure() for _ in range(arguments.rounds))
                row = rows.setdefault(name, {"threads": threads, "beside": {}})
                fair = min(1.0, arguments.threads / (threads + count))
                alone = row["beside"].get("0", {"speed": speed})["speed"]
                row["beside"][str(count)] = {"speed": speed, "fair": fair, "share": speed / alone / fair}
                print(
                    f"beside {count}: {name}: {speed:,.0f} tokens/s, {speed / alone / fair:.0%} of its share",
                    flush=True,
                )
                write(arguments.results, result)
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
