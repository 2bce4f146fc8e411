"""Bundles: everything needed to use a model, in a directory that is checked whenever it is opened.

    weights.safetensors    parameters by name (never pickle)
    subwords.model         the SentencePiece model; or source.model and target.model
    recipe.toml            everything the run depended on, decoding defaults included
    golden.json            sentences with the ids and the output that they must give
    calibration.json       how its probabilities are to be read, if that was measured
    shortlist.safetensors  the target tokens that each source token goes with, if they were learnt
    bundle.json            format, provenance, scores; size and SHA-256 of every file, and of itself

Sizes and digests tell damage; golden ids tell a tokeniser that reads the same file differently; golden outputs,
translated again by `regard inspect --verify`, tell everything else.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors import numpy as plain
from safetensors.torch import save_file
from torch import Tensor, nn

from regard import recipe as recipes
from regard.disk import digest, sync
from regard.errors import BundleError, RecipeError, TextError
from regard.models import MODELS
from regard.models.interface import NeedsVocabulary
from regard.recipe import Recipe
from regard.text import PAD, Shortlist, Tokenizer
from regard.text.order import in_order

__all__ = [
    "FORMAT",
    "SCALE",
    "Bundle",
    "Calibration",
    "Golden",
    "Provenance",
    "add_calibration",
    "add_shortlist",
    "check_golden",
    "load",
    "new_model",
    "on_curve",
    "save",
]

FORMAT = 1

_WEIGHTS, _RECIPE, _GOLDEN, _CARD = "weights.safetensors", "recipe.toml", "golden.json", "bundle.json"
_CALIBRATION, _SHORTLIST = "calibration.json", "shortlist.safetensors"
_FOREIGN = {
    "tensors.safetensors": "this is a checkpoint, to go on from with `regard train --resume`; a bundle is made when "
    "training ends, in the directory `bundle` of the run.",
    "model.bin": "this is a model of CTranslate2, which cannot be brought back; use the bundle that it was made from.",
    "config.json": "this is a model of another library, if anything; `regard import` makes bundles of Marian's.",
}
"""Files of other directories that people try, and what to do with these."""
_JOINT, _SEPARATE = "subwords.model", ("source.model", "target.model")
SCALE = ":scale"
"""Behind a parameter's name: what its rows are multiplied by, where they are stored as whole numbers."""


class Golden(BaseModel):
    """One sentence that a bundle must always read and translate the same way."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: str
    source_ids: tuple[int, ...]
    """Ids of the source's tokens, without begin and end."""
    target_ids: tuple[int, ...]
    output: str


class Provenance(BaseModel):
    """Where a model came from; plain values, kept as they are."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    created: str = Field("", description="when training ended, in UTC")
    versions: dict[str, str] = Field(default_factory=dict, description="of regard, python, torch, sentencepiece")
    machine: str = Field("", description="what it was trained on")
    data: dict[str, Any] = Field(default_factory=dict, description="SHA-256 of each file, pairs read, kept and dropped")
    training: dict[str, Any] = Field(default_factory=dict, description="updates, epochs, seconds, tokens, precision")
    scores: list[dict[str, Any]] = Field(default_factory=list, description="scores with their signatures")
    notes: dict[str, Any] = Field(default_factory=dict, description="anything else worth knowing")


class Calibration(BaseModel):
    """How probabilities are to be read, so that what is given 0.9 is right nine times of ten; and how attention is."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    temperature: float = Field(1.0, gt=0, description="logits are divided by it before the softmax")
    tokens: tuple[tuple[float, float], ...] = Field(
        (),
        validation_alias=AliasChoices("tokens", "pieces"),  # what files written before version 0.2 call it
        description="a curve from probability to confidence; empty: none",
    )
    words: tuple[tuple[float, float], ...] = Field((), description="the same of the product of a word's tokens")
    rule: Literal["input", "output"] = Field("output", description="the step that tells where a token comes from")
    layer: int = Field(0, ge=0, description="of the decoder, from 1, that alignments are read off; 0: their mean")
    report: dict[str, Any] = Field(default_factory=dict, description="what it was measured on, before and after")

    def token(self, log_probability: float) -> float:
        """The confidence in a token whose log-probability at the temperature this is."""
        return on_curve(self.tokens, math.exp(log_probability))

    def word(self, log_probability: float) -> float:
        """The confidence in a word whose tokens' log-probabilities at the temperature add up to this."""
        return on_curve(self.words, math.exp(log_probability))


