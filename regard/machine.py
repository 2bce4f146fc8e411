"""What else goes on on this machine, and what signals ask of this program."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


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


def free_memory() -> int:
    """Bytes of this machine that are free, as far as this process may use them."""
    free = 4 << 30  # where nothing is known
    with suppress(AttributeError, ValueError, OSError):  # half of what is installed
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    with suppress(OSError, ValueError, KeyError):  # Linux says what is free
        facts = dict(line.split(":") for line in Path("/proc/meminfo").read_text("ascii").splitlines())
        free = int(facts["MemAvailable"].split()[0]) * 1024
    group = Path("/sys/fs/cgroup")  # a container's limit, where it has one
    with suppress(OSError, ValueError):
        free = min(free, int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()))
    return free
