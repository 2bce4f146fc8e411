"""The most floating-point operations a second of this machine: the best of large square products, by type."""

from __future__ import annotations

import json
import time

import torch
from loop import read_job


def best(dtype: torch.dtype, size: int, turns: int) -> float:
    """Operations a second, 2 for each multiply-add."""
    a, b = torch.randn(size, size).to(dtype), torch.randn(size, size).to(dtype)
    out = a @ b
    seconds = []
    for _ in range(turns):
        began = time.perf_counter()
        torch.mm(a, b, out=out)
        seconds.append(time.perf_counter() - began)
    return 2 * size**3 / min(seconds)


if __name__ == "__main__":
    job = read_job()
    found = {
        name: max(best(dtype, size, job["turns"]) for size in job["sizes"])
        for name, dtype in (("bfloat16", torch.bfloat16), ("float32", torch.float32))
    }
    print(json.dumps({**found, "threads": torch.get_num_threads()}))
