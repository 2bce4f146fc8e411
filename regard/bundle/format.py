"""What the files of a bundle hold, and its weights as arrays, each read when it is asked for.

    weights.safetensors    parameters by name (never pickle)
    subwords.model         the SentencePiece model; or source.model and target.model
    recipe.toml            everything the run depended on, decoding defaults included
    golden.json            sentences with the ids and the output that they must give
    calibration.json       how its probabilities are to be read, if that was measured
    shortlist.safetensors  the target tokens that each source token goes with, if they were learnt
    bundle.json            format, provenance, scores; size and SHA-256 of every file, and of itself

Sizes and digests tell damage; golden ids tell a tokenizer that reads the same file differently; golden outputs,
translated again by `regard inspect --verify`, tell everything else. None of them tells malice: whoever changes a file
can write its digest anew. Compare `Bundle.digest` with one that its maker gives elsewhere.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field
from safetensors import SafetensorError, safe_open

from regard.errors import BundleError

FORMAT = 1

WEIGHTS, RECIPE, GOLDEN, CARD = "weights.safetensors", "recipe.toml", "golden.json", "bundle.json"
CALIBRATION, SHORTLIST = "calibration.json", "shortlist.safetensors"
JOINT, SEPARATE = "subwords.model", ("source.model", "target.model")

_METADATA, _TOKENIZER = 8 << 20, 64 << 20
LARGEST = {
    **dict.fromkeys((RECIPE, GOLDEN, CARD, CALIBRATION), _METADATA),
    **dict.fromkeys((JOINT, *SEPARATE), _TOKENIZER),
}
"""The most bytes that a file may have which is read as a whole."""

SCALE = ":scale"
"""Behind a parameter's name: what its rows are multiplied by, where they are stored as whole numbers."""

_HEADER = 16 << 20
"""Bytes of the longest header of weights that is read."""
_REPEATS = ("layers", "hops")
"""Ends of the keys that say how many parts a model has, each with weights of its own."""
_KINDS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I8": "i1"}
"""Kinds of numbers that weights are stored in. Of BF16, which NumPy has not, the bits: the upper half of a float32."""

_STRICT = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class File(BaseModel):
    """What is known of a file."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    size: int = Field(ge=0, description="in bytes")
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class Golden(BaseModel):
    """One sentence that a bundle must always read and translate the same way."""

    model_config = _STRICT

    source: str
    source_ids: tuple[int, ...]
    """Ids of the source's tokens, without begin and end."""
    target_ids: tuple[int, ...]
    output: str


class Provenance(BaseModel):
    """Where a model came from; plain values, kept as they are."""

    model_config = _STRICT

    created: str = Field("", description="when training ended, in UTC")
    versions: dict[str, str] = Field(default_factory=dict, description="of regard, python, torch, sentencepiece")
    machine: str = Field("", description="what it was trained on")
    data: dict[str, Any] = Field(default_factory=dict, description="SHA-256 of each file, pairs read, kept and dropped")
    training: dict[str, Any] = Field(default_factory=dict, description="updates, epochs, seconds, tokens, precision")
    scores: list[dict[str, Any]] = Field(default_factory=list, description="scores with their signatures")
    notes: dict[str, Any] = Field(default_factory=dict, description="anything else worth knowing")


