"""A bundle read from disk and checked, its weights as arrays. Nothing is believed: it may come from a stranger."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, TypeAdapter, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors import numpy as plain

from regard.errors import BundleError, RecipeError, TextError
from regard.recipe import Recipe
from regard.recipe import load as load_recipe
from regard.text import Shortlist, Tokenizer

from .files import CALIBRATION, CARD, GOLDEN, JOINT, LARGEST, RECIPE, SCALE, SEPARATE, SHORTLIST, WEIGHTS
from .format import FORMAT, Calibration, Card, File, Golden, Provenance, Shown, located, no_bundle

if TYPE_CHECKING:
    from torch import nn

_HEADER = 16 << 20
"""Bytes of the longest header of weights that is read."""
_REPEATS = ("layers", "hops")
"""Ends of the keys that say how many parts a model has, each with weights of its own."""
_KINDS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I8": "i1"}
"""Kinds of numbers that weights are stored in. Of BF16, which NumPy has not, the bits: the upper half of a float32."""


@dataclass(frozen=True)
class Bundle:
    """A bundle that has been read and checked; the weights stay on disk until `model` is called."""

    path: Path
    recipe: Recipe
    source: Tokenizer
    target: Tokenizer
    golden: tuple[Golden, ...]
    provenance: Provenance
    parameters: int
    files: dict[str, File]
    calibration: Calibration | None = None
    digest: str = ""
    """SHA-256 of `bundle.json`, which has those of all files: two bundles with the same one are the same."""

    @property
    def name(self) -> str:
        """What the recipe calls it, or the directory's name."""
        return self.recipe.name or self.path.name

    def check_elsewhere(self, out: str | Path) -> None:
        """Raises BundleError where what is made of this bundle would be written over it."""
        if Path(out).resolve() == self.path.resolve():
            raise BundleError(f"{out}: is the bundle itself, which would be lost; name another directory.")

    def model(self) -> nn.Module:
        """The model with the bundle's weights, ready to use (not training), in float32 on the CPU, in PyTorch.

        Raises BundleError for weights that are not those of the recipe's model or that are not finite. Before anything
        is allocated the file's header is held against the model.
        """
        weights = self._weights()
        from .model import filled

        return filled(self, weights)

    def weights(self, shapes: Mapping[str, tuple[int, ...]]) -> Weights:
        """The model's weights as arrays by name; raises BundleError unless these are their names and shapes."""
        weights = self._weights()
        weights.check(shapes)
        return weights

    def _weights(self) -> Weights:
        weights = Weights(self.path / WEIGHTS)
        weights.check_repeats(self.recipe.model)
        return weights

    def shortlist(self) -> Shortlist | None:
        """The target tokens that each source token goes with; None unless `regard shortlist` learnt them."""
        if SHORTLIST not in self.files:
            return None
        file = self.path / SHORTLIST
        try:
            found = plain.load_file(file)
            # Files written before version 0.2 call the tokens pieces.
            tokens = found["tokens" if "tokens" in found else "pieces"]
            shortlist = Shortlist(found["always"], found["starts"], tokens)
            reason = shortlist.refusal(len(self.source), len(self.target))
        except (SafetensorError, OSError, KeyError, TypeError, ValueError, AttributeError) as error:
            reason = f"it cannot be read ({error})"
        if reason is not None:
            raise BundleError(f"{file}: is no shortlist of this bundle: {reason}; learn one with `regard shortlist`.")
        return shortlist


def load(path: str | Path) -> Bundle:
    """Read a bundle and check it: the size and SHA-256 of every file, and the ids of the golden sentences.

    Raises BundleError, naming the file or sentence that differs. "ready:NAME" is an installed one, see `located`.
    """
    path = located(str(path)) if str(path).startswith("ready:") else Path(path)
    card, whole = _card(path)
    with ThreadPoolExecutor(1) as beside:  # of large weights this takes as long as all the rest
        known = card.files.get(WEIGHTS)  # without them `_read` says so
        weigh: Callable[[], object] = partial(_check_file, path / WEIGHTS, known) if known else bool
        with suppress(RuntimeError):  # where no thread can be started, this one does it
            weigh = beside.submit(weigh).result
        bundle = _read(path, card, whole)
        weigh()
    return bundle


def _read(path: Path, card: Card, whole: str) -> Bundle:
    """What `load` returns, all but the weights checked."""
    for name, known in card.files.items():
        if name != WEIGHTS:
            _check_file(path / name, known)
    models = (JOINT, JOINT) if JOINT in card.files else SEPARATE
    for name in (WEIGHTS, RECIPE, GOLDEN, *models):
        if name not in card.files:
            raise BundleError(f"{path / CARD}: lists no {name}, so this is no whole bundle; get it again.")
    try:
        source = Tokenizer.load(path / models[0])
        target = source if models[1] == models[0] else Tokenizer.load(path / models[1])
        recipe = load_recipe(path / RECIPE, trained=True)
        bundle = Bundle(
            path=path,
            recipe=recipe,
            source=source,
            target=target.in_order(recipe.text.order),
            golden=_GOLDENS.validate_python(_json(path / GOLDEN)),
            provenance=card.provenance,
            parameters=card.parameters,
            files=card.files,
            calibration=_calibration(path / CALIBRATION) if CALIBRATION in card.files else None,
            digest=whole,
        )
        check_golden(bundle)
    except RecipeError as error:
        raise BundleError(
            f"{path}: made by another version of Regard, by hand, or with an extension: {error}"
        ) from error
    except (TextError, ValidationError) as error:
        raise BundleError(f"{path}: made by another version of Regard, or by hand: {error}") from error
    made_by = card.provenance.versions.get("regard", "")
    if reason := computes_otherwise(recipe.model, made_by):
        raise BundleError(f"{path}: was made by version {made_by}, and {reason}; train it again, or use that version.")
    layers = getattr(recipe.model, "decoder_layers", 1)
    if bundle.calibration and bundle.calibration.layer > layers:
        raise BundleError(
            f"{path / CALIBRATION}: layer = {bundle.calibration.layer}, and the model's decoder has {layers}; measure "
            "again with `regard calibrate`."
        )
    return bundle


