"""The weights of a bundle as arrays, each read when it is asked for; nothing in the file is believed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel
from safetensors import SafetensorError, safe_open

from regard.errors import BundleError

from .format import SCALE

_HEADER = 16 << 20
"""Bytes of the longest header of weights that is read."""
_REPEATS = ("layers", "hops")
"""Ends of the keys that say how many parts a model has, each with weights of its own."""
_KINDS = {"F64", "F32", "F16", "BF16", "I8"}


class Weights(Mapping[str, NDArray[np.float32]]):
    """Parameters by name, in float32 whatever they are stored in; they are never in memory all at once.

    What cannot be read, or is not finite, raises BundleError when it is asked for.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        try:
            with file.open("rb") as stored:
                size = int.from_bytes(stored.read(8), "little")
                if size > min(_HEADER, os.fstat(stored.fileno()).st_size):
                    raise BundleError(f"{file}: has no header of safetensors; get the bundle again.")
                header = stored.read(size)
            with safe_open(file, "np") as opened:  # which checks that the header is in order
                names = list(opened.keys())
        except (SafetensorError, OSError) as error:
            raise self._unread(error) from None
        self._begin, self._stored = 8 + size, {name: json.loads(header)[name] for name in names}
        self._names = frozenset(name for name in names if not name.endswith(SCALE))

    def check(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Raises BundleError unless names, shapes and kinds of number are those of a model with these parameters."""
        if missing := sorted(shapes.keys() - self._names) or sorted(self._names - shapes.keys()):
            raise BundleError(f"{self.file}: does not fit the recipe's model: {missing[0]} stands in only one of them.")
        for name, known in sorted(self._stored.items()):
            shape, kind = tuple(known["shape"]), known["dtype"]
            scales = name.endswith(SCALE) and name not in shapes
            needed = shapes.get(name.removesuffix(SCALE), ())[:1] if scales else shapes[name]
            if shape != needed:
                raise BundleError(f"{self.file}: {name} is {shape} and the recipe's model needs {needed}.")
            if kind not in _KINDS or (kind == "I8") != (name + SCALE in self._stored):
                raise BundleError(
                    f"{self.file}: {name} is stored as {kind}, which no bundle of ours does; get it again."
                )

    def check_repeats(self, config: BaseModel) -> None:
        """Raises BundleError for a model of more layers than there are tensors, before anything is made of them."""
        for key, value in dict(config).items():
            if key.endswith(_REPEATS) and isinstance(value, int) and value > len(self._stored):
                raise BundleError(
                    f"{self.file}: holds {len(self._stored):,} tensors, and [model] {key} = {value:,} of its recipe "
                    "needs one for each or more; get the bundle again."
                )

    def __getitem__(self, name: str) -> NDArray[np.float32]:
        if name not in self._names:
            raise KeyError(name)
        with np.errstate(over="ignore", invalid="ignore"):
            found = self._read(name)
            if name + SCALE in self._stored:
                scale = self._read(name + SCALE)
                found *= scale.reshape(-1, *[1] * (found.ndim - 1))
        if found.size and not np.isfinite([found.min(), found.max()]).all():
            raise BundleError(
                f"{self.file}: {name} has numbers that are not finite, as if training had diverged; train again."
            )
        return found

    def _read(self, name: str) -> NDArray[np.float32]:
        known = self._stored[name]
        try:
            if known["dtype"] == "BF16":  # the upper half of a float32; NumPy has no such numbers
                begin, end = known["data_offsets"]
                halves = np.fromfile(self.file, "<u2", (end - begin) // 2, offset=self._begin + begin)
                return (halves.astype(np.uint32) << 16).view(np.float32).reshape(known["shape"])
            with safe_open(self.file, "np") as stored:
                tensor: NDArray[np.generic] = stored.get_tensor(name)
        except (SafetensorError, OSError, ValueError) as error:
            raise self._unread(error) from None
        return tensor.astype(np.float32, copy=False)

    def _unread(self, error: Exception) -> BundleError:
        return BundleError(f"{self.file}: cannot be read ({error}); get the bundle again.")

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
