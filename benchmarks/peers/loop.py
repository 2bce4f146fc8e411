"""The plain training loop that the peers share; imports nothing of Regard, for it runs in their environments.

A script builds a model and says how a batch becomes a loss; `measure` takes the job from standard input as JSON, trains
on its batches and writes what it found as the last line of standard output. A job holds:

    batches         .npz with, for batch i, source_i (B, S), target_i (B, T + 1; begins with BEGIN), padded with PAD = 0
    shape           layers, width, feedforward, heads, dropout, vocabulary, smoothing
    bfloat16        whether products run in bfloat16 by autocast, beside float32 weights
    warmup, steps   how many batches are not timed, and how many then are
    rate            the learning rate, constant
    memory          measure the memory of each step instead of its time
    compiled        whether torch.compile is used, if it is there
    limit           seconds of timed steps after which no further one is made, if it is there
"""

from __future__ import annotations

import json
import math
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import memory
import numpy as np
import torch
from torch import Tensor, nn

__all__ = ["BEGIN", "END", "PAD", "UNKNOWN", "Batch", "finish", "measure", "read_job", "sinusoids"]

PAD, UNKNOWN, BEGIN, END = 0, 1, 2, 3


@dataclass(frozen=True)
class Batch:
    """Padded pairs; `lengths` count END."""

    source: Tensor  # (B, S) x1 … xn END
    source_lengths: Tensor  # (B,)
    target: Tensor  # (B, T + 1) BEGIN y1 … yn END
    tokens: int  # target tokens to predict, without padding, with END

    @property
    def target_input(self) -> Tensor:
        """(B, T) BEGIN y1 … yn; where a shorter row ends, its END stands before the padding, and is not scored."""
        return self.target[:, :-1]

    @property
    def target_output(self) -> Tensor:
        """(B, T) y1 … yn END."""
        return self.target[:, 1:]


Loss = Callable[[Batch], Tensor]
"""A batch to the sum of its target tokens' losses."""


def read_job() -> dict[str, Any]:
    """The job, from standard input."""
    job: dict[str, Any] = json.load(sys.stdin)
    torch.manual_seed(job["seed"])
    return job


def measure(build: Callable[[dict[str, Any]], tuple[nn.Module, Loss]], *packages: str) -> None:
    """Train the model that `build` makes of a job's shape, and tell; `packages` are those whose versions matter."""
    job = read_job()
    held = np.load(job["batches"])
    batches = [_batch(held[f"source_{i}"], held[f"target_{i}"]) for i in range(job["warmup"] + job["steps"])]
    model, loss_of = build(job["shape"])
    model.train()
    if job.get("compiled"):
        model.compile(dynamic=True)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=job["rate"], betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0, fused=True
    )
    seconds, losses, gains = [], [], []
    for batch in batches:
        before = memory.held() if job["memory"] and memory.forget() else 0
        began = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=job["bfloat16"]):
            loss = loss_of(batch) / batch.tokens
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(float(loss.detach()))
        seconds.append(time.perf_counter() - began)
        if job["memory"]:
            gains.append(memory.most() - before)
        if sum(seconds[job["warmup"] :]) > job.get("limit", math.inf):
            break
    tokens = [batch.tokens for batch in batches[: len(seconds)]]
    finish(job, model, seconds, losses, tokens, gains, *packages)


def finish(
    job: dict[str, Any],
    model: nn.Module,
    seconds: list[float],
    losses: list[float],
    tokens: list[int],
    gains: list[int],
    *packages: str,
) -> None:
    """Write what was found: one entry for each batch, the warm-up's among them."""
    found = {
        "seconds": sum(seconds[job["warmup"] :]),
        "tokens": sum(tokens[job["warmup"] :]),
        "losses": losses,
        "parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "step_bytes": gains[job["warmup"] :],
        "threads": torch.get_num_threads(),
        "versions": {name: metadata.version(name) for name in ("torch", *packages)},
    }
    print("\n" + json.dumps(found), flush=True)


def _batch(source: Any, target: Any) -> Batch:
    return Batch(
        torch.from_numpy(source),
        torch.from_numpy((source != PAD).sum(1)),
        torch.from_numpy(target),
        int((target[:, 1:] != PAD).sum()),
    )


def sinusoids(length: int, width: int) -> Tensor:
    """(length, width) the positions of Vaswani et al. 2017, section 3.5."""
    angles = torch.arange(length)[:, None] * torch.exp(torch.arange(0, width, 2) * (-math.log(10_000) / width))
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
