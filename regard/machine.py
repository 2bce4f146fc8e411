"""What this machine has and does: files that outlast a crash, other programs, free memory, and signals to stop."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any


def sync(path: Path) -> None:
    """Force a file or a directory to disk; not on Windows, which wants it written to."""
    if sys.platform == "win32":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def atomic_rename(part: Path, path: Path) -> None:
    """Give a whole file its name so that it survives a power cut: its contents first, then the name."""
    sync(part)
    os.replace(part, path)
    sync(path.parent)


def open_to_umask(folder: Path, like: Path) -> None:
    """Give a new folder and its files the modes that the umask allows, which `like`, a plain file of ours, has.

    Folders that `mkdtemp` made and files that safetensors wrote are otherwise for their owner alone.
    """
    mode = like.stat().st_mode & 0o777
    for file in folder.iterdir():
        file.chmod(mode)
    folder.chmod(mode | (mode & 0o444) >> 2)


def write_atomically(path: Path, text: str) -> None:
    """Write a text file so that a crash at any moment leaves the old one, or the new one, whole."""
    part = path.with_name(path.name + ".part")
    try:
        part.write_text(text, encoding="utf-8")
        atomic_rename(part, path)
    finally:
        part.unlink(missing_ok=True)


def lock(file: int, *, wait: bool = False) -> None:
    """Lock an open file until it is closed; raises BlockingIOError if another process has, OSError where none can."""
    if sys.platform == "win32":
        raise OSError("Windows locks no files in this way")
    import fcntl

    fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Whether this process alone is inside with this lock file, which is made and removed; a killed one is not inside.

    On a file system without locks everybody is let in.
    """
    with path.open("a", encoding="utf-8") as file:
        try:
            lock(file.fileno())
            free = path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat())
        except BlockingIOError:
            free = False
        except OSError:
            free = True
        try:
            yield free
        finally:
            if free and sys.platform != "win32":  # where an open file cannot be removed
                path.unlink(missing_ok=True)


@contextmanager
def alone_in(folder: Path) -> Iterator[bool]:
    """Wait until no other process builds in this folder, which is locked itself; false if that cannot be told."""
    with ExitStack() as stack:
        try:
            handle = os.open(folder, os.O_RDONLY)  # Windows opens no directories
            stack.callback(os.close, handle)
            lock(handle, wait=True)
            alone = True
        except OSError:
            alone = False
        yield alone


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    import hashlib  # which takes milliseconds to load, and `import regard` loads this file

    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def stopping(ask: Callable[[], None]) -> Iterator[None]:
    """While inside, Ctrl-C and SIGTERM call this in the place of what they do otherwise."""
    before: dict[signal.Signals, Any] = {}
    with suppress(ValueError):  # not the main thread: signals are the caller's business
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, lambda number, frame: ask())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def is_busy() -> bool:
    """Whether other programs want the cores now, and do not for a moment only: where some do, two more looks follow."""
    for wait in (0.0, 0.001, 0.001):
        time.sleep(wait)
        try:
            with open("/proc/loadavg", encoding="ascii") as load:
                others = int(load.read().split()[3].partition("/")[0]) - 1  # this program is one
        except (OSError, ValueError, IndexError):
            return False
        if others <= (os.cpu_count() or 1) // 4:
            return False
    return True


def free_memory(root: Path = Path("/")) -> int:
    """Bytes of this machine that are free, as far as this process may use them."""
    free = 4 << 30  # where nothing is known
    with suppress(AttributeError, ValueError, OSError):  # half of what is installed
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    with suppress(OSError, ValueError, KeyError):  # Linux says what is free
        facts = dict(line.split(":") for line in (root / "proc/meminfo").read_text("ascii").splitlines())
        free = int(facts["MemAvailable"].split()[0]) * 1024
    group = root / "sys/fs/cgroup"  # a container's limit, where it has one; files that are kept in memory give way
    with suppress(OSError, ValueError):
        parts = map(str.split, (group / "memory.stat").read_text("ascii").splitlines())
        kept = sum(int(part[1]) for part in parts if part[0] in ("active_file", "inactive_file"))
        free = min(free, int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()) + kept)
    return free
