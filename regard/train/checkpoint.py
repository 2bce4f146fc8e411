"""Checkpoints: everything needed to go on exactly, saved so that a crash at any moment leaves the last whole one.

A checkpoint is a directory: `tensors.safetensors`, and `state.json` with the SHA-256 of the tensors and of itself. It
is written under another name, forced to disk, and renamed; a directory without a valid `state.json` is never taken for
one.

Where weights are sharded each process writes a file of its own, with its rows of every tensor; end to end, in the order
of their names, they are the whole tensors, whatever number of processes reads them. (PyTorch's own distributed
checkpoints pickle: their metadata on disk, or, in the safetensors format, the plans that the processes exchange.)
"""

from __future__ import annotations

import hashlib
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
from regard.errors import CheckpointError, ParallelError, TrainingError

from .parallel import Parallel
from .progress import Event, Report

_VERSION = 3


@dataclass(frozen=True)
class Checkpoint:
    """Tensors by name, and the plain values that go with them."""

    tensors: Mapping[str, Tensor]
    state: Event
    path: Path | None = None
    """Where it was read."""


def write_durably(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write a safetensors file under another name, force it to disk and rename it; refuses what is not finite."""
    _check_finite(path, tensors, Parallel())
    part = path.with_name(path.name + ".part")
    try:
        save_file({k: v.detach().contiguous() for k, v in tensors.items()}, part)
        atomic_rename(part, path)
    except (OSError, SafetensorError) as error:
        part.unlink(missing_ok=True)
        raise CheckpointError(
            f"{path}: could not be saved ({error}); the checkpoints are whole. Free some space and go on with --resume"
        ) from error


def _check_finite(path: Path, tensors: Mapping[str, Tensor], parallel: Parallel) -> None:
    """Raises TrainingError, in every process, for tensors that are not finite in one of them."""
    wrong = next((n for n, t in tensors.items() if t.is_floating_point() and not bool(t.isfinite().all())), None)
    if any(parallel.sum(wrong is not None)):
        raise TrainingError(
            f"{path}: is not saved, since {wrong or 'a tensor of another process'} holds numbers that are not finite: "
            "training has diverged. Begin again with a lower train.learning_rate, a longer train.warmup or "
            "train.clip = 1.0; what was saved before is whole."
        )


def save(directory: Path, name: str, checkpoint: Checkpoint, keep: int, parallel: Parallel | None = None) -> Path:
    """Save under `directory/name`, then remove all but the newest `keep`; on failure the old ones are untouched.

    All processes of a run must call it; the first one writes, or each its shards.
    """
    parallel = parallel or Parallel()
    directory.mkdir(parents=True, exist_ok=True)
    part, path = directory / f"{name}.part", directory / name
    tensors = _own(checkpoint.tensors, parallel) if parallel.sharded else checkpoint.tensors
    _check_finite(path, tensors, parallel)
    try:
        if parallel.main:
            for left in directory.glob("*.part"):  # what a crash left behind
                shutil.rmtree(left, ignore_errors=True)
            part.mkdir()
        parallel.barrier()
        files = ["tensors.safetensors"]
        if parallel.sharded:
            files = [f"tensors-{i + 1:05d}-of-{parallel.world:05d}.safetensors" for i in range(parallel.world)]
        written = ""
        if parallel.main or parallel.sharded:
            file = part / files[parallel.rank]
            save_file({k: v.detach().contiguous() for k, v in tensors.items()}, file)
            sync(file)
            written = digest(file)
        digests = parallel.digests(written) if parallel.sharded else [written]
        if parallel.main:
            held = {"version": _VERSION, "sha256": dict(zip(files, digests, strict=True)), "state": checkpoint.state}
            state = {**held, "own_sha256": _digest_of(held)}
            (part / "state.json").write_text(json.dumps(state, indent=1), encoding="utf-8")
            for written_path in (part / "state.json", part):
                sync(written_path)
            if path.exists():
                shutil.rmtree(path)
            part.rename(path)
            sync(directory)
    except (OSError, SafetensorError) as error:
        if parallel.main:
            shutil.rmtree(part, ignore_errors=True)
        raise CheckpointError(
            f"{path}: could not be saved ({error}); the checkpoints before it are whole. "
            "Free some space and go on with --resume"
        ) from error
    if parallel.main:
        for old in _all(directory)[:-keep]:
            shutil.rmtree(old, ignore_errors=True)
    parallel.barrier()
    return path


def _digest_of(held: Event) -> str:
    """SHA-256 of plain values, however they were spaced when they were written."""
    return hashlib.sha256(json.dumps(held, sort_keys=True).encode()).hexdigest()


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


class _Whole(Mapping[str, Tensor]):
    """The tensors of one or more files, read when asked for; rows that lie in several files are put end to end."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._files: dict[str, list[Any]] = {}
        for path in paths:
            file: Any = safe_open(path, "pt")
            for name in file.keys():  # noqa: SIM118  (it is no dict)
                self._files.setdefault(name, []).append(file)

    def __getitem__(self, name: str) -> Tensor:
        rows = [file.get_tensor(name) for file in self._files[name]]
        return rows[0] if len(rows) == 1 else torch.cat(rows)

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def load(path: Path) -> Checkpoint:
    """Read a checkpoint back, its tensors whole; damage is an error that names the file."""
    try:
        held = json.loads((path / "state.json").read_text(encoding="utf-8"))
        if held["version"] != _VERSION:
            raise CheckpointError(f"{path}: checkpoint version {held['version']}, this Regard reads {_VERSION}")
        own = held.pop("own_sha256")
        if own != _digest_of(held):
            raise CheckpointError(
                f"{path / 'state.json'}: not the file that was saved (its SHA-256 differs); "
                f"remove {path} to resume from the one before"
            )
        for name, known in held["sha256"].items():
            if digest(path / name) != known:
                raise CheckpointError(
                    f"{path / name}: not the file that was saved (its SHA-256 differs); "
                    f"remove {path} to resume from the one before"
                )
        return Checkpoint(_Whole([path / name for name in sorted(held["sha256"])]), held["state"], path)
    except (OSError, ValueError, KeyError, AttributeError, SafetensorError) as error:
        raise CheckpointError(
            f"{path}: damaged checkpoint ({error}); remove it to resume from the one before"
        ) from error


def newest_whole(directory: Path, parallel: Parallel, report: Report) -> Checkpoint | None:
    """The newest checkpoint that is whole; None where there is none at all. All processes of a run must ask.

    Newer ones that are damaged are renamed and reported. Raises CheckpointError where no other one is left.
    """
    paths = _all(directory)
    newest = 1 + int(paths[-1].name.rpartition("-")[2]) if paths else 0
    if parallel.sum(newest) != [newest * parallel.world]:
        raise ParallelError(
            f"{directory}: not every process sees the same newest checkpoint; "
            "keep the run's directory on a file system that all machines share."
        )
    while paths:
        path = paths.pop()
        try:
            found = load(path)
        except CheckpointError as error:
            parallel.barrier()  # nobody reads it any more
            if not paths:
                raise
            report({"event": "damaged", "checkpoint": str(path), "why": str(error), "instead": str(paths[-1])})
            if parallel.main:
                aside = path.with_name(f"damaged-{path.name}")
                shutil.rmtree(aside, ignore_errors=True)
                path.rename(aside)
        else:
            return found
    return None