def on_curve(curve: Sequence[tuple[float, float]], probability: float) -> float:
    """Straight between the curve's points, level beyond them; without any, the probability itself."""
    if not curve:
        return probability
    return float(np.interp(probability, [p for p, _ in curve], [confidence for _, confidence in curve]))


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
    files: dict[str, dict[str, Any]]
    """Size in bytes and SHA-256 of each file."""
    calibration: Calibration | None = None

    @property
    def name(self) -> str:
        """What the recipe calls it, or the directory's name."""
        return self.recipe.name or self.path.name

    def model(self) -> nn.Module:
        """The model with the bundle's weights, ready to use (not training), in float32 on the CPU."""
        model = new_model(self.recipe, self.source, self.target)
        _fill(model, _Stored(self.path / _WEIGHTS), self.path / _WEIGHTS)
        return model.eval()

    def shortlist(self) -> Shortlist | None:
        """The target tokens that each source token goes with; None unless `regard shortlist` learnt them."""
        if _SHORTLIST not in self.files:
            return None
        found = plain.load_file(self.path / _SHORTLIST)
        # Files written before version 0.2 call the tokens pieces.
        return Shortlist(found["always"], found["starts"], found["tokens" if "tokens" in found else "pieces"])


def new_model(recipe: Recipe, source: Tokenizer, target: Tokenizer) -> nn.Module:
    """A randomly initialised model of a recipe, for these vocabularies."""
    model: nn.Module = MODELS[recipe.model.family][1](recipe.model, len(source), len(target), PAD)
    if hasattr(model, "spell"):
        cast(NeedsVocabulary, model).spell(source.tokens(range(len(source))), target.tokens(range(len(target))))
    return model


# -- saving ------------------------------------------------------------------------------------------------------------


def save(
    path: str | Path,
    *,
    recipe: Recipe,
    weights: Mapping[str, Tensor],
    source: Tokenizer,
    target: Tokenizer,
    provenance: Provenance,
    golden: Sequence[Golden],
) -> Path:
    """Write a bundle so that a crash or a full disk at any moment leaves the old one, or the new one, whole.

    `weights` are a model's named parameters; where source and target have the same tokenizer, they are stored once.
    Raises BundleError if it cannot be written; nothing half-written is left.
    """
    path = Path(path)

    def write(part: Path) -> None:
        contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
        save_file(contiguous, part / _WEIGHTS)
        joint = source.digest == target.digest
        models = {_JOINT: source} if joint else dict(zip(_SEPARATE, (source, target), strict=True))
        for name, tokenizer in models.items():
            (part / name).write_bytes(tokenizer.to_bytes())
        (part / _RECIPE).write_text(recipes.to_toml(recipe), encoding="utf-8")
        _write_json(part / _GOLDEN, [g.model_dump(mode="json") for g in golden])
        parameters = sum(tensor.numel() for name, tensor in contiguous.items() if not name.endswith(SCALE))
        _seal(part, recipe.model.family, parameters, provenance)

    _place(path, write)
    return path


def add_calibration(bundle: Bundle, calibration: Calibration) -> Bundle:
    """The bundle with this calibration in place of any that it had, saved as `save` does, and loaded."""
    return _with(bundle, _CALIBRATION, lambda file: _write_json(file, calibration.model_dump(mode="json")))


def add_shortlist(bundle: Bundle, shortlist: Shortlist) -> Bundle:
    """The bundle with this shortlist in place of any that it had, saved as `save` does, and loaded."""
    return _with(bundle, _SHORTLIST, lambda file: plain.save_file(dict(vars(shortlist)), file))


def _with(bundle: Bundle, name: str, write_one: Callable[[Path], None]) -> Bundle:
    """The bundle with one more file, or with another in its place."""

    def write(part: Path) -> None:
        for other in bundle.files.keys() - {name}:
            shutil.copyfile(bundle.path / other, part / other)
        write_one(part / name)
        _seal(part, bundle.recipe.model.family, bundle.parameters, bundle.provenance)

    _place(bundle.path, write)
    return load(bundle.path)


