"""How much memory this process holds, and the most that it held since it was last asked to forget (Linux)."""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress
from pathlib import Path

__all__ = ["forget", "held", "most"]


def held() -> int:
    """Bytes of memory resident now."""
    return _status("VmRSS")


def most() -> int:
    """The most bytes resident since the process began, or since the last `forget` that was allowed."""
    return _status("VmHWM")


def forget() -> bool:
    """Give freed memory back to the system and begin `most` anew; whether the system allows it."""
    gc.collect()
    with suppress(OSError, AttributeError):  # glibc only
        ctypes.CDLL(None).malloc_trim(0)
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


def _status(key: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {key}")