_GOLDENS = TypeAdapter(tuple[Golden, ...])


def check_golden(bundle: Bundle) -> None:
    """Hold the golden sentences' ids against what the tokenizer gives now; BundleError shows the first that differs."""
    for golden in bundle.golden:
        ids = tuple(bundle.source.encode(golden.source))
        if ids != golden.source_ids:
            raise BundleError(
                f"{bundle.path}: golden sentence {golden.source!r} should have the ids {_short(golden.source_ids)} "
                f"and has {_short(ids)}: the tokenizer is another one or reads its model differently, so the weights "
                "would be fed nonsense. Get the bundle again, or use the SentencePiece version it names: "
                f"{bundle.provenance.versions.get('sentencepiece', 'unknown')}."
            )
        output = bundle.target.decode(golden.target_ids)
        if output != golden.output:
            raise BundleError(
                f"{bundle.path}: the ids of golden sentence {golden.source!r} should read {golden.output!r} "
                f"and read {output!r}: the target's tokenizer is another one. Get the bundle again."
            )


def _json(file: Path) -> Any:
    """The value in a JSON file of ours."""
    try:
        return json.loads(file.read_bytes(), parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{file}: damaged or cut short ({error}); get the bundle again.") from None


def _calibration(file: Path) -> Calibration:
    found = Calibration.model_validate(_json(file))
    if any(sorted(curve) != [*curve] for curve in (found.tokens, found.words)):
        raise BundleError(f"{file}: a curve's probabilities must rise; measure again with `regard calibrate`.")
    return found


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")


def _card(path: Path) -> tuple[Card, str]:
    """`bundle.json`, checked, and the digest of it that it names."""
    file = path / CARD
    if not file.is_file():
        raise BundleError(no_bundle(path))
    _check_size(file)
    card = _json(file)
    known = card.pop("sha256", None) if isinstance(card, dict) else None
    if not isinstance(known, str):
        raise BundleError(f"{file}: damaged or cut short; get the bundle again.")
    if card.get("format") != FORMAT:
        raise BundleError(
            f"{path}: a bundle of format {card.get('format')}, and this Regard reads {FORMAT}; install another version."
        )
    try:
        checked = Card.model_validate(card)
        Shown.model_validate(card["provenance"])
        if digest_of(card) != known:
            raise BundleError(f"{file}: changed since it was saved (its SHA-256 differs); get the bundle again.")
    except (ValidationError, UnicodeEncodeError, RecursionError) as error:
        raise BundleError(f"{file}: made by another version of Regard, or by hand: {error}") from None
    return checked, known


def digest_of(card: Mapping[str, Any]) -> str:
    """SHA-256 of a card's content, however it is laid out."""
    return hashlib.sha256(json.dumps(card, ensure_ascii=False, sort_keys=True).encode()).hexdigest()


def _check_size(file: Path) -> None:
    size, most = file.stat().st_size, LARGEST.get(file.name)
    if most and size > most:
        raise BundleError(f"{file}: has {size:,} bytes, and a bundle's has at most {most:,}; get the bundle again.")


def _check_file(file: Path, known: File) -> None:
    if not file.is_file():
        raise BundleError(f"{file}: is missing from the bundle; get the bundle again.")
    size = file.stat().st_size
    if size != known.size:
        raise BundleError(
            f"{file}: has {size:,} bytes and should have {known.size:,}: cut short or changed; get the bundle again."
        )
    _check_size(file)
    with file.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != known.sha256:
        raise BundleError(
            f"{file}: changed since the bundle was saved: SHA-256 {found[:16]}… and should be {known.sha256[:16]}…; "
            "get the bundle again."
        )


def _short(ids: Sequence[int]) -> str:
    return str(list(ids)) if len(ids) <= 12 else f"[{', '.join(map(str, ids[:12]))}, …]"


def computes_otherwise(model: BaseModel, version: str) -> str | None:
    """Why a model made by this version of Regard would answer otherwise now; None: it answers as it did."""
    if not version.startswith("0.1."):
        return None
    settings = model.model_dump()
    heads = settings.get("heads") or 1
    if settings.get("positions") == "alibi" and heads & (heads - 1):
        return (
            f"ALiBi's slopes for {heads} heads, which are no power of two, are those of its authors since version 0.2"
        )
    if settings["family"] == "self-attentive" and settings.get("pool") == "end":
        return 'pool = "end" takes the last state of each direction since version 0.2'
    return None


# -- weights -----------------------------------------------------------------------------------------------------------


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
                raise BundleError(f"{self.file}: {name} is stored as {kind}, as in no bundle of ours; get it again.")

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

    def __contains__(self, name: object) -> bool:
        return name in self._names  # where a Mapping would read it to find out

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
