"""The one table by which compiled kernels stand in for parts of `nn`; while it is empty, PyTorch does all the work.

`regard.kernels.table` fills it. Beside each place that asks it stands the readable reference, and tests hold the
two equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class StandIn:
    """A compiled kernel, and what it does not take, in sentences."""

    run: Callable[..., Any]
    unavailable: Callable[[str, torch.dtype], str | None]
    """A type of device and of numbers -> why the kernel cannot run on this machine with them, or None."""
    refuses: Callable[..., str | None]
    """The tensors that `run` would be given -> why it cannot take these, or None."""


STAND_INS: dict[str, StandIn] = {}
"""Name of a piece of work -> who does it."""
_off = False


@contextmanager
def only_references() -> Iterator[None]:
    """Inside, PyTorch's own operations are used although compiled ones are there: to compare the two."""
    global _off
    before, _off = _off, True
    try:
        yield
    finally:
        _off = before


def references_only() -> bool:
    """Whether compiled kernels are switched off."""
    return _off


def stand_in(name: str, *tensors: Tensor | None) -> Callable[..., Any] | None:
    """What does this piece of work for these tensors; None: the reference must."""
    entry = STAND_INS.get(name)
    return None if entry is None or _off or entry.refuses(*tensors) is not None else entry.run


def refusal(name: str, *tensors: Tensor | None) -> str | None:
    """Why `stand_in` gives None, in a sentence."""
    if _off:
        return "compiled kernels are switched off"
    entry = STAND_INS.get(name)
    return "no compiled kernel is there" if entry is None else entry.refuses(*tensors)


def unavailable(name: str, device: str, dtype: torch.dtype) -> str | None:
    """Why no tensors on this type of device with this type of numbers can be taken, in a sentence; None: some can."""
    if _off:
        return "compiled kernels are switched off"
    entry = STAND_INS.get(name)
    return "no compiled kernel is there" if entry is None else entry.unavailable(device, dtype)


def refusals(device: str, dtype: torch.dtype) -> dict[str, str]:
    """Of each compiled kernel that cannot run on this type of device with this type of numbers, the reason."""
    found = {name: unavailable(name, device, dtype) for name in STAND_INS}
    return {name: reason for name, reason in found.items() if reason is not None}
