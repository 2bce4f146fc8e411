"""Whether two results are the same, what differs, and how arguments and results are shown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

_SHOWN = 40
"""Numbers of a tensor that are shown; of a larger one the shape is."""
_RELATIVE, _ABSOLUTE = 1e-3, 2e-5


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _plain(value: object) -> object:
    """A tensor without axes as its number."""
    return value.item() if isinstance(value, Tensor) and value.dim() == 0 else value


def same(one: object, other: object) -> bool:
    """Whether results are equal up to rounding; a number and a tensor without axes may stand for each other."""
    one, other = _plain(one), _plain(other)
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        if one.shape != other.shape or one.is_floating_point() != other.is_floating_point():
            return False
        if (one.dtype == torch.bool) != (other.dtype == torch.bool):
            return False
        if one.dtype != other.dtype and {one.dtype, other.dtype} & {torch.float16, torch.bfloat16}:
            return False
        return torch.allclose(one.double(), other.double(), rtol=_RELATIVE, atol=_ABSOLUTE, equal_nan=True)
    if _number(one) and _number(other):
        a, b = float(one), float(other)  # type: ignore[arg-type]  # they are numbers
        return (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=_RELATIVE, abs_tol=1e-9)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


def has_nan(value: object) -> bool:
    """Whether any number of a result is NaN."""
    if isinstance(value, Tensor):
        return bool(value.isnan().any())
    if isinstance(value, list | tuple):
        return any(map(has_nan, value))
    return isinstance(value, float) and math.isnan(value)


def kind(value: object) -> str:
    """What a result is, as a reader of Python says it: Tensor of shape (2, 3), list, float, None."""
    if isinstance(value, Tensor):
        return f"{str(value.dtype)[6:]} tensor of shape {tuple(value.shape)}"
    return str(getattr(value, "kind", None if value is None else type(value).__name__))


def shown(value: object, most: int = _SHOWN) -> str:
    """A value in little room: numbers with four digits, a tensor of more than `most` of them by its shape."""
    if isinstance(value, Tensor):
        return shown(value.tolist()) if value.numel() <= most else kind(value)
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return repr(value)
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Sequence):
        inner = ", ".join(map(shown, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' * (len(value) == 1)})"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{shown(key)}: {shown(each)}" for key, each in value.items()) + "}"
    return str(getattr(value, "kind", value))


def where(one: object, other: object) -> str:
    """The first place where two tensors of one shape differ, as [0, 2]; an empty text where there is none."""
    if not (isinstance(one, Tensor) and isinstance(other, Tensor) and one.shape == other.shape and one.dim()):
        return ""
    a, b = one.double(), other.double()
    off = ~torch.isclose(a, b, rtol=_RELATIVE, atol=_ABSOLUTE, equal_nan=True)
    return str(off.nonzero()[0].tolist()) if bool(off.any()) else ""


def at(value: object, place: str) -> str:
    """The entry of a tensor at such a place."""
    assert isinstance(value, Tensor)
    return shown(value[tuple(int(i) for i in place.strip("[]").split(","))].item())
