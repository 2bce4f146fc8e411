"""What else goes on on this machine, and what this program gives back to it."""

from __future__ import annotations

import ctypes
import os
import time


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


def release_memory() -> None:
    """Gives memory that was freed back to the system, where the C library keeps it (glibc)."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None:
        trim(0)
