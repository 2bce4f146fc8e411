"""Arguments and results as JSON, which is how they go from one process to the other: nothing is ever pickled."""

from __future__ import annotations

from collections.abc import Mapping

_MOST = 1_000_000
"""Numbers of a result; what is larger is no answer to any exercise."""


class Unknown:
    """A result that is none of what JSON and tensors can say."""

    def __init__(self, kind: str) -> None:
        self.kind = kind


def encoded(value: object) -> object:
    """A value as JSON has it; tensors and tuples say that they are some."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | float):
        return value if type(value) in (int, float) else {"unknown": type(value).__name__}
    if isinstance(value, list | tuple):
        if len(value) > _MOST:
            return {"unknown": f"{type(value).__name__} of {len(value)} entries"}
        inner = [encoded(each) for each in value]
        return inner if isinstance(value, list) else {"tuple": inner}
    if isinstance(value, Mapping):
        return {"dict": [[encoded(key), encoded(each)] for key, each in value.items()]}
    return _encoded_tensor(value)


def _encoded_tensor(value: object) -> object:
    import sys

    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return {"unknown": f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")}
    if value.is_complex() or value.layout != torch.strided:
        return {"unknown": f"Tensor of {value.dtype}, {value.layout}".replace("torch.", "")}
    if value.numel() > _MOST:
        return {"unknown": f"Tensor of shape {tuple(value.shape)}"}
    plain = value.detach().cpu()
    return {"tensor": plain.flatten().tolist(), "shape": list(plain.shape), "dtype": str(plain.dtype)[6:]}


def decoded(value: object) -> object:
    """The value that was encoded; tensors are tensors again, and what could not be said is an `Unknown`."""
    if isinstance(value, list):
        return [decoded(each) for each in value]
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        import torch

        kind = getattr(torch, str(value["dtype"]))
        return torch.tensor(value["tensor"], dtype=kind).reshape(value["shape"])
    if "tuple" in value:
        return tuple(decoded(each) for each in value["tuple"])
    if "dict" in value:
        return {decoded(key): decoded(each) for key, each in value["dict"]}
    return Unknown(str(value.get("unknown")))


def holds_tensors(value: object) -> bool:
    """Whether a tensor is anywhere in an encoded value."""
    if isinstance(value, list):
        return any(map(holds_tensors, value))
    return isinstance(value, dict) and ("tensor" in value or any(map(holds_tensors, value.values())))
