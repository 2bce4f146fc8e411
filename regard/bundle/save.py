"""A bundle written so that a crash or a full disk at any moment leaves the old one, or the new one, whole."""

from __future__ import annotations

import errno
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError
from safetensors import numpy as plain

from regard.errors import BundleError
from regard.machine import digest, open_to_umask, sync
from regard.recipe import Recipe, to_toml
from regard.text import Shortlist, Tokenizer

from .card import model_card
from .files import CALIBRATION, CARD, GOLDEN, JOINT, MODEL_CARD, RECIPE, SCALE, SEPARATE, SHORTLIST, WEIGHTS
from .format import FORMAT, Calibration, Golden, Provenance, earlier
from .load import Bundle, digest_of, load

if TYPE_CHECKING:
    from torch import Tensor

Write = Callable[[Path], object]


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
    """Write a bundle in place of any that was there.

    `weights` are a model's named parameters; where source and target have the same tokenizer, they are stored once.
    Raises BundleError if it cannot be written; nothing half-written is left.
    """
    from safetensors.torch import save_file

    path = Path(path)

    def write(part: Path) -> None:
        contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
        save_file(contiguous, part / WEIGHTS)
        joint = source.digest == target.digest
        models = {JOINT: source} if joint else dict(zip(SEPARATE, (source, target), strict=True))
        for name, tokenizer in models.items():
            (part / name).write_bytes(tokenizer.to_bytes())
        for name, write_one in _told(recipe, golden).items():
            write_one(part / name)
        parameters = sum(tensor.numel() for name, tensor in contiguous.items() if not name.endswith(SCALE))
        seal(part, recipe, parameters, provenance, golden)

    _replace(path, write)
    return path


def add_calibration(bundle: Bundle, calibration: Calibration) -> Bundle:
    """The bundle with this calibration in place of any that it had, saved as `save` does, and loaded."""
    return _with(bundle, {CALIBRATION: lambda file: _write_json(file, calibration.model_dump(mode="json"))})


def add_shortlist(bundle: Bundle, shortlist: Shortlist) -> Bundle:
    """The bundle with this shortlist in place of any that it had, saved as `save` does, and loaded."""
    return _with(bundle, {SHORTLIST: lambda file: plain.save_file(dict(vars(shortlist)), file)})


def with_recipe(
    bundle: Bundle, recipe: Recipe, golden: Sequence[Golden], notes: Mapping[str, object], out: Path | None = None
) -> Bundle:
    """The bundle with another recipe of the same model and what it answers by it, saved in its place or in `out`."""
    return _with(replace(bundle, recipe=recipe, golden=(*golden,)), _told(recipe, golden), notes, out)


def seal(part: Path, recipe: Recipe, parameters: int, provenance: Provenance, golden: Sequence[Golden]) -> None:
    """Write both cards, the model's and that of all files there are, and force everything to disk."""
    (part / MODEL_CARD).write_text(model_card(recipe, parameters, provenance, golden), "utf-8")
    card = {
        "format": FORMAT,
        "family": recipe.model.family,
        "parameters": parameters,
        "provenance": provenance.model_dump(mode="json"),
        "files": {f.name: {"size": f.stat().st_size, "sha256": digest(f)} for f in sorted(part.iterdir())},
    }
    _write_json(part / CARD, {**card, "sha256": digest_of(card)})
    open_to_umask(part, part / CARD)
    for file in (*part.iterdir(), part):
        sync(file)


def _with(
    bundle: Bundle, files: Mapping[str, Write], notes: Mapping[str, object] = {}, out: Path | None = None
) -> Bundle:
    """The bundle with more files, or others in their place, and with these notes; saved where it is, or in `out`."""

    def write(part: Path) -> None:
        for other in bundle.files.keys() - files.keys():
            shutil.copyfile(bundle.path / other, part / other)
        for name, write_one in files.items():
            write_one(part / name)
        came = bundle.provenance.model_copy(update={"notes": {**bundle.provenance.notes, **notes}})
        seal(part, bundle.recipe, bundle.parameters, came, bundle.golden)

    _replace(out or bundle.path, write)
    return load(out or bundle.path)


def _told(recipe: Recipe, golden: Sequence[Golden]) -> dict[str, Write]:
    """How the files of a recipe and of golden sentences are written."""
    plainly = [g.model_dump(mode="json") for g in golden]
    return {
        RECIPE: lambda file: file.write_text(to_toml(recipe), encoding="utf-8"),
        GOLDEN: lambda file: _write_json(file, plainly),
    }


def check_place(path: Path) -> None:
    """Raises BundleError where something stands that is no bundle and no empty directory."""
    if path.exists() and not (path.is_dir() and ((path / CARD).exists() or not any(path.iterdir()))):
        raise BundleError(f"{path}: is in the way and is no bundle; move it, or choose another place for the bundle.")


def _replace(path: Path, write: Write) -> None:
    """Put a directory that `write` fills in the place of a bundle, or of nothing."""
    check_place(path)
    whole = path.resolve()  # "." and links have names of their own
    part: Path | None = None
    try:
        whole.parent.mkdir(parents=True, exist_ok=True)
        for left in whole.parent.glob(f".{whole.name}.*.part"):  # what a crash left behind
            shutil.rmtree(left, ignore_errors=True)
        part = Path(tempfile.mkdtemp(prefix=f".{whole.name}.", suffix=".part", dir=whole.parent))
        write(part)
        _rename(part, whole)
    except (OSError, SafetensorError) as error:
        kept = f" The bundle that was there before is untouched: {path}." if (path / CARD).exists() else ""
        raise BundleError(f"{path}: the bundle could not be saved: {_reason(error)}.{kept}") from error
    finally:
        if part is not None:
            shutil.rmtree(part, ignore_errors=True)


def _rename(part: Path, path: Path) -> None:
    """Put a whole new directory in the place of the old one; two renames, undone if anything fails."""
    old = earlier(path)
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


def _reason(error: Exception) -> str:
    """The error in words with a way out; safetensors tells a full disk only in its text."""
    text = str(error)
    number = getattr(error, "errno", None)
    if number in (errno.ENOSPC, errno.EDQUOT) or "os error 28" in text or "os error 122" in text:
        return "no space is left on the disk; free some, or choose another disk with --out"
    return getattr(error, "strerror", None) or text


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
