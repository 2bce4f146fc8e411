"""What is known of a run from its directory: its log, its checkpoints, and whether it goes on."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from regard.errors import DataError

from .log import Columns, Log, Number, Plain

State = Literal["waiting", "running", "finished", "stopped"]
CHECKPOINT = re.compile(r"update-(\d{1,12})-(\d{1,12})")
_FRESH = 300.0  # seconds in which a run that cannot be asked counts as going on after it wrote its log
_NONE = Columns()


@dataclass(frozen=True)
class Saved:
    """A checkpoint, or the bundle that a run ended with."""

    name: str
    update: int
    path: Path | None  # None for one that was removed since
    time: float | None  # when it was saved, in seconds since 1970

    def to_dict(self) -> Plain:
        """Plain values for JSON."""
        return {"name": self.name, "update": self.update, "on_disk": self.path is not None, "time": self.time}


class Run:
    """A directory of training, which may not be there yet; nothing of it is changed but the folder for results."""

    def __init__(self, path: str | Path, cache: Path | None = None, name: str = "") -> None:
        self.path = Path(path)
        if self.path.exists() and not self.path.is_dir():
            raise DataError(f"{path}: is no directory; name the directory of a run, as `regard train --out` has it.")
        self.name = name or self.path.resolve().name
        self.log = Log(self.path / "log.jsonl")
        self._cache = cache
        self._temporary: tempfile.TemporaryDirectory[str] | None = None

    # -- where it is ---------------------------------------------------------------------------------------------------

    @property
    def cache(self) -> Path:
        """Where results are kept: `watch` in the run, or a temporary folder where nothing can be written there."""
        if self._cache is None:
            folder = self.path / "watch"
            try:
                folder.mkdir(exist_ok=True)
                writable = os.access(folder, os.W_OK)
            except OSError:
                writable = False
            if not writable:
                self._temporary = tempfile.TemporaryDirectory(prefix="regard-watch-")
                folder = Path(self._temporary.name)
            self._cache = folder
        return self._cache

    def close(self) -> None:
        """Remove what was kept in a temporary folder."""
        if self._temporary is not None:
            self._temporary.cleanup()

    @property
    def exists(self) -> bool:
        """Whether training has begun here."""
        return (self.path / "recipe.toml").is_file()

    # -- how far it is -------------------------------------------------------------------------------------------------

    def state(self) -> State:
        """Whether it goes on, has ended, or was stopped before its end."""
        if not self.exists:
            return "waiting"
        held = _is_held(self.path / ".lock")
        if held is None:
            held = (self.path / ".lock").exists() and time.time() - self.log.written < _FRESH
        if held:
            return "running"
        return "finished" if (self.path / "results.json").is_file() else "stopped"

    def events(self, kind: str) -> Columns:
        """What the log says of one kind of event."""
        return self.log.kinds.get(kind, _NONE)

    def checkpoints(self) -> list[Saved]:
        """Whole checkpoints on disk, oldest first, and the bundle."""
        found = []
        try:
            names = os.listdir(self.path / "checkpoints")
        except OSError:
            names = []
        for name in names:
            path = self.path / "checkpoints" / name
            if (parts := CHECKPOINT.fullmatch(name)) and (when := _time_of(path / "state.json")) is not None:
                found.append(Saved(name, int(parts[1]), path, when))
        if (when := _time_of(self.path / "bundle" / "bundle.json")) is not None:
            last = max([*self.log.kinds.get("train", _NONE).values.get("update", []), 0], key=lambda each: each or 0)
            found.append(Saved("bundle", int(last or 0), self.path / "bundle", when))
        return sorted(found, key=lambda each: (each.update, each.name == "bundle", each.name))

    def about(self) -> Plain:
        """What the page's table of runs says, as plain values for JSON."""
        train, validate = self.events("train"), self.events("validate")
        last: Mapping[str, Number] = train.last()
        scores = [key for key in validate.values if key not in ("update", "loss", "perplexity")]
        best = {key: _best(validate.values[key], key) for key in ("loss", *scores) if key in validate.values}
        return {
            "name": self.name,
            "state": self.state(),
            "last": last,
            "best": best,
            "max_updates": _max_updates(self.path / "recipe.toml"),
            "written": self.log.written,
        }


def named(paths: list[Path], cache: Path | None) -> list[Run]:
    """Runs with names that tell them apart: those of their folders, or as much of their paths as that takes."""
    if not paths:
        raise DataError("name at least one run: regard watch runs/first.")
    whole = [path.resolve() for path in paths]
    if len({*whole}) < len(whole):
        raise DataError("a run is named twice; name each once.")
    parts = 1
    most = max(len(path.parts) for path in whole)
    while len({path.parts[-parts:] for path in whole}) < len(whole) and parts < most:
        parts += 1
    return [
        Run(path, cache and cache / f"{real.name}-{_short(real)}", "/".join(real.parts[-parts:]))
        for path, real in zip(paths, whole, strict=True)
    ]


def _short(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:8]


def _best(column: list[Number], key: str) -> Number:
    known = [value for value in column if value is not None]
    lower = key == "loss" or key.endswith("perplexity")
    return (min if lower else max)(known) if known else None


def _max_updates(recipe: Path) -> int | None:
    """How long the run will be, as its recipe says, whatever version of Regard that is of."""
    import tomllib

    try:
        found = tomllib.loads(recipe.read_text("utf-8"))["train"]["max_updates"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return found if type(found) is int else None


def _time_of(file: Path) -> float | None:
    """When a file was written; None where there is none."""
    try:
        return file.stat().st_mtime
    except OSError:
        return None


def _is_held(lock: Path) -> bool | None:
    """Whether a process holds a lock file; None where that cannot be told.

    The kernel's table is read. Trying to take the lock instead would refuse a run that is just about to begin.
    """
    try:
        about = lock.stat()
    except OSError:
        return False
    try:
        table = Path("/proc/locks").read_text("ascii")
    except (OSError, ValueError):
        return None
    # Some file systems (btrfs, overlays) have another device number there, so the file's number must do.
    held = (place for line in table.splitlines() for place in line.split() if place.count(":") == 2)
    return any(place.endswith(f":{about.st_ino}") for place in held)


def read_json(path: Path, most: int = 64 << 20) -> object:
    """What a file of ours holds; None for one that is missing, too large or damaged."""
    try:
        return None if path.stat().st_size > most else json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
