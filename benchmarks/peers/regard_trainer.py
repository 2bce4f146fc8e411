"""Regard itself: its Trainer on a store as a user's training drives it, or on given batches.

A job may hold `model`, a recipe's [model] table; without it the model is the Transformer of its shape. The compiled
kernels that it names in `without` are taken away, so that PyTorch's own operations do their work.
"""

from __future__ import annotations

import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import memory
import numpy as np
from loop import PAD, finish, read_job

from regard.data.batches import Batch, Batches
from regard.data.store import Store
from regard.kernels import table as kernels
from regard.models import FAMILIES
from regard.train import Options, TrainConfig, Trainer


class Given:
    """Batches from a file, over and over; stands in for `Batches`."""

    epoch = 0

    def __init__(self, path: str) -> None:
        held = np.load(path)
        self.batches = [_batch(held[f"source_{i}"], held[f"target_{i}"]) for i in range(len(held.files) // 2)]
        self.place = 0

    def __iter__(self) -> Given:
        return self

    def __next__(self) -> Batch:
        batch = self.batches[self.place % len(self.batches)]
        self.place += 1
        return batch

    def position(self) -> dict[str, int]:
        return {"epoch": 0, "place": self.place}

    def seek(self, position: dict[str, int]) -> None:
        self.place = position["place"]


def _batch(source: Any, target: Any) -> Batch:
    """The rows of two rectangles, end to end."""
    real = target[:, 1:] != PAD
    return Batch(
        lines=np.arange(len(source)),
        source=source[source != PAD],
        source_lengths=(source != PAD).sum(1),
        target_input=target[:, :-1][real],
        target_output=target[:, 1:][real],
        target_lengths=real.sum(1),
        layout="packed",
    )


def main() -> None:
    job = read_job()
    for name in job.get("without", ()):
        del kernels.STAND_INS[name]
    shape = job["shape"]
    table = job.get("model") or {
        "family": "transformer",
        "width": shape["width"],
        "heads": shape["heads"],
        "feedforward": shape["feedforward"],
        "encoder_layers": shape["layers"],
        "decoder_layers": shape["layers"],
        "dropout": shape["dropout"],
    }
    config, build = FAMILIES[table["family"]].config, FAMILIES[table["family"]].build
    model = build(config(**table), shape["vocabulary"], shape["vocabulary"], PAD)
    batches: Any = Given(job["batches"])
    if "store" in job:
        batches = Batches(
            Store.open(job["store"]), batch_tokens=job["batch_tokens"], layout=job["layout"], seed=job["seed"]
        )
    updates = job["warmup"] + job["steps"]
    settings = TrainConfig(
        max_updates=updates,
        schedule="constant",
        learning_rate=job["rate"],
        warmup=0,
        label_smoothing=shape["smoothing"],
        precision=job["precision"],
        save_every=updates,
        log_every=1,
        device="cpu",
    )
    seconds: list[float] = []
    losses: list[float] = []
    tokens = [0]
    gains: list[int] = []
    mark, before = time.perf_counter(), 0

    def hear(event: dict[str, Any]) -> None:
        """After each update: everything between two calls is its time, making the batch included."""
        nonlocal mark, before
        now = time.perf_counter()
        if event["event"] != "train":
            return
        seconds.append(now - mark)
        losses.append(event["loss"])
        tokens.append(event["tokens"])
        if job["memory"]:
            gains.append(memory.most() - before)
            before = memory.held() if memory.forget() else 0
        mark = time.perf_counter()

    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model, batches, settings, Path(folder), seed=job["seed"], width=shape["width"], options=Options(report=hear)
        )
        trainer.run()
    each = [after - before for before, after in pairwise(tokens)]
    finish(job, model, seconds, losses, each, gains)


if __name__ == "__main__":
    main()
