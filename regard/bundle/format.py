"""What the files of a bundle hold, and what is no bundle.

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

import math
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AliasChoices, BaseModel, Field

from regard.errors import BundleError

from .files import CARD

FORMAT = 1


class _Strict(BaseModel, extra="forbid", frozen=True, allow_inf_nan=False):
    """A file, or a part of one, that holds nothing but what is named here."""


class File(BaseModel, extra="forbid", frozen=True, strict=True):
    """What is known of a file."""

    size: int = Field(ge=0, description="in bytes")
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class Golden(_Strict):
    """One sentence that a bundle must always read and translate the same way."""

    source: str
    source_ids: tuple[int, ...]
    """Ids of the source's tokens, without begin and end."""
    target_ids: tuple[int, ...]
    output: str


class Provenance(_Strict):
    """Where a model came from; plain values, kept as they are."""

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


Share = Annotated[float, Field(ge=0, le=1)]
Curve = tuple[tuple[Share, Share], ...]
"""From probability to confidence, with rising probabilities, which `regard.bundle.load` sees to."""


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


class Calibration(_Strict):
    """How probabilities are to be read, so that what is given 0.9 is right nine times of ten; and how attention is."""

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


class Card(_Strict):
    """`bundle.json`: what the bundle is and what its files are."""

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


_FOREIGN = {
    "tensors.safetensors": "this is a checkpoint, to go on from with `regard train --resume`; a bundle is made when "
    "training ends, in the directory `bundle` of the run.",
    "model.bin": "this is a model of CTranslate2, which cannot be brought back; use the bundle that it was made from.",
    "config.json": "this is a model of another library, if anything; `regard import` makes bundles of Marian's.",
}
"""Files of other directories that people try, and what to do with these."""


def earlier(path: Path) -> Path:
    """Where the bundle before this one stands for the moment between two renames."""
    whole = path.resolve()
    return whole.with_name(f".{whole.name}.old")


def located(path: str) -> Path:
    """The directory of "ready:NAME", a bundle of the package `regard-bundles`, which is found and not imported.

    Raises BundleError for a name that it does not have.
    """
    found = find_spec("regard_bundles")
    cards = Path(found.origin).parent.glob(f"*/{CARD}") if found and found.origin else ()
    ready = {f"ready:{card.parent.name}": card.parent for card in cards}
    if path in ready:
        return ready[path]
    there = f"there are {', '.join(sorted(ready))}" if ready else "the package regard-bundles is not installed"
    raise BundleError(f"{path}: no ready bundle has this name; {there} (docs/bundle.md says how it is made).")


def no_bundle(path: Path) -> str:
    """Why no bundle can be read from there, and what to do."""
    if earlier(path).exists() and not path.exists():
        return f"{path}: replacing it was cut short; the bundle before is whole: `mv {earlier(path)} {path}`."
    if not path.exists():
        return f"{path}: there is no such bundle; `regard train` makes one."
    if not path.is_dir():
        return f"{path}: a bundle is a directory, and this is a file."
    for file, what in _FOREIGN.items():
        if (path / file).is_file():
            return f"{path}: {what}"
    inside = [p.parent.name for p in sorted(path.glob(f"*/{CARD}"))]
    hint = f"; did you mean {path / inside[0]}?" if inside else "; `regard train` makes one."
    return f"{path}: no bundle is in this directory ({CARD} is missing){hint}"
