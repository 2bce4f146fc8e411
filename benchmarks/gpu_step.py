"""Training speed on a GPU: Regard's trainer beside others' models in a plain loop, on pairs of random tokens.

    ./run bench gpu_step

All train the paper's base model (6 + 6 layers of 512, 37,000 shared tokens, dropout 0.1, label smoothing 0.1) with Adam
in bfloat16, on pairs of some 25 tokens a side, of unlike lengths (`LENGTHS`), 25,000 tokens a side in a batch. What the
tokens are does not matter to the speed. Regard has them packed, from its store, compiled, as its recipe says. The
others have rectangles of pairs of like lengths on the device before the clock starts, bfloat16 by autocast, fused Adam,
and lengths rounded up to a multiple of 8; with `--compile` they are tried with torch.compile as well, which takes
minutes. `seconds_to_first` is until Regard's first update, and until the others' first `--steps` batches.

A time is that of `--steps` batches, from when the GPU is done with those before to when it is done with these; the
median of five such times is shown, with the least and the most. Utilisation is the operations of `flops.py` a second
over those of a large square product in bfloat16 on the same GPU. Memory is the most that PyTorch's allocator held.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from flops import step_flops
from record import RESULTS, circumstances, write
from workers import SCRIPTS, BenchmarkError, at_least, exit_code

from regard.data.batches import Batches
from regard.data.store import Store, fingerprint
from regard.models.transformer import TransformerConfig, build
from regard.settings import Filters
from regard.text import PAD
from regard.train import Options, TrainConfig, Trainer

SHAPE = {"layers": 6, "width": 512, "feedforward": 2048, "heads": 8, "dropout": 0.1, "smoothing": 0.1}
LENGTHS = 3.1, 0.55, 0.18
"""Of the logarithm of a source's length the mean and the deviation; and the deviation of that of target over source."""
TIMES = 5


class _Numbers:
    """Stands in for a vocabulary: text is numbers of tokens with spaces between."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def encode_lines(self, lines: list[str], threads: int = 1) -> list[list[int]]:
        return [[int(word) for word in line.split()] for line in lines]


def pairs(count: int, vocabulary: int) -> Iterator[tuple[str, str]]:
    """Random tokens, of which as many are frequent as in text, in lines of such lengths."""
    draw = np.random.default_rng(1)
    source = np.clip(np.exp(draw.normal(*LENGTHS[:2], count)).astype(int), 1, 150)
    target = np.clip((source * np.exp(draw.normal(0, LENGTHS[2], count))).astype(int), 1, 150)
    for sizes in zip(source.tolist(), target.tolist(), strict=True):
        yield tuple(" ".join(map(str, 4 + (draw.zipf(1.2, n) % (vocabulary - 4)))) for n in sizes)  # type: ignore[misc]


def of_marks(marks: list[tuple[float, int]], began: float, losses: list[float]) -> dict[str, Any]:
    """What a run shows, of which it is known when how many tokens were done."""
    speeds = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in zip(marks[-TIMES - 1 : -1], marks[-TIMES:], strict=True)]
    return {"speeds": speeds, "seconds_to_first": marks[0][0] - began, "losses": [losses[0], losses[-1]]}


def regard(store: Store, tokens: int, vocabulary: int, steps: int) -> dict[str, Any]:
    """Its own trainer."""
    torch.manual_seed(1)
    config = TransformerConfig(dropout=SHAPE["dropout"])
    model = build(config, vocabulary, vocabulary).cuda()
    batches = Batches(store, batch_tokens=tokens, layout="packed", seed=1)
    marks: list[tuple[float, int]] = []
    losses: list[float] = []

    def hear(event: dict[str, Any]) -> None:
        if event["event"] == "train":
            torch.cuda.synchronize()
            marks.append((time.perf_counter(), event["tokens"]))
            losses.append(event["loss"])

    updates = steps * (TIMES + 2)
    settings = TrainConfig(
        max_updates=updates, schedule="constant", learning_rate=1e-4, warmup=0, label_smoothing=SHAPE["smoothing"],
        log_every=steps, save_every=updates, device="cuda", average="none",
    )  # fmt: skip
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(model, batches, settings, Path(folder), seed=1, width=512, options=Options(report=hear))
        trainer.run()
    return of_marks(marks, began, losses)


def peer(script: str, store: Store, tokens: int, vocabulary: int, steps: int, compiled: bool) -> dict[str, Any]:
    """A model of `peers/` in a plain loop, on batches that lie on the device."""
    from loop import Batch as Rows

    made = __import__(script).build({**SHAPE, "vocabulary": vocabulary})
    model, loss_of = made
    model.cuda().train()
    if compiled:
        model.compile(dynamic=True)
    adam: dict[str, Any] = {"lr": 1e-4, "betas": (0.9, 0.98), "eps": 1e-9, "weight_decay": 0.0, "fused": True}
    optimizer = torch.optim.AdamW(model.parameters(), **adam)
    batches = Batches(store, batch_tokens=tokens, layout="padded", seed=1)
    held: list[Rows] = []
    for _ in range(steps * (TIMES + 2)):
        batch = next(batches)
        target = np.concatenate([batch.target_input[:, :1], batch.target_output], 1)
        source, target = (
            np.pad(x, ((0, 0), (0, -(x.shape[1] - beside) % 8)), constant_values=PAD)
            for x, beside in ((batch.source, 0), (target, 1))
        )
        ids, outs = torch.from_numpy(source).cuda(), torch.from_numpy(target).cuda()
        held.append(Rows(ids, (ids != PAD).sum(1), outs, batch.target_tokens))
    marks: list[tuple[float, int]] = []
    total = 0
    losses = []
    began = time.perf_counter()
    for index, rows in enumerate(held):
        with torch.autocast("cuda", torch.bfloat16):
            loss = loss_of(rows) / rows.tokens
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        total += rows.tokens
        if (index + 1) % steps == 0:
            losses.append(float(loss.detach()))
            torch.cuda.synchronize()
            marks.append((time.perf_counter(), total))
    return of_marks(marks, began, losses)


def peak() -> float:
    """The most operations a second in a square product in bfloat16."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    seconds = []
    for _ in range(12):
        torch.cuda.synchronize()
        began = time.perf_counter()
        a @ b
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    return 2 * 8192**3 / median(seconds[2:])


