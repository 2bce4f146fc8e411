"""What searches do with log-probabilities, which lie in NumPy's arrays or in PyTorch's tensors; all else is NumPy's.

What is handed to a step function and to a state's `select` is of the kind that the problem began with. What reads whole
rows is compiled where that can be (rows.cpp). Sizes: N rows, V vocabulary.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.kernels.build import SOURCES, built, checked

Array = Any
"""A NumPy array or a PyTorch tensor."""
Numbers = NDArray[np.float64]
Indices = NDArray[np.int64]
_TOKEN_BY_TOKEN = 512  # so many of a row are found one by one; more are quicker found by sorting


def numpy(values: Array) -> Array:
    """The same numbers in NumPy; bfloat16, which it has not, in float32."""
    if isinstance(values, np.ndarray):
        return values
    return (values.float() if str(values.dtype) == "torch.bfloat16" else values).detach().cpu().numpy()


def like(home: Array, values: Array) -> Array:
    """A NumPy array as the kind that `home` is, where that lies."""
    if isinstance(home, np.ndarray):
        return values
    import torch

    return torch.from_numpy(values).to(home.device)


def likeliest(values: Array, keep: int) -> tuple[Numbers, Indices]:
    """The `keep` highest log-probabilities of each row, highest first, and whose they are (N, keep)."""
    keep = min(keep, values.shape[-1])
    if not isinstance(values, np.ndarray):  # on a GPU they stay there
        found, index = values.topk(keep, dim=-1)
        return found.double().cpu().numpy(), index.cpu().numpy()
    found, index = np.empty((len(values), keep)), np.empty((len(values), keep), np.int64)
    if keep > _TOKEN_BY_TOKEN or not _compiled("likeliest", values, keep, found, index):
        # What is no number comes first, so that it is noticed.
        index = np.argsort(np.where(np.isnan(values), -np.inf, -values), axis=-1, kind="stable")[:, :keep]
        found = np.take_along_axis(values, index, -1).astype(np.float64)
    return found, index


def log_totals(values: Array, temperature: float = 1.0) -> Numbers:
    """The logarithm of the sum of e^(value / temperature) over each row (N,)."""
    values = numpy(values)
    found = np.empty(len(values))
    if not _compiled("log_totals", values, ctypes.c_double(1.0 / temperature), found):
        wide = values.astype(np.float64) / temperature
        peak = np.maximum(wide.max(-1), -1e300)
        with np.errstate(divide="ignore"):
            found = peak + np.log(np.exp(wide - peak[:, None]).sum(-1))
    return found


def of_tokens(values: Array, tokens: Indices) -> Array:
    """Each row's log-probability of its token (N,), in NumPy."""
    return numpy(values[like(values, np.arange(len(tokens))), like(values, tokens)]).astype(np.float64)


def masked(values: Array, may: NDArray[np.bool_]) -> Array:
    """Log-probabilities in NumPy, of which those of tokens that may not be (N, V) are -inf."""
    return np.where(may, numpy(values), -np.inf)


def log_mean(each: Sequence[Array]) -> Array:
    """The logarithm of the mean of probabilities, their logarithms given (N, V), in NumPy."""
    rows = [*map(numpy, each)]
    peak = np.maximum(np.maximum.reduce(rows), -1e30)
    with np.errstate(divide="ignore"):  # what none of them gives a chance stays without
        return np.log(sum(np.exp(values - peak) for values in rows) / len(rows)) + peak


def log_softmax(values: Array) -> Array:
    """Log-probabilities in NumPy that sum to one in each row, from any numbers (N, V)."""
    return numpy(values) - log_totals(values)[:, None].astype(numpy(values).dtype)


def _compiled(name: str, values: Array, setting: object, *results: Array) -> bool:
    """Whether the compiled part did this of rows (N, V) in their floating point, to these results."""
    library, size = built(SOURCES / "rows.cpp")[0], values.itemsize
    if library is None or values.dtype not in (np.float32, np.float64) or values.strides[-1] != size:
        return False
    pointers = [ctypes.c_void_p(each.ctypes.data) for each in (values, *results)]
    sizes = [ctypes.c_int64(n) for n in (len(values), values.strides[0] // size, values.shape[1])]
    function = getattr(library, f"rows_{name}_{values.dtype.name}")
    checked(library, function(pointers[0], *sizes, setting, *pointers[1:]))
    return True