def _place(path: Path, write: Callable[[Path], None]) -> None:
    """Put a directory that `write` fills in the place of a bundle, or of nothing."""
    if path.exists() and not (path.is_dir() and ((path / _CARD).exists() or not any(path.iterdir()))):
        raise BundleError(f"{path}: is in the way and is no bundle; move it, or choose another place for the bundle.")
    place = path.resolve()  # "." and links have names of their own
    part: Path | None = None
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        for left in place.parent.glob(f".{place.name}.*.part"):  # what a crash left behind
            shutil.rmtree(left, ignore_errors=True)
        part = Path(tempfile.mkdtemp(prefix=f".{place.name}.", suffix=".part", dir=place.parent))
        part.chmod(0o755)  # mkdtemp's own mode would keep everybody else from reading it
        write(part)
        _replace(part, place)
    except (OSError, SafetensorError) as error:
        raise BundleError(f"{path}: the bundle could not be saved: {_reason(error)}.{_kept(path)}") from error
    finally:
        if part is not None:
            shutil.rmtree(part, ignore_errors=True)


def _seal(part: Path, family: str, parameters: int, provenance: Provenance) -> None:
    """Write the card of all that is there, and force everything to disk."""
    card = {
        "format": FORMAT,
        "family": family,
        "parameters": parameters,
        "provenance": provenance.model_dump(mode="json"),
        "files": {f.name: {"size": f.stat().st_size, "sha256": digest(f)} for f in sorted(part.iterdir())},
    }
    _write_json(part / _CARD, {**card, "sha256": _digest_of(card)})
    for file in part.iterdir():
        sync(file)
    sync(part)


