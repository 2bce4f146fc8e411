"""Adapters: small files that change a bundle's weights; how they are read, checked and used. No PyTorch here.

A matrix W (N, K) becomes W + up down, with up (N, R) and down (R, K) (LoRA, Hu et al. 2021, equation 3); a vector
becomes the sum of itself and another. An adapter is one file of safetensors, never pickle, with a card in JSON in its
header. It belongs to the bundle whose weights' SHA-256 the card names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors import numpy as plain

from regard import bundle as bundles
from regard.bundle import Bundle
from regard.bundle.files import WEIGHTS
from regard.bundle.load import Weights
from regard.errors import BundleError
from regard.machine import atomic_rename

Array = NDArray[np.float32]
DOWN, UP, ADDED = ":down", ":up", ":added"
SUFFIX = ".safetensors"
UNFINISHED = ".unfinished"
"""What the directory of an interrupted learning ends in, after the adapter's own name."""
_CARD = "regard.adapter"
_MOST_BYTES = 64 << 20
_MOST_CARD = 1 << 20
_NEVER = -5000.0  # a bias below it forbids a token; imported models have -10,000


class Card(BaseModel, extra="forbid", frozen=True, allow_inf_nan=False):
    """What an adapter says of itself."""

    format: int = Field(1, ge=1, le=1, strict=True)
    weights: str = Field(pattern="^[0-9a-f]{64}$", description="SHA-256 of the weights that it changes")
    bundle: str = Field("", max_length=1000, description="what the bundle is called")
    created: str = Field("", max_length=100, description="when it was learnt, in UTC")
    source: str = Field("", max_length=10_000, description="of a correction, its sentence")
    target: str = Field("", max_length=10_000, description="of a correction, what it is to be translated to")
    before: str = Field("", max_length=10_000, description="of a correction, the translation until then")
    about: dict[str, int | float | str | None] = Field({}, max_length=100, description="how it was learnt")


@dataclass(frozen=True)
class Adapter:
    """What is added to some of a bundle's weights."""

    card: Card
    parts: Mapping[str, Array]
    """By a parameter's name with `:down` (R, K) and `:up` (N, R), or with `:added` and its own shape; float32."""

    @classmethod
    def read(cls, file: str | Path) -> Self:
        """The adapter in a file. Raises BundleError for one that is damaged, too large, or no adapter."""
        file = Path(file)
        if file.exists() and not file.is_file():
            raise BundleError(f"{file}: is no file; name the one that `regard adapt BUNDLE --pairs FILE` wrote.")
        try:
            if file.stat().st_size > _MOST_BYTES:
                raise BundleError(f"{file}: has more than {_MOST_BYTES >> 20} MB, and no adapter has; name another.")
            with safe_open(file, "np") as stored:
                text = (stored.metadata() or {}).get(_CARD, "")
                if not text or len(text) > _MOST_CARD:
                    raise BundleError(f"{file}: is no adapter; `regard adapt BUNDLE --pairs FILE` makes one.")
                card = Card.model_validate(json.loads(text))
                names = list(stored.keys())
                for name in names:
                    if (kind := stored.get_slice(name).get_dtype()) not in ("F16", "F32"):
                        raise BundleError(f"{file}: {name} is stored as {kind}, which no adapter of ours is.")
                parts = {name: stored.get_tensor(name).astype(np.float32) for name in names}
        except FileNotFoundError:
            raise BundleError(
                f"{file}: there is no such adapter; name another, or make it: regard adapt BUNDLE --pairs FILE."
            ) from None
        except (SafetensorError, OSError, ValueError, RecursionError, ValidationError) as error:
            raise BundleError(f"{file}: cannot be read as an adapter ({error}); get it again.") from None
        for name, part in parts.items():
            if not np.isfinite(part).all():
                raise BundleError(f"{file}: {name} has numbers that are not finite; learn or get the adapter again.")
        return cls(card, parts)

    def write(self, file: str | Path, *, half: bool = False) -> Path:
        """Writes the adapter so that a crash leaves the old file or the new one; `half`: in float16."""
        file = Path(file)
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f".{file.name}.part")
        try:
            part.write_bytes(self.to_bytes(half=half))
            atomic_rename(part, file)
        except (SafetensorError, OSError) as error:
            raise BundleError(f"{file}: the adapter could not be saved ({error}); choose another place.") from error
        finally:
            part.unlink(missing_ok=True)
        return file

    def to_bytes(self, *, half: bool = False) -> bytes:
        """What the file holds."""
        kind = np.float16 if half else np.float32
        tensors = {name: np.ascontiguousarray(part, dtype=kind) for name, part in sorted(self.parts.items())}
        return plain.save(tensors, {_CARD: self.card.model_dump_json()})

    @property
    def names(self) -> list[str]:
        """The parameters that it changes."""
        return sorted({name.rpartition(":")[0] for name in self.parts})

    def check(self, shapes: Mapping[str, tuple[int, ...]], file: str | Path) -> None:
        """Raises BundleError, naming the file, unless all of its parts fit parameters of these names and shapes."""
        for name, part in self.parts.items():
            of, _, end = name.rpartition(":")
            shape, rank = shapes.get(of), 0
            if f":{end}" in (DOWN, UP) and shape is not None and len(shape) == 2 and part.ndim == 2:
                rank = part.shape[f":{end}" == UP]
                other = self.parts.get(of + (UP if f":{end}" == DOWN else DOWN))
                fits = other is not None and other.ndim == 2 and rank == other.shape[f":{end}" == DOWN]
                fits = fits and part.shape == ((rank, shape[1]) if f":{end}" == DOWN else (shape[0], rank))
            else:
                fits = f":{end}" == ADDED and part.shape == shape
            if not fits:
                raise BundleError(
                    f"{file}: its part {name} {part.shape} fits no parameter of the bundle; get the adapter again."
                )

    def changed(self, name: str, weight: Array) -> Array:
        """A parameter as the adapter makes it; float32, added up in float64. One that it leaves alone is itself."""
        added = self.parts.get(name + ADDED)
        up, down = self.parts.get(name + UP), self.parts.get(name + DOWN)
        if added is None and (up is None or down is None):
            return weight
        total = weight.astype(np.float64)
        if up is not None and down is not None:
            total += up.astype(np.float64) @ down.astype(np.float64)
        if added is not None:
            total += added
        with np.errstate(over="ignore"):
            made: Array = total.astype(np.float32)
        if not np.isfinite(made).all():
            raise BundleError(f"{name} is not finite any more with this adapter; learn or get the adapter again.")
        return made


