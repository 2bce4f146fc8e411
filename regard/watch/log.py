"""A run's log as columns of numbers, read while it grows.

`log.jsonl` has an event a line. Its last line may be half written; a run that is resumed writes the whole file anew.
Whatever in it is no event is passed over: a log may be cut off or damaged, and the page shows what there is.
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path

Plain = dict[str, object]  # values as they stand in JSON
Number = float | None  # None where an event has no such value, or one that is not finite
MOST_POINTS = 40_000
"""Of each kind of event. When there are more, every second of them is dropped."""
_MOST_KEYS = 64
_MOST_BYTES = 1 << 20  # of a line, and of the part that is still being written
_PIECE = 1 << 22  # bytes read at once


class Columns:
    """The values of one kind of event, a list for each key, all of one length."""

    def __init__(self) -> None:
        self.values: dict[str, list[Number]] = {}
        self.length = 0

    def add(self, event: Plain) -> None:
        """Add the numbers of an event."""
        numbers = {key: value for key, value in event.items() if isinstance(value, int | float)}
        numbers = {key: value for key, value in numbers.items() if not isinstance(value, bool)}
        for key in numbers:
            if key not in self.values and len(self.values) < _MOST_KEYS and len(key) <= _MOST_KEYS:
                self.values[key] = [None] * self.length
        for key, column in self.values.items():
            column.append(_finite(numbers.get(key)))
        self.length += 1

    def thin(self) -> None:
        """Drop every second event, but never the first and the last."""
        for column in self.values.values():
            column[:] = [*column[:-1:2], column[-1]]
        self.length = len(next(iter(self.values.values()), []))

    def since(self, start: int) -> dict[str, list[Number]]:
        """What came after the first `start` events."""
        return {key: column[start:] for key, column in self.values.items()}

    def thinned(self, most: int) -> dict[str, list[Number]]:
        """At most about `most` events, evenly spread, the last among them."""
        step = max(1, -(-self.length // most))
        kept = [*range(0, self.length, step)]
        if self.length and kept[-1] != self.length - 1:
            kept.append(self.length - 1)
        return {key: [column[i] for i in kept] for key, column in self.values.items()}

    def last(self) -> dict[str, Number]:
        """The values of the last event."""
        return {key: column[-1] for key, column in self.values.items() if column}


class Log:
    """What stands in a run's log so far, by the kind of event."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.kinds: dict[str, Columns] = {}
        self.generation = 0
        """Goes up whenever points that were given out before no longer hold."""
        self.identity = ""
        """What tells this run from another one in the same directory: a digest of its first event."""
        self.written = 0.0
        """When the file was last written, in seconds since 1970; 0 without a file."""
        self._file: tuple[int, int] | None = None
        self._offset = 0
        self._rest = b""

    def refresh(self) -> None:
        """Read what was written since the last time."""
        try:
            with self.path.open("rb") as file:
                about = self.path.stat()
                self.written = about.st_mtime
                if self._file != (about.st_dev, about.st_ino) or about.st_size < self._offset:
                    self._forget()
                    self._file = (about.st_dev, about.st_ino)
                file.seek(self._offset)
                while piece := file.read(_PIECE):
                    self._offset += len(piece)
                    *lines, self._rest = (self._rest + piece).split(b"\n")
                    self._rest = self._rest[:_MOST_BYTES]
                    for line in lines:
                        self._read(line)
        except OSError:  # there is no log yet, or it is being replaced; the next look finds it
            if self._file is not None and not self.path.exists():
                self._forget()

    def _forget(self) -> None:
        if self._file is not None:
            self.generation += 1
        self.kinds, self.identity, self._file, self._offset, self._rest = {}, "", None, 0, b""

    def _read(self, line: bytes) -> None:
        try:
            event = json.loads(line)
            kind = event["event"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return
        if type(kind) is not str or type(event.get("update")) is not int:
            return
        self.identity = self.identity or hashlib.sha256(line).hexdigest()[:16]
        if kind not in self.kinds and len(self.kinds) >= _MOST_KEYS:
            return
        columns = self.kinds.setdefault(kind, Columns())
        columns.add(event)
        if columns.length > MOST_POINTS:
            columns.thin()
            self.generation += 1


def _finite(value: float | int | None) -> Number:
    """Digits enough to draw; None for what is not finite."""
    if value is None or not math.isfinite(value):
        return None
    return value if type(value) is int and abs(value) < 2**53 else float(f"{value:.7g}")
