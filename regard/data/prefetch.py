"""Batches made ready in a thread while those before them are learnt from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from queue import Queue
from threading import Event, Thread

from .batches import Batch, Batches

_Item = tuple[Batch, dict[str, int], int] | BaseException
"""A batch with the position and the epoch of the next, or what went wrong."""


class Prefetcher:
    """The same batches in the same order; `position` and `epoch` tell of the next one handed out, not of the thread's.

    `depth` is how many may wait. The thread starts with the first batch and ends with `close` or the process.
    """

    def __init__(self, batches: Batches, depth: int = 16) -> None:
        self._batches, self._depth = batches, depth
        self._stop: Event | None = None
        self._ready: Queue[_Item] = Queue()
        self._position, self._epoch = batches.position(), batches.epoch

    @property
    def epoch(self) -> int:
        """The epoch of the next batch, counted from 0."""
        return self._epoch

    def position(self) -> dict[str, int]:
        """Where the next batch is, as `Batches.position`."""
        return dict(self._position)

    def seek(self, position: Mapping[str, int]) -> None:
        """Go on from a position, as `Batches.seek`."""
        self.close()
        self._batches.seek(position)
        self._position, self._epoch = self._batches.position(), self._batches.epoch

    def close(self) -> None:
        """End the thread; the next batch is still the one that `position` tells of."""
        if self._stop is not None:
            self._stop.set()
            while self._thread.is_alive():
                while not self._ready.empty():
                    self._ready.get_nowait()
                self._thread.join(0.01)
            self._stop = None
            self._batches.seek(self._position)

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if self._stop is None:
            self._stop, self._ready = Event(), Queue(self._depth)
            self._thread = Thread(target=self._make, args=(self._stop, self._ready), daemon=True)
            self._thread.start()
        item = self._ready.get()
        if isinstance(item, BaseException):
            self._stop = None
            raise item
        batch, self._position, self._epoch = item
        return batch

    def _make(self, stop: Event, ready: Queue[_Item]) -> None:
        try:
            while not stop.is_set():
                batch = next(self._batches)
                ready.put((batch, self._batches.position(), self._batches.epoch))
        except BaseException as error:  # it belongs to whoever waits for the batch
            ready.put(error)
