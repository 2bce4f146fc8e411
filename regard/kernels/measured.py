"""What training's products take in float32 and bfloat16, measured once: instructions alone do not make it quick."""

from __future__ import annotations

import hashlib
import json
import math
import time
from contextlib import suppress
from functools import cache

import torch

from regard.disk import write_atomically
from regard.nn.layers import Linear

from .build import folders, own, processor, sources_digest


@cache
def seconds(width: int) -> dict[str, float]:
    """Of each precision, seconds of a map (4 width, width), forwards and backwards; none if bfloat16 is emulated.

    Kept beside the built libraries, for this processor, number of threads, PyTorch, kernels and width.
    """
    if not (torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()):
        return {}
    what = (processor(), torch.__version__, sources_digest(), torch.get_num_threads(), width)
    name = f"measured-{hashlib.sha256(repr(what).encode()).hexdigest()[:16]}.json"
    for folder in folders():
        with suppress(OSError, ValueError, AttributeError):  # it cannot be kept here, or is damaged
            own(folder)
            if not (folder / name).exists():
                write_atomically(folder / name, json.dumps(_measured(width)))
            return {kind: float(each) for kind, each in json.loads((folder / name).read_text("utf-8")).items()}
    return _measured(width)


def said(width: int) -> str:
    """The same in words."""
    took = " and ".join(f"{1e3 * each:.2f} ms in {kind}" for kind, each in seconds(width).items())
    return f"a map of width {width} takes {took}" if took else "this processor has no instructions for bfloat16"


def _measured(width: int) -> dict[str, float]:
    best: dict[str, float] = {}
    with torch.random.fork_rng(devices=()), torch.enable_grad():
        for kind in ("float32", "bfloat16") * 4:
            layer = Linear(width, 4 * width).to(getattr(torch, kind))
            x = torch.ones(max(64, 2**18 // width), width, dtype=layer.weight.dtype, requires_grad=True)
            began = time.perf_counter()
            layer(x).sum().backward()
            best[kind] = min(best.get(kind, math.inf), time.perf_counter() - began)
    return best
