"""Files that outlast a crash, and what tells one file from another; open to every room, as errors are."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

__all__ = ["atomic_rename", "digest", "sync"]


def sync(path: Path) -> None:
    """Force a file or a directory to disk."""
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


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
