"""A bundle read from disk and checked. Nothing in it is believed: it may come from a stranger."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pydantic import BaseModel, TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors import numpy as plain

from regard.errors import BundleError, RecipeError, TextError
from regard.recipe import Recipe
from regard.recipe import load as load_recipe
from regard.text import Shortlist, Tokenizer

from .format import (
    CALIBRATION,
    CARD,
    FORMAT,
    GOLDEN,
    JOINT,
    LARGEST,
    RECIPE,
    SEPARATE,
    SHORTLIST,
    WEIGHTS,
    Calibration,
    Card,
    File,
    Golden,
    Provenance,
    Shown,
    Weights,
)

if TYPE_CHECKING:
    from torch import nn

_FOREIGN = {
    "tensors.safetensors": "this is a checkpoint, to go on from with `regard train --resume`; a bundle is made when "
    "training ends, in the directory `bundle` of the run.",
    "model.bin": "this is a model of CTranslate2, which cannot be brought back; use the bundle that it was made from.",
    "config.json": "this is a model of another library, if anything; `regard import` makes bundles of Marian's.",
}
"""Files of other directories that people try, and what to do with these."""


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

    Raises BundleError, naming the file or sentence that differs.
    """
    path = Path(path)
    card, whole = _card(path)
    with ThreadPoolExecutor(1) as beside:  # of large weights this takes as long as all the rest
        known = card.files.get(WEIGHTS)  # without them `_read` says so
        weighed = beside.submit(_check_file, path / WEIGHTS, known) if known else None
        bundle = _read(path, card, whole)
        if weighed:
            weighed.result()
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
            calibration=Calibration.model_validate(_json(path / CALIBRATION)) if CALIBRATION in card.files else None,
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


def earlier(path: Path) -> Path:
    """Where the bundle before this one stands for the moment between two renames."""
    whole = path.resolve()
    return whole.with_name(f".{whole.name}.old")


def _json(file: Path) -> Any:
    """The value in a JSON file of ours."""
    try:
        return json.loads(file.read_bytes(), parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{file}: damaged or cut short ({error}); get the bundle again.") from None


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")


def _card(path: Path) -> tuple[Card, str]:
    """`bundle.json`, checked, and the digest of it that it names."""
    file = path / CARD
    if not file.is_file():
        raise BundleError(_no_bundle(path))
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


def _no_bundle(path: Path) -> str:
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
