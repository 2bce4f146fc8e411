"""Sentences of many requests translated together.

A sentence that asks for nothing but its translation joins the search that is running (`running.py`). Others gather
while something is computed, and then go as one batch. Where there are both, each kind has half of the time.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from regard.errors import RegardError
from regard.tasks.options import Options
from regard.tasks.translate import Translator
from regard.tasks.translation import Translation

from .limits import Refused
from .running import Hypotheses, Running, runs, translation_of

MOST_TOGETHER = 128
"""Sentences of one call: the decoder fills up what is done, so more would only let others wait."""
_TOO_LONG = "The translation takes too long; send less text at a time"


@dataclass
class _Item:
    line: str
    translator: Translator
    options: Options
    until: float
    """By the monotonic clock; what has not begun by then is not begun."""
    ids: list[int] | None = None
    """Of a line that joins the running search, and is then answered with its hypotheses."""
    done: Future[Translation | Hypotheses] = field(default_factory=Future)


Requests = deque[deque[_Item]]


class Queue:
    """Lines that wait for their translator, and the thread that has them translated.

    One thread computes, since the engine spreads a batch over all cores by itself. The requests take turns: each has
    its lines translated a batch at a time, so that a document does not hold up a sentence.
    """

    def __init__(self, most_waiting: int) -> None:
        self._most, self._waiting = most_waiting, 0
        self._joining: Requests = deque()
        self._batching: Requests = deque()
        self._running: dict[Translator, Running[_Item]] = {}
        self._owed = 0.0
        """Seconds that the running searches had more than the batches, while there were both."""
        self._change = threading.Condition()
        self._open = True
        self.batches = 0
        """How many calls of the engine were made: batches, and steps of running searches."""
        self.lines = 0
        """How many lines were begun."""
        self._thread = threading.Thread(target=self._work, name="regard-translating", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Lines that have not begun."""
        return self._waiting

    def translate(
        self, translator: Translator, lines: Sequence[str], options: Options, until: float
    ) -> list[Translation]:
        """What `translator.translate` gives, together with what others ask for. `until` is by the monotonic clock.

        Raises what the translator raises; Refused: 503 where too much waits already or the server stops, 504 where the
        time is over.
        """
        mine = [_Item(line, translator, options, until) for line in lines]
        joins = runs(translator, options)
        if joins:
            for item, ids in zip(mine, translator.encode(lines, from_=options.from_, to=options.to), strict=True):
                item.ids = ids
        items = deque(item for item in mine if item.ids != [])  # a line without text needs no translation
        with self._change:
            if not self._open:
                raise Refused(503, "The server is stopping")
            if self._waiting + len(items) > self._most and self._waiting:
                raise Refused(503, f"Too much is waiting: {self._waiting} sentences; try again in a moment")
            self._waiting += len(items)
            if items:
                (self._joining if joins else self._batching).append(items)
                self._change.notify()
        try:
            return [_answered(item) for item in mine]
        except TimeoutError:
            raise Refused(504, _TOO_LONG) from None
        finally:
            for item in mine:  # of a request that failed nothing more is begun
                item.until = 0.0

    def close(self) -> None:
        """Takes nothing more, finishes what was taken, and stops."""
        with self._change:
            self._open = False
            self._change.notify()
        self._thread.join()

    # -- the thread that computes --------------------------------------------------------------------------------------

    def _work(self) -> None:
        while self._wait():
            start = time.monotonic()
            self._begin()
            for translator in [*self._running]:
                self._step(translator)
            between = time.monotonic()
            batch = self._taken() if self._owed >= 0.0 else []
            self._call(batch)
            self._owed += (between - start) - (time.monotonic() - between)
            if not (self._running and self._batching):
                self._owed = 0.0

    def _wait(self) -> bool:
        """Waits for something to do; False where nothing will come any more."""
        with self._change:
            while not (self._joining or self._batching or self._running):
                if not self._open:
                    return False
                self._change.wait()
            return True

    def _begin(self) -> None:
        """Lets waiting lines join the searches of their translators, one of each request in turn, where there is room.

        A translator that was replaced is forgotten with its last line.
        """
        begun: list[_Item] = []
        with self._change:
            full: Requests = deque()
            while self._joining:
                items = self._joining.popleft()
                if _is_over(items[0]):
                    self._waiting -= 1
                    items.popleft()
                elif self._room(items[0].translator, begun) > 0:
                    self._waiting -= 1
                    begun.append(items.popleft())
                else:
                    full.append(items)
                    continue
                if items:
                    self._joining.append(items)
            self._joining = full
        for item in begun:
            try:
                assert item.ids is not None
                if item.translator not in self._running:
                    self._running[item.translator] = Running(item.translator)
                self._running[item.translator].add(item, item.ids)
                self.lines += 1
            except BaseException as error:
                item.done.set_exception(error)

    def _room(self, translator: Translator, begun: Sequence[_Item]) -> int:
        running = self._running.get(translator)
        room = MOST_TOGETHER if running is None else running.free
        return room - sum(item.translator is translator for item in begun)

    def _step(self, translator: Translator) -> None:
        running = self._running[translator]
        try:
            self.batches += 1
            for item, found in running.step():
                item.done.set_result(found)
        except BaseException as error:  # the thread must live on
            for item in running.lines:
                item.done.set_exception(error)
            del self._running[translator]
        else:
            if not running.lines:
                del self._running[translator]

    def _call(self, batch: list[_Item]) -> None:
        if not batch:
            return
        self.batches, self.lines = self.batches + 1, self.lines + len(batch)
        try:
            _answer(batch, [item.line for item in batch])
        except BaseException as error:  # the thread must live on, whatever was asked for
            for item in batch:
                if not item.done.done():
                    item.done.set_exception(error)

    def _taken(self) -> list[_Item]:
        """The lines that are translated next: of one translator and one set of options, from all requests in turn."""
        batch: list[_Item] = []
        with self._change:
            others: Requests = deque()
            share = max(1, MOST_TOGETHER // max(len(self._batching), 1))
            while self._batching and len(batch) < MOST_TOGETHER:
                items = self._batching.popleft()
                of_this = 0
                while items and of_this < share:
                    if _is_over(items[0]):
                        items.popleft()
                    elif batch and not _same(items[0], batch[0]):
                        break
                    else:
                        batch.append(items.popleft())
                        of_this += 1
                    self._waiting -= 1
                if items:
                    others.append(items)
            self._batching.extend(others)
        return batch


def _is_over(item: _Item) -> bool:
    """Whether a line's time is over before it has begun; it is answered so."""
    if item.until >= time.monotonic():
        return False
    item.done.set_exception(Refused(504, _TOO_LONG))
    return True


def _answered(item: _Item) -> Translation:
    if item.ids == []:
        return Translation("")
    found = item.done.result(max(item.until - time.monotonic(), 0.0) + 1.0)
    return found if isinstance(found, Translation) else translation_of(item.translator, item.ids or [], found)


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