def measured(run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a run finds, with the memory that it took."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    found = run()
    speeds = found["speeds"]
    found["target_tokens_per_second"] = {"median": median(speeds), "least": min(speeds), "most": max(speeds)}
    found["peak_bytes"] = torch.cuda.max_memory_allocated() - before
    torch._dynamo.reset()
    return found


def said(name: str, found: dict[str, Any]) -> str:
    """A system's line."""
    speed, used = found["target_tokens_per_second"]["median"], found["utilisation"]
    memory = f"{found['peak_bytes'] / 2**30:.1f} GiB"
    return f"{name}: {speed:,.0f} target tokens/s, {used:.1%}, {memory}, {found['seconds_to_first']:.0f} s to begin"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=at_least(1), default=20, help="batches in a time (default: 20)")
    parser.add_argument("--batch-tokens", type=at_least(64), default=25_000)
    parser.add_argument("--vocabulary", type=at_least(300), default=37_000)
    parser.add_argument("--pairs", type=at_least(100), default=150_000)
    parser.add_argument("--only", nargs="+", default=["regard", "torch_transformer", "marian"])
    parser.add_argument("--compile", action="store_true", help="try torch.compile on the others")
    parser.add_argument("--results", type=Path, default=RESULTS / "gpu_step.json")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        raise BenchmarkError("there is no GPU here; run this where PyTorch sees one.")
    sys.path.insert(0, str(SCRIPTS))
    numbers: Any = _Numbers(arguments.vocabulary)
    tokens, vocabulary, steps = arguments.batch_tokens, arguments.vocabulary, arguments.steps
    result: dict[str, Any] = {**circumstances(), "gpu": torch.cuda.get_device_name(), "shape": SHAPE}
    result |= {"peak_flops_per_second": peak(), "batch_tokens": tokens, "steps": steps, "systems": {}}
    with tempfile.TemporaryDirectory() as folder:
        store = Store.build(
            Path(folder) / "store",
            pairs(arguments.pairs, vocabulary),
            numbers,
            numbers,
            Filters(),
            fingerprint("random"),
        )
        lengths = list(zip((store.source.lengths + 1).tolist(), (store.target.lengths + 1).tolist(), strict=True))
        per_token = step_flops({**SHAPE, "vocabulary": vocabulary}, lengths) / sum(t for _, t in lengths)
        for system in arguments.only:
            ways: tuple[bool, ...] = (False, True) if arguments.compile else (False,)
            ways = (True,) if system == "regard" else ways
            for compiled in ways:
                name = system if compiled else f"{system}, not compiled"

                def run(system: str = system, compiled: bool = compiled) -> dict[str, Any]:
                    if system == "regard":
                        return regard(store, tokens, vocabulary, steps)
                    with torch.device("cuda"):
                        return peer(system, store, tokens, vocabulary, steps, compiled)

                try:
                    found = measured(run)
                except Exception as error:  # a peer that does not compile has a line that says so
                    result["systems"][name] = {"error": f"{type(error).__name__}: {error}"[:400]}
                    print(name, result["systems"][name], flush=True)
                    write(arguments.results, result)
                    continue
                speed = found["target_tokens_per_second"]["median"]
                found["utilisation"] = speed * per_token / result["peak_flops_per_second"]
                result["systems"][name] = found
                print(said(name, found), flush=True)
                write(arguments.results, result)
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
