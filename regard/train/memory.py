"""A batch that does not fit in memory is cut in two and goes on.

Loss and gradients are sums over tokens, so those of the halves add up to the whole's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.batches import Batch
from regard.errors import ModelError

_SAID = ("can't allocate memory", "not enough memory", "out of memory", "cannot allocate memory", "alloc_failed")
"""What PyTorch's allocators and the libraries below them say in a plain RuntimeError."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory, of a device or of the machine, did not suffice."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(said in str(error).lower() for said in _SAID)


def halves(batch: Batch) -> tuple[Batch, Batch]:
    """The first and the second half of a batch's rows, in its layout; each no wider than its own longest row.

    Dropout aside, their losses and gradients add up to the batch's own, to rounding. Raises ModelError for a single
    row, which cannot be cut.
    """
    rows = len(batch)
    if rows < 2:
        raise ModelError(
            f"one pair of {batch.source_tokens} source and {batch.target_tokens} target tokens does not fit in memory; "
            "lower data.filters.max_length or train.chunk, choose a smaller model, or free some memory."
        )
    middle = (rows + 1) // 2
    return part(batch, 0, middle), part(batch, middle, rows)


def part(batch: Batch, start: int, end: int) -> Batch:
    """The rows from `start` to before `end`, at least one; no wider than their own longest."""

    def cut(x: NDArray[Any], lengths: NDArray[Any]) -> NDArray[Any]:
        if batch.layout == "padded":
            return np.ascontiguousarray(x[start:end, : lengths[start:end].max()])
        return x[lengths[:start].sum() : lengths[:end].sum()]

    return Batch(
        lines=batch.lines[start:end],
        source=cut(batch.source, batch.source_lengths),
        source_lengths=batch.source_lengths[start:end],
        target_input=cut(batch.target_input, batch.target_lengths),
        target_output=cut(batch.target_output, batch.target_lengths),
        target_lengths=batch.target_lengths[start:end],
        layout=batch.layout,
    )
