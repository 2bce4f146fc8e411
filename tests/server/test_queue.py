"""What the server's queue takes together, and that nobody waits for ever."""

from __future__ import annotations

import time
from collections import deque

import pytest
from serving import BUNDLES

import regard
from regard.search.table import Options
from regard.server.limits import Refused
from regard.server.queue import Queue, _Item
from regard.tasks.translate import Translator
from regard.tasks.translation import Translation


class Waiting(Queue):
    """A queue whose threads take nothing, to see what they would."""

    def _work(self) -> None:
        pass


@pytest.fixture(scope="module")
def translator() -> Translator:
    return regard.load(BUNDLES / "transformer")


def put(queue: Queue, translator: Translator, *lengths: int, options: Options | None = None) -> None:
    """A request of lines that have so many letters, which nobody waits for."""
    until = time.monotonic() + 60
    queue._requests.append(deque(_Item("a" * length, translator, options or Options(), until) for length in lengths))
    queue._waiting += len(lengths)


def taken(queue: Queue) -> list[int]:
    return [len(item.line) for item in queue._taken()]


def test_a_long_request_does_not_hold_up_a_short_one(translator: Translator) -> None:
    queue = Waiting(1000)
    put(queue, translator, *[5] * 600)
    put(queue, translator, 4)
    first = taken(queue)
    assert len(first) < 600
    assert 4 in [*first, *taken(queue)]


def test_other_options_are_another_batch(translator: Translator) -> None:
    queue = Waiting(100)
    put(queue, translator, 1, 2)
    put(queue, translator, 3, options=Options(n_best=2))
    assert (taken(queue), taken(queue)) == ([1, 2], [3])


def test_two_threads_give_what_the_translator_gives(translator: Translator) -> None:
    queue, lines = Queue(1000), ["abc de " * (1 + n % 9) for n in range(200)]
    found: list[Translation] = queue.translate(translator, lines, Options(), time.monotonic() + 60)
    queue.close()
    assert found == translator.translate(lines)
    assert queue.waiting == 0


def test_what_is_too_much_is_too_many_requests_and_what_stops_is_unavailable(translator: Translator) -> None:
    queue = Waiting(2)
    put(queue, translator, 1, 2)
    with pytest.raises(Refused) as full:
        queue.translate(translator, ["abc"], Options(), time.monotonic() + 60)
    queue.close()
    with pytest.raises(Refused) as stopping:
        queue.translate(translator, ["abc"], Options(), time.monotonic() + 60)
    assert (full.value.status, stopping.value.status) == (429, 503)
