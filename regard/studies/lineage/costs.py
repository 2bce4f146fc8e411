"""What a layer costs, measured: the rows of the paper's Table 1, by the length of a sequence and by its width.

Sizes: n positions, d features, k positions that a convolution sees, r neighbours to either side.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.nn import whole
from regard.nn.attention import SCORES, Heads, MultiHead
from regard.nn.convolution import Convolution
from regard.nn.recurrent import Elman

KERNEL, RADIUS = 3, 8
LENGTHS, WIDTHS = (32, 64, 128, 256, 512, 1024, 2048), (64, 128, 256, 512)
AT_LENGTH, AT_WIDTH = 512, 256
"""Where the other size is held still."""
_HEAD = 64
_SECONDS, _TIMES = 0.05, 3

TABLE: tuple[dict[str, str], ...] = (
    {"layer": "recurrence", "paper": "O(n · d²)", "steps": "O(n)", "path": "O(n)", "lecture": "O(n d²), O(n), O(n)"},
    {
        "layer": "convolution",
        "paper": "O(k · n · d²)",
        "steps": "O(1)",
        "path": "O(log_k(n))",
        "lecture": "O(k n d²), O(1), O(log_k(n))",
    },
    {
        "layer": "self-attention",
        "paper": "O(n² · d)",
        "steps": "O(1)",
        "path": "O(1)",
        "lecture": "O(n² d), O(1), O(1)",
    },
    {"layer": "restricted self-attention", "paper": "O(r · n · d)", "steps": "O(1)", "path": "O(n/r)", "lecture": ""},
    {"layer": "self-attention, projected", "paper": "", "steps": "O(1)", "path": "O(1)", "lecture": ""},
)
"""Cost of a layer, sequential steps and longest path: as the paper's Table 1 has them, and the lectures' own table
("Transformer", "RNN", "CNN"). Neither counts the projections of attention, 4 n d²; the last row does."""


def restricted(queries: Tensor, keys: Tensor, values: Tensor, radius: int) -> Tensor:
    """Attention of (n, d) to `radius` positions on either side, in r n d products; a mask would take n² d of them."""
    width = 2 * radius + 1
    near = F.pad(keys, (0, 0, radius, radius)).unfold(0, width, 1)  # (n, d, 2r + 1)
    positions = torch.arange(len(queries))[:, None] + torch.arange(-radius, radius + 1)
    outside = (positions < 0) | (positions >= len(keys))
    scores = (queries[:, None] @ near)[:, 0] / math.sqrt(queries.shape[1])
    weights = scores.masked_fill(outside, -torch.inf).softmax(-1)
    return (F.pad(values, (0, 0, radius, radius)).unfold(0, width, 1) @ weights[..., None])[..., 0]


def _recurrence(d: int) -> Callable[[Tensor], object]:
    layer = Elman(d, d)
    return lambda x: layer(x[:, None])


def _convolution(d: int) -> Callable[[Tensor], object]:
    layer = Convolution(d, d, KERNEL, 0.0, 1.0, causal=False)
    return lambda x: layer(x[None], whole(x[None, :, 0]))


def _attention(d: int) -> Callable[[Tensor], object]:
    return lambda x: F.scaled_dot_product_attention(*(x[None, None],) * 3)


def _restricted(d: int) -> Callable[[Tensor], object]:
    return lambda x: restricted(x, x, x, RADIUS)


def _projected(d: int) -> Callable[[Tensor], object]:
    head = min(_HEAD, d)
    layer = MultiHead(Heads(d, d // head, head, head), SCORES["scaled_dot"](head)).eval()

    def run(x: Tensor) -> Tensor:
        layout = whole(x[None, :, 0])
        found: Tensor = layer(x[None], layout, layer.prepare(x[None], layout), None)
        return found

    return run


LAYERS: dict[str, Callable[[int], Callable[[Tensor], object]]] = {
    "recurrence": _recurrence,
    "convolution": _convolution,
    "self-attention": _attention,
    "restricted self-attention": _restricted,
    "self-attention, projected": _projected,
}
"""A layer of width d, which takes (n, d): one sequence, forward, float32."""


@torch.inference_mode()
def measure_layers(
    lengths: Sequence[int] = LENGTHS, widths: Sequence[int] = WIDTHS, clock: Callable[[], float] = time.perf_counter
) -> dict[str, Any]:
    """Seconds of each layer by n at one width and by d at one length; the least of several passes.

    The growth is the slope between the last size and the third before the end, both logarithmic: 1 for what doubles
    with the size, 2 for what becomes four times as much.
    """
    generator = torch.Generator().manual_seed(0)

    def seconds(make: Callable[[int], Callable[[Tensor], object]], n: int, d: int) -> float:
        layer, x = make(d), torch.randn(n, d, generator=generator)
        layer(x)
        least, spent, times = math.inf, 0.0, 0
        while times < _TIMES or (spent < _SECONDS and times < 100):
            began = clock()
            layer(x)
            least = min(least, clock() - began)
            spent, times = spent + least, times + 1
        return least

    def growth(sizes: Sequence[int], found: Sequence[float]) -> float:
        return math.log(found[-1] / found[-3]) / math.log(sizes[-1] / sizes[-3])

    by_length = {name: [seconds(make, n, AT_WIDTH) for n in lengths] for name, make in LAYERS.items()}
    by_width = {name: [seconds(make, AT_LENGTH, d) for d in widths] for name, make in LAYERS.items()}
    return {
        "kernel": KERNEL,
        "radius": RADIUS,
        "threads": torch.get_num_threads(),
        "by_length": {"d": AT_WIDTH, "n": list(lengths), "seconds": by_length},
        "by_width": {"n": AT_LENGTH, "d": list(widths), "seconds": by_width},
        "growth": {
            name: {"n": growth(lengths, by_length[name]), "d": growth(widths, by_width[name])} for name in LAYERS
        },
    }