def versions(*others: str) -> dict[str, str]:
    """Versions of what decides a run's result, and of other packages, as far as they are installed."""
    import platform
    from importlib import metadata

    found = {"python": platform.python_version()}
    for package in ("regard", "torch", "sentencepiece", "numpy", "sacrebleu", "safetensors", *others):
        with suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def _rising(curve: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
    if any(not (0 <= p <= 1 and 0 <= confidence <= 1) for p, confidence in curve) or sorted(curve) != list(curve):
        raise ValueError("a curve goes from probability to confidence, both between 0 and 1, with rising probabilities")
    return curve


Curve = Annotated[tuple[tuple[float, float], ...], AfterValidator(_rising)]


class _Score(BaseModel):
    name: str
    value: float
    unit: str
    signature: str


class _Scores(BaseModel):
    scores: dict[str, _Score] = {}


class _Data(BaseModel):
    sha256: dict[str, str] = {}


class Shown(BaseModel):
    """What those values of a provenance must be that `regard inspect` shows."""

    data: _Data = _Data()
    scores: list[_Scores] = []


class Calibration(BaseModel):
    """How probabilities are to be read, so that what is given 0.9 is right nine times of ten; and how attention is."""

    model_config = _STRICT

    temperature: float = Field(1.0, gt=0, description="logits are divided by it before the softmax")
    tokens: Curve = Field(
        (),
        validation_alias=AliasChoices("tokens", "pieces"),  # what files written before version 0.2 call it
        description="a curve from probability to confidence; empty: none",
    )
    words: Curve = Field((), description="the same of the product of a word's tokens")
    rule: Literal["input", "output"] = Field("output", description="the step that tells where a token comes from")
    layer: int = Field(0, ge=0, description="of the decoder, from 1, that alignments are read off; 0: their mean")
    report: dict[str, Any] = Field(default_factory=dict, description="what it was measured on, before and after")

    def token(self, log_probability: float) -> float:
        """The confidence in a token whose log-probability at the temperature this is."""
        return on_curve(self.tokens, math.exp(log_probability))

    def word(self, log_probability: float) -> float:
        """The confidence in a word whose tokens' log-probabilities at the temperature add up to this."""
        return on_curve(self.words, math.exp(log_probability))


class Card(BaseModel):
    """`bundle.json`: what the bundle is and what its files are."""

    model_config = _STRICT

    format: int = Field(FORMAT, ge=FORMAT, le=FORMAT, strict=True)
    family: str
    parameters: int = Field(ge=0, strict=True)
    provenance: Provenance
    files: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$")], File] = Field(max_length=100)


def on_curve(curve: Sequence[tuple[float, float]], probability: float) -> float:
    """Straight between the curve's points, level beyond them; without any, the probability itself."""
    if not curve:
        return probability
    return float(np.interp(probability, [p for p, _ in curve], [confidence for _, confidence in curve]))


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
        known = json.loads(header)
        self._begin, self._stored = 8 + size, {name: known[name] for name in names}
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
            found = self._floats(name)
            if name + SCALE in self._stored:
                scale = self._floats(name + SCALE)
                found *= scale.reshape(-1, *[1] * (found.ndim - 1))
        return self._finite(name, found)

    def whole(self, name: str) -> tuple[NDArray[np.int8], NDArray[np.float32]] | None:
        """A matrix's whole numbers and what each of its rows is multiplied by; None if it is not stored so."""
        if name + SCALE not in self._stored:
            return None
        return self._read(name).astype(np.int8, copy=False), self._finite(name, self._floats(name + SCALE))

    def _finite(self, name: str, found: NDArray[np.float32]) -> NDArray[np.float32]:
        if found.size and not np.isfinite([found.min(), found.max()]).all():
            raise BundleError(
                f"{self.file}: {name} has numbers that are not finite, as if training had diverged; train again."
            )
        return found

    def _floats(self, name: str) -> NDArray[np.float32]:
        found = self._read(name)
        if self._stored[name]["dtype"] == "BF16":
            return (found.astype(np.uint32) << 16).view(np.float32)
        return found.astype(np.float32, copy=False)

    def _read(self, name: str) -> NDArray[np.generic]:
        known = self._stored[name]
        kind, begin = np.dtype(_KINDS[known["dtype"]]), self._begin + known["data_offsets"][0]
        try:
            return np.fromfile(self.file, kind, math.prod(known["shape"]), offset=begin).reshape(known["shape"])
        except (OSError, ValueError) as error:
            raise self._unread(error) from None

    def _unread(self, error: Exception) -> BundleError:
        return BundleError(f"{self.file}: cannot be read ({error}); get the bundle again.")

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
