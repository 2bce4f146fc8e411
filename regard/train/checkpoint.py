"""Checkpoints: everything needed to go on exactly, saved so that a crash at any moment leaves the last whole one.

A checkpoint is a directory: `tensors.safetensors`, and `state.json` with its SHA-256. It is written beside its place,
forced to disk, and renamed into place; a directory without a valid `state.json` is never taken for one.

Where weights are sharded each process writes a file of its own, with its rows of every tensor; end to end, in the order
of their names, they are the whole tensors, whatever number of processes reads them. (PyTorch's own distributed
checkpoints pickle: their metadata on disk, or, in the safetensors format, the plans that the processes exchange.)
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from regard.disk import atomic_rename, digest, sync
from regard.errors import CheckpointError

from .parallel import Parallel

__all__ = ["Checkpoint", "latest", "load", "save", "write_durably"]

_VERSION = 2


@dataclass(frozen=True)
class Checkpoint:
    """Tensors by name, and the plain values that go with them."""

    tensors: Mapping[str, Tensor]
    state: dict[str, Any]


def write_durably(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write a safetensors file beside its place, force it to disk and rename it into place."""
    part = path.with_name(path.name + ".part")
    try:
        save_file({k: v.detach().contiguous() for k, v in tensors.items()}, part)
        atomic_rename(part, path)
    except (OSError, SafetensorError) as error:
        part.unlink(missing_ok=True)
        raise CheckpointError(
            f"{path}: could not be saved ({error}); the checkpoints are whole. Free some space and go on with --resume"
        ) from error


def save(directory: Path, name: str, checkpoint: Checkpoint, keep: int, parallel: Parallel | None = None) -> Path:
    """Save under `directory/name`, then remove all but the newest `keep`; on failure the old ones are untouched.

    All processes of a run must call it; the first one writes, or each its shards.
    """
    parallel = parallel or Parallel()
    directory.mkdir(parents=True, exist_ok=True)
    part, place = directory / f"{name}.part", directory / name
    try:
        if parallel.main:
            for left in directory.glob("*.part"):  # what a crash left behind
                shutil.rmtree(left, ignore_errors=True)
            part.mkdir()
        parallel.barrier()
        tensors = checkpoint.tensors
        files = ["tensors.safetensors"]
        if parallel.sharded:
            tensors = _own(tensors, parallel)
            files = [f"tensors-{i + 1:05d}-of-{parallel.world:05d}.safetensors" for i in range(parallel.world)]
        written = ""
        if parallel.main or parallel.sharded:
            file = part / files[parallel.rank]
            save_file({k: v.detach().contiguous() for k, v in tensors.items()}, file)
            sync(file)
            written = digest(file)
        digests = parallel.digests(written) if parallel.sharded else [written]
        if parallel.main:
            state = {
                "version": _VERSION,
                "sha256": dict(zip(files, digests, strict=True)),
                "state": checkpoint.state,
            }
            (part / "state.json").write_text(json.dumps(state, indent=1), encoding="utf-8")
            for path in (part / "state.json", part):
                sync(path)
            if place.exists():
                shutil.rmtree(place)
            part.rename(place)
            sync(directory)
    except (OSError, SafetensorError) as error:
        if parallel.main:
            shutil.rmtree(part, ignore_errors=True)
        raise CheckpointError(
            f"{place}: could not be saved ({error}); the checkpoints before it are whole. "
            "Free some space and go on with --resume"
        ) from error
    if parallel.main:
        for old in _all(directory)[:-keep]:
            shutil.rmtree(old, ignore_errors=True)
    parallel.barrier()
    return place


def _own(tensors: Mapping[str, Tensor], parallel: Parallel) -> dict[str, Tensor]:
    """What this process writes: its rows of sharded tensors; what every process holds alike, the first one writes."""
    found = {}
    for name, tensor in tensors.items():
        local: Any = getattr(tensor, "to_local", None)
        if local is not None and len(rows := local()):
            found[name] = rows
        elif local is None and parallel.main:
            found[name] = tensor
    return found


def _all(directory: Path) -> list[Path]:
    """Finished checkpoints, oldest first; names sort by number."""
    return sorted(p for p in directory.glob("update-*") if not p.name.endswith(".part"))


def latest(directory: Path) -> Path | None:
    """The newest checkpoint, or None."""
    found = _all(directory)
    return found[-1] if found else None


class _Whole(Mapping[str, Tensor]):
    """The tensors of one or more files, read when asked for; rows that lie in several files are put end to end."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._places: dict[str, list[Any]] = {}
        for path in paths:
            file: Any = safe_open(path, "pt")
            for name in file.keys():  # noqa: SIM118  (it is no dict)
                self._places.setdefault(name, []).append(file)

    def __getitem__(self, name: str) -> Tensor:
        rows = [file.get_tensor(name) for file in self._places[name]]
        return rows[0] if len(rows) == 1 else torch.cat(rows)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def load(path: Path) -> Checkpoint:
    """Read a checkpoint back, its tensors whole; damage is an error that names the file."""
    try:
        held = json.loads((path / "state.json").read_text(encoding="utf-8"))
        if held["version"] != _VERSION:
            raise CheckpointError(f"{path}: checkpoint version {held['version']}, this Regard reads {_VERSION}")
        for name, known in held["sha256"].items():
            if digest(path / name) != known:
                raise CheckpointError(
                    f"{path / name}: not the file that was saved (its SHA-256 differs); "
                    f"remove {path} to resume from the one before"
                )
        return Checkpoint(_Whole([path / name for name in sorted(held["sha256"])]), held["state"])
    except (OSError, ValueError, KeyError, AttributeError, SafetensorError) as error:
        raise CheckpointError(
            f"{path}: damaged checkpoint ({error}); remove it to resume from the one before"
        ) from error