def _replace(part: Path, path: Path) -> None:
    """Put a whole new directory in the place of the old one; two renames, undone if anything fails."""
    old = _old(path)
    if path.exists():
        if old.exists():
            shutil.rmtree(old)
        path.rename(old)
    try:
        part.rename(path)
        sync(path.parent)
    except BaseException:
        if path.exists():
            path.rename(part)
        if old.exists():
            old.rename(path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _old(path: Path) -> Path:
    """Where the bundle before this one stands for the moment between two renames."""
    place = path.resolve()
    return place.with_name(f".{place.name}.old")


def _kept(path: Path) -> str:
    return f" The bundle that was there before is untouched: {path}." if (path / _CARD).exists() else ""


def _reason(error: Exception) -> str:
    """The error in words with a way out; safetensors tells a full disk only in its text."""
    text = str(error)
    number = getattr(error, "errno", None)
    if number in (errno.ENOSPC, errno.EDQUOT) or "os error 28" in text or "os error 122" in text:
        return "no space is left on the disk; free some, or choose another disk with --out"
    return getattr(error, "strerror", None) or text


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def _digest_of(card: Mapping[str, Any]) -> str:
    """SHA-256 of the card's content, however it is laid out."""
    return hashlib.sha256(json.dumps(card, ensure_ascii=False, sort_keys=True).encode()).hexdigest()


# -- loading -----------------------------------------------------------------------------------------------------------


def load(path: str | Path) -> Bundle:
    """Read a bundle and check it: the size and SHA-256 of every file, and the ids of the golden sentences.

    Raises BundleError, naming the file or sentence that differs.
    """
    path = Path(path)
    card = _card(path)
    files = card["files"]
    for name, known in files.items():
        _check_file(path / name, known)
    models = [_JOINT] * 2 if _JOINT in files else list(_SEPARATE)
    for name in (_WEIGHTS, _RECIPE, _GOLDEN, *models):
        if name not in files:
            raise BundleError(f"{path / _CARD}: lists no {name}, so this is no whole bundle; get it again.")
    try:
        source, target = _tokenizer(path, models)
        recipe = recipes.load(path / _RECIPE, trained=True)
        bundle = Bundle(
            path=path,
            recipe=recipe,
            source=source,
            target=in_order(target, recipe.text.order),
            golden=tuple(Golden.model_validate(g) for g in json.loads((path / _GOLDEN).read_bytes())),
            provenance=Provenance.model_validate(card["provenance"]),
            parameters=int(card["parameters"]),
            files=files,
            calibration=(
                Calibration.model_validate_json((path / _CALIBRATION).read_bytes()) if _CALIBRATION in files else None
            ),
        )
    except (RecipeError, TextError, ValidationError, ValueError, KeyError, TypeError) as error:
        raise BundleError(f"{path}: made by another version of Regard, or by hand: {error}") from error
    check_golden(bundle)
    return bundle


def check_golden(bundle: Bundle) -> None:
    """Hold the golden sentences' ids against what the tokeniser gives now; BundleError shows the first that differs."""
    for golden in bundle.golden:
        ids = tuple(bundle.source.encode(golden.source))
        if ids != golden.source_ids:
            raise BundleError(
                f"{bundle.path}: golden sentence {golden.source!r} should have the ids {_short(golden.source_ids)} "
                f"and has {_short(ids)}: the tokeniser is another one or reads its model differently, so the weights "
                "would be fed nonsense. Get the bundle again, or use the SentencePiece version it names: "
                f"{bundle.provenance.versions.get('sentencepiece', 'unknown')}."
            )
        output = bundle.target.decode(golden.target_ids)
        if output != golden.output:
            raise BundleError(
                f"{bundle.path}: the ids of golden sentence {golden.source!r} should read {golden.output!r} "
                f"and read {output!r}: the target's tokeniser is another one. Get the bundle again."
            )


def _card(path: Path) -> dict[str, Any]:
    if not (path / _CARD).is_file():
        raise BundleError(_no_bundle(path))
    try:
        card: dict[str, Any] = json.loads((path / _CARD).read_bytes())
        known = card.pop("sha256")
        if card["format"] != FORMAT:
            raise BundleError(
                f"{path}: a bundle of format {card['format']}, and this Regard reads {FORMAT}; install another version."
            )
        if _digest_of(card) != known or not all(Path(name).name == name for name in card["files"]):
            raise BundleError(
                f"{path / _CARD}: changed since it was saved (its SHA-256 differs); get the bundle again."
            )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BundleError(f"{path / _CARD}: damaged or cut short; get the bundle again.") from None
    return card


def _no_bundle(path: Path) -> str:
    if _old(path).exists() and not path.exists():
        return f"{path}: replacing it was cut short; the bundle before is whole: `mv {_old(path)} {path}`."
    if not path.exists():
        return f"{path}: there is no such bundle; `regard train` makes one."
    if not path.is_dir():
        return f"{path}: a bundle is a directory, and this is a file."
    for file, what in _FOREIGN.items():
        if (path / file).is_file():
            return f"{path}: {what}"
    inside = [p.parent.name for p in sorted(path.glob(f"*/{_CARD}"))]
    hint = f"; did you mean {path / inside[0]}?" if inside else "; `regard train` makes one."
    return f"{path}: no bundle is in this directory ({_CARD} is missing){hint}"


def _check_file(file: Path, known: Mapping[str, Any]) -> None:
    if not file.is_file():
        raise BundleError(f"{file}: is missing from the bundle; get the bundle again.")
    size = file.stat().st_size
    if size != known["size"]:
        raise BundleError(
            f"{file}: has {size:,} bytes and should have {known['size']:,}: cut short or changed; get the bundle again."
        )
    found = digest(file)
    if found != known["sha256"]:
        raise BundleError(
            f"{file}: changed since the bundle was saved: SHA-256 {found[:16]}… and should be {known['sha256'][:16]}…; "
            "get the bundle again."
        )


def _tokenizer(path: Path, models: Sequence[str]) -> tuple[Tokenizer, Tokenizer]:
    source = Tokenizer.load(path / models[0])
    return source, source if models[1] == models[0] else Tokenizer.load(path / models[1])


def _fill(model: nn.Module, weights: Mapping[str, Tensor], file: Path) -> None:
    """Copy the weights into the model's parameters; every name and shape must agree."""
    parameters = dict(model.named_parameters())
    names = {name for name in weights if not name.endswith(SCALE)}
    if missing := sorted(parameters.keys() - names) or sorted(names - parameters.keys()):
        raise BundleError(f"{file}: does not fit the recipe's model: {missing[0]} stands in only one of them.")
    for name, parameter in parameters.items():
        weight = weights[name]
        if parameter.shape != weight.shape:
            raise BundleError(
                f"{file}: {name} is {tuple(weight.shape)} and the recipe's model needs {tuple(parameter.shape)}."
            )
        parameter.data.copy_(weight)
        if name + SCALE in weights:
            parameter.data.mul_(weights[name + SCALE][:, None])


class _Stored(Mapping[str, Tensor]):
    """The tensors of a file, each read when it is asked for, so that they are never in memory all at once."""

    def __init__(self, file: Path) -> None:
        self._file = file
        with safe_open(file, "pt") as stored:
            self._names = frozenset(stored.keys())

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._names:  # `in` asks in this way
            raise KeyError(name)
        with safe_open(self._file, "pt") as stored:
            tensor: Tensor = stored.get_tensor(name)
            return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _short(ids: Sequence[int]) -> str:
    return str(list(ids)) if len(ids) <= 12 else f"[{', '.join(map(str, ids[:12]))}, …]"
