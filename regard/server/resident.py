"""The memory that stays with a server: what its C library (glibc) keeps of what was freed."""

from __future__ import annotations

import ctypes
import sys

_MOST_POOLS = -8  # M_ARENA_MAX of glibc's malloc.h


def share_pools() -> None:
    """Lets all threads take memory from two pools of the C library (glibc), where each would keep what it freed."""
    if set_option := getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None:
        set_option(_MOST_POOLS, 2)


def release_memory() -> None:
    """Gives memory that was freed back to the system, where the C library keeps it (glibc)."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None:
        trim(0)
