"""Checkpoints: everything needed to go on exactly, saved so that a crash at any moment leaves the last whole one.

A checkpoint is a directory: `tensors.safetensors`, and `state.json` with the tensors' SHA-256. It is written beside its
place, forced to disk, and renamed into place; a directory without a valid `state.json` is never taken for one.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from regard.errors import CheckpointError

__all__ = ["Checkpoint", "digest", "latest", "load", "save", "sync", "write_durably"]

_VERSION = 1


@dataclass(frozen=True)
class Checkpoint:
    """Tensors by name, and the plain values that go with them."""

    tensors: dict[str, Tensor]
    state: dict[str, Any]


def sync(path: Path) -> None:
    """Force a file or a directory to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_durably(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write a safetensors file beside its place, force it to disk and rename it into place."""
    part = path.with_name(path.name + ".part")
    try:
        save_file({k: v.detach().contiguous() for k, v in tensors.items()}, part)
        sync(part)
        part.replace(path)
        sync(path.parent)
    except (OSError, SafetensorError) as error:
        part.unlink(missing_ok=True)
        raise CheckpointError(
            f"{path}: could not be saved ({error}); the checkpoints are whole. Free some space and go on with --resume"
        ) from error


def save(directory: Path, name: str, checkpoint: Checkpoint, keep: int) -> Path:
    """Save under `directory/name`, then remove all but the newest `keep`; on failure the old ones are untouched."""
    directory.mkdir(parents=True, exist_ok=True)
    part, place = directory / f"{name}.part", directory / name
    for left in directory.glob("*.part"):  # what a crash left behind
        shutil.rmtree(left, ignore_errors=True)
    try:
        part.mkdir()
        tensors = part / "tensors.safetensors"
        save_file({k: v.detach().contiguous() for k, v in checkpoint.tensors.items()}, tensors)
        state = {"version": _VERSION, "sha256": digest(tensors), "state": checkpoint.state}
        (part / "state.json").write_text(json.dumps(state, indent=1), encoding="utf-8")
        for path in (tensors, part / "state.json", part):
            sync(path)
        if place.exists():
            shutil.rmtree(place)
        part.rename(place)
        sync(directory)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(part, ignore_errors=True)
        raise CheckpointError(
            f"{place}: could not be saved ({error}); the checkpoints before it are whole. "
            "Free some space and go on with --resume"
        ) from error
    for old in _all(directory)[:-keep]:
        shutil.rmtree(old, ignore_errors=True)
    return place


def _all(directory: Path) -> list[Path]:
    """Finished checkpoints, oldest first; names sort by number."""
    return sorted(p for p in directory.glob("update-*") if not p.name.endswith(".part"))


def latest(directory: Path) -> Path | None:
    """The newest checkpoint, or None."""
    found = _all(directory)
    return found[-1] if found else None


def load(path: Path) -> Checkpoint:
    """Read a checkpoint back; damage is an error that names the file."""
    try:
        held = json.loads((path / "state.json").read_text(encoding="utf-8"))
        tensors = path / "tensors.safetensors"
        if held["version"] != _VERSION:
            raise CheckpointError(f"{path}: checkpoint version {held['version']}, this Regard reads {_VERSION}")
        if digest(tensors) != held["sha256"]:
            raise CheckpointError(
                f"{tensors}: not the file that was saved (its SHA-256 differs); "
                f"remove {path} to resume from the one before"
            )
        return Checkpoint(load_file(tensors), held["state"])
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise CheckpointError(
            f"{path}: damaged checkpoint ({error}); remove it to resume from the one before"
        ) from error