def joined(adapters: Sequence[Adapter], card: Card) -> Adapter:
    """One adapter that does what these do together; the order of its sums is theirs."""
    parts: dict[str, Array] = {}
    for adapter in adapters:
        for name, part in adapter.parts.items():
            if name not in parts:
                parts[name] = part
            elif name.endswith(ADDED):
                parts[name] = parts[name] + part
            else:
                parts[name] = np.concatenate((parts[name], part), axis=int(name.endswith(UP)))
    return Adapter(card, parts)


@dataclass(frozen=True)
class AdaptedBundle(Bundle):
    """A bundle that is used with an adapter: its weights are changed as they are read, and the file stays as it is."""

    adapter: Adapter | None = None

    def changed_weights(self) -> Weights:
        """The weights by name as the adapter makes them, each read when it is asked for."""
        return self._weights()

    def _weights(self) -> Weights:
        assert self.adapter is not None
        return _Changed(self.path / WEIGHTS, self.adapter)


class _Changed(Weights):
    """A bundle's weights with an adapter's parts added."""

    def __init__(self, file: Path, adapter: Adapter) -> None:
        super().__init__(file)
        self._adapter = adapter

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of each parameter, as the file's header says."""
        return {name: tuple(self._stored[name]["shape"]) for name in self}

    def __getitem__(self, name: str) -> Array:
        return self._adapter.changed(name, super().__getitem__(name))

    def whole(self, name: str) -> tuple[NDArray[np.int8], Array] | None:
        """What is changed is not in whole numbers any more: the decoder rounds it again, in float32 it is exact."""
        return None if name in self._adapter.names else super().whole(name)


def adapted(bundle: Bundle, adapter: Adapter | str | Path) -> AdaptedBundle:
    """The bundle as an adapter changes it. Raises BundleError for a damaged adapter, and one of another bundle."""
    where = "the adapter" if isinstance(adapter, Adapter) else adapter
    found = adapter if isinstance(adapter, Adapter) else Adapter.read(adapter)
    if found.card.weights != digest_of(bundle):
        raise BundleError(
            f"{where}: belongs to another bundle ({found.card.bundle or 'without a name'}, weights "
            f"{found.card.weights[:12]}), not to {bundle.path} ({digest_of(bundle)[:12]}); use it with its own."
        )
    if isinstance(bundle, AdaptedBundle) and bundle.adapter is not None:
        found = joined([bundle.adapter, found], found.card)
    found.check(_Changed(bundle.path / WEIGHTS, found).shapes, where)
    return AdaptedBundle(**{each.name: getattr(bundle, each.name) for each in fields(Bundle)}, adapter=found)


def digest_of(bundle: Bundle) -> str:
    """What tells a bundle's weights from all others."""
    return bundle.files[WEIGHTS].sha256


def read_bundle(bundle: str | Path | Bundle) -> Bundle:
    """A bundle, read unless it is one."""
    return bundle if isinstance(bundle, Bundle) else bundles.load(bundle)


def never_written(bundle: Bundle) -> frozenset[int]:
    """The tokens that a model may not write, which imported ones say by their biases: nothing teaches them."""
    weights = Weights(bundle.path / WEIGHTS)
    bias = weights["output.bias"] if "output.bias" in weights else np.zeros(0)
    return frozenset(np.flatnonzero(bias < _NEVER).tolist())
