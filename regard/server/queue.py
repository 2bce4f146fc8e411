"""Sentences of many requests translated together: while some are computed, others gather, and then go as one batch."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from regard.errors import RegardError
from regard.kernels.build import default_threads, threads_at_most
from regard.search.table import Options
from regard.tasks.translate import Translator
from regard.tasks.translation import Translation

from .limits import Refused

MOST_TOGETHER = 128
"""Sentences of one call: the decoder fills up what is done, so more would only let others wait."""
FEWEST_TOGETHER = 8
"""Fewer are not shared out between the two that compute."""
_TOO_LONG = "The translation takes too long; send less text at a time"


@dataclass
class _Item:
    line: str
    translator: Translator
    options: Options
    until: float
    """By the monotonic clock; what has not begun by then is not begun."""
    done: Future[Translation] = field(default_factory=Future)


class Queue:
    """Lines that wait for their translator, and two threads that have them translated.

    One alone has the engine spread its batch over all cores. Where more waits, each takes half of it and of the cores:
    while one's answers go out and the next lines come in, the other computes, and neither waits for a core that the
    requests themselves keep busy. The requests take turns: each has its lines translated a batch at a time, so that a
    document does not hold up a sentence.
    """

    def __init__(self, most_waiting: int) -> None:
        self._most, self._waiting = most_waiting, 0
        self._requests: deque[deque[_Item]] = deque()
        self._change = threading.Condition()
        self._open = True
        self.batches = 0
        """How many calls were made, and `lines` were translated in them."""
        self.lines = 0
        self._computing = 0
        names = [f"regard-translating-{number}" for number in range(min(2, default_threads()))]
        self._threads = [threading.Thread(target=self._work, name=name, daemon=True) for name in names]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """Lines that have not begun."""
        return self._waiting

    def translate(
        self, translator: Translator, lines: Sequence[str], options: Options, until: float
    ) -> list[Translation]:
        """What `translator.translate` gives, together with what others ask for. `until` is by the monotonic clock.

        Raises what the translator raises; Refused: 429 where too much waits already, 503 where the server stops, 504
        where the time is over.
        """
        items = deque(_Item(line, translator, options, until) for line in lines)
        with self._change:
            if not self._open:
                raise Refused(503, "The server is stopping")
            if self._waiting + len(items) > self._most and self._waiting:
                raise Refused(429, f"Too much is waiting: {self._waiting} sentences; try again in a moment")
            self._waiting += len(items)
            mine = list(items)
            if items:
                self._requests.append(items)
                self._change.notify()
        try:
            return [item.done.result(max(until - time.monotonic(), 0.0) + 1.0) for item in mine]
        except TimeoutError:
            raise Refused(504, _TOO_LONG) from None
        finally:
            for item in mine:  # of a request that failed nothing more is begun
                item.until = 0.0

    def close(self) -> None:
        """Takes nothing more, finishes what was taken, and stops."""
        with self._change:
            self._open = False
            self._change.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while batch := self._next():
            lines = [item.line for item in batch]
            try:
                with threads_at_most(self._cores()):
                    _answer(batch, lines)
            except BaseException as error:  # the thread must live on, whatever was asked for
                for item in batch:
                    if not item.done.done():
                        item.done.set_exception(error)
            with self._change:
                self._computing -= 1

    def _cores(self) -> int:
        """How many of them a batch that begins now may have."""
        threads = default_threads()
        return threads if self._computing == 1 and not self._waiting else max(1, threads // 2)

    def _next(self) -> list[_Item]:
        """The lines that are translated next: of one translator and one set of options, from all requests in turn."""
        with self._change:
            batch: list[_Item] = []
            while not batch:
                while not self._requests:
                    if not self._open:
                        return []
                    self._change.wait()
                batch = self._taken()
            self._computing += 1
            self.batches, self.lines = self.batches + 1, self.lines + len(batch)
            if self._requests:
                self._change.notify()
            return batch

    def _taken(self) -> list[_Item]:
        batch: list[_Item] = []
        others: deque[deque[_Item]] = deque()
        most = min(MOST_TOGETHER, max(FEWEST_TOGETHER, -(-self._waiting // len(self._threads))))
        share = max(1, most // len(self._requests))
        while self._requests and len(batch) < most:
            items = self._requests.popleft()
            of_this = 0
            while items and of_this < share:
                if items[0].until < time.monotonic():
                    self._waiting -= 1
                    items.popleft().done.set_exception(Refused(504, _TOO_LONG))
                elif batch and not _same(items[0], batch[0]):
                    break
                else:
                    self._waiting -= 1
                    batch.append(items.popleft())
                    of_this += 1
            if items:
                others.append(items)
        self._requests.extend(others)
        return batch


def _same(one: _Item, other: _Item) -> bool:
    return one.translator is other.translator and one.options == other.options


def _answer(batch: list[_Item], lines: list[str]) -> None:
    translator, options = batch[0].translator, batch[0].options
    try:
        for item, found in zip(batch, translator.translate(lines, options), strict=True):
            item.done.set_result(found)
    except RegardError as error:
        if len(batch) == 1:
            batch[0].done.set_exception(error)
            return
        for item in batch:  # one line's fault is that line's alone
            _answer([item], [item.line])
