"""How much memory this process holds, and the most that it held since it was last asked to forget (Linux).

Where the system does not let a process begin its peak anew (/proc/self/clear_refs), a thread looks every half
millisecond: it may miss a block that is held for a shorter time, of any system alike.
"""

from __future__ import annotations

import ctypes
import gc
import time
from contextlib import suppress
from pathlib import Path
from threading import Thread

__all__ = ["forget", "held", "most"]


def held() -> int:
    """Bytes of memory resident now."""
    return _status("VmRSS")


class _Watch(Thread):
    """Looks at the memory held, over and over."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.seen = 0

    def run(self) -> None:
        while True:
            self.seen = max(self.seen, held())
            time.sleep(5e-4)


_watch: _Watch | None = None


def most() -> int:
    """The most bytes resident since the last `forget`, or since the process began."""
    return _status("VmHWM") if _watch is None else max(_watch.seen, held())


def forget() -> bool:
    """Give freed memory back to the system and begin `most` anew; True."""
    global _watch
    gc.collect()
    with suppress(OSError, AttributeError):  # glibc only
        ctypes.CDLL(None).malloc_trim(0)
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        if _watch is None:
            _watch = _Watch()
            _watch.start()
        _watch.seen = held()
    return True


def _status(key: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {key}")
