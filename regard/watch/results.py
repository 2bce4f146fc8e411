"""What checkpoints made of the sentences, on disk: which results hold, which are missing, and how many are kept.

In the cache, `watch` in a run's directory, lie `sentences.json`, `samples/NAME.json` for each checkpoint, and `held/`:
names for the files of checkpoints that wait (hard links, which take no room), so that training may remove them.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import cast

from regard.machine import write_atomically

from .log import Plain
from .runs import CHECKPOINT, Run, Saved, read_json
from .sentences import digest_of, kept

MOST_KEPT = 200
"""Checkpoints of a run whose results are kept. When there are more, every second one of the older half is removed."""
_NEWEST = MOST_KEPT // 2
"""Of checkpoints on disk, no more are translated: what was removed for room must not be made again."""
_MOST_HELD = 4
"""Checkpoints that are kept from being removed while they wait. Each takes its room on disk until it is translated."""
_VERSION = 1
_CARDS = {"bundle": "bundle.json"}


@dataclass(frozen=True)
class Stamp:
    """What a result holds for."""

    run: str  # see `Log.identity`
    checkpoint: str  # when it was written, which its hard links have too
    sentences: str

    def fits(self, other: Stamp, *, gone: bool) -> bool:
        """Whether a result with the other stamp is one of this run and these sentences, and of this checkpoint.

        Of a checkpoint that is gone nothing can be asked.
        """
        same = self.run == other.run and self.sentences == other.sentences
        return same and (gone or self.checkpoint == other.checkpoint)


def stamp_of(run: Run, saved: Saved) -> Stamp:
    """What a result of this checkpoint must hold for now."""
    known = ""
    if saved.path is not None:
        with suppress(OSError):
            known = str((saved.path / _CARDS.get(saved.name, "state.json")).stat().st_mtime_ns)
    return Stamp(run.log.identity, known, digest_of(kept(run)))


def known(run: Run) -> list[tuple[Saved, Plain]]:
    """Every checkpoint with a result that holds, gone ones included, oldest first."""
    on_disk = {saved.name: saved for saved in _present(run)}
    found = []
    for file in (run.cache / "samples").glob("*.json"):
        try:
            result = _read(file, file.stat().st_mtime_ns)
        except OSError:
            continue
        saved = on_disk.get(file.stem) or _gone(file.stem)
        if saved is not None and _holds(run, saved, result):
            found.append((saved, cast(Plain, result)))
    return sorted(found, key=lambda each: (each[0].update, each[0].name == "bundle", each[0].name))


@lru_cache(maxsize=4 * MOST_KEPT)
def _read(file: Path, written: int) -> object:
    """A result as it was at that time."""
    return read_json(file)


def _gone(name: str) -> Saved | None:
    parts = CHECKPOINT.fullmatch(name)
    return Saved(name, int(parts[1]), None, None) if parts else None


def _holds(run: Run, saved: Saved, result: object) -> bool:
    if not isinstance(result, dict) or result.get("version") != _VERSION:
        return False
    try:
        stamp = Stamp(**result["stamp"])
    except (TypeError, KeyError):
        return False
    return stamp_of(run, saved).fits(stamp, gone=saved.path is None)


def waiting(run: Run) -> list[Saved]:
    """Checkpoints without a result, oldest first; those that are held count though training has removed them."""
    done = {saved.name for saved, _ in known(run)}
    return [saved for saved in _present(run)[-_NEWEST:] if saved.name not in done]


def _present(run: Run) -> list[Saved]:
    """Checkpoints that can be read: where training keeps them, or held."""
    found = {saved.name: saved for saved in run.checkpoints()}
    for path in (run.cache / "held").glob("update-*"):
        parts = CHECKPOINT.fullmatch(path.name)
        if parts and path.name not in found:
            found[path.name] = Saved(path.name, int(parts[1]), path, None)
    return sorted(found.values(), key=lambda each: (each.update, each.name == "bundle", each.name))


# -- holding -----------------------------------------------------------------------------------------------------------


def hold(run: Run) -> None:
    """Give checkpoints that wait a second name, so that they can be read when training has removed them."""
    folder = run.cache / "held"
    left = waiting(run)
    names = {saved.name for saved in left}
    for path in folder.glob("update-*"):
        if path.name not in names:
            shutil.rmtree(path, ignore_errors=True)
    held_now = sum(1 for _ in folder.glob("update-*"))
    for saved in left:
        if saved.path is None or saved.name == "bundle" or (folder / saved.name).exists() or held_now >= _MOST_HELD:
            continue
        held_now += _link(saved.path, folder / saved.name)


def _link(path: Path, target: Path) -> bool:
    """Hard links to a checkpoint's files; whether all of them could be made."""
    part = target.with_name(f"part-{target.name}")
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        for file in path.iterdir():
            os.link(file, part / file.name)
        part.rename(target)
    except OSError:  # removed meanwhile, or a file system without links: it is read where it lies, or not at all
        shutil.rmtree(part, ignore_errors=True)
        return False
    return True


@contextmanager
def held(run: Run, saved: Saved) -> Iterator[Path]:
    """Where a checkpoint can be read; it is let go of afterwards."""
    path = run.cache / "held" / saved.name
    try:
        yield path if path.exists() else saved.path or path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def write(run: Run, saved: Saved, stamp: Stamp, result: Plain) -> None:
    """Keep a result; where there are too many, every second one of the older half goes, but never the first."""
    folder = run.cache / "samples"
    folder.mkdir(parents=True, exist_ok=True)
    whole = {"version": _VERSION, "stamp": asdict(stamp), "name": saved.name, "update": saved.update, **result}
    write_atomically(folder / f"{saved.name}.json", json.dumps(whole, ensure_ascii=False))
    files = sorted(file for file in folder.glob("update-*.json"))
    if len(files) > MOST_KEPT:
        for file in files[1:-_NEWEST:2]:
            file.unlink(missing_ok=True)
