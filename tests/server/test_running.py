"""Lines that join a search while others are decoded become what they become alone."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from serving import BUNDLES

import regard
from regard.engine.decoding import Search
from regard.errors import KernelError
from regard.server.limits import Refused
from regard.server.queue import Queue
from regard.server.running import Running, runs, translation_of
from regard.tasks.engine import beam_of
from regard.tasks.options import Options
from regard.tasks.translate import Translator
from regard.tasks.translation import Translation
from regard.text.tokenizer import END


@pytest.fixture(scope="module")
def translator() -> Translator:
    return regard.load(BUNDLES / "transformer")


@pytest.fixture(scope="module")
def lines() -> list[str]:
    drawn = random.Random(7)
    return [
        " ".join("".join(drawn.choices("abcdefgh", k=drawn.randint(1, 5))) for _ in range(n % 7)) for n in range(150)
    ]


def test_joining_lines_are_as_those_of_one_call(translator: Translator, lines: list[str]) -> None:
    expected = translator.translate(lines)
    ids, running, found = translator.encode(lines), Running[int](translator), dict[int, Translation]()
    waiting = [i for i, each in enumerate(ids) if each]
    assert runs(translator, Options())
    while waiting or running.lines:
        for i in waiting[: min(running.free, random.Random(len(waiting)).randint(1, 9))]:
            running.add(i, ids[i])
            waiting.remove(i)
        found |= {i: translation_of(translator, ids[i], hypotheses) for i, hypotheses in running.step()}
    assert [found.get(i, Translation("")) for i in range(len(lines))] == expected


def test_the_queue_gives_what_the_translator_gives(translator: Translator, lines: list[str]) -> None:
    """Also while other requests want more than the translation, which goes batch by batch."""
    queue, asked = Queue(4096), [Options(alignment=True), Options(), Options()]
    expected = [translator.translate(lines, options) for options in asked]

    def ask(number: int) -> bool:
        start, which = number % 100, number % 3
        some = lines[start : start + 1 + number % 40]
        found = queue.translate(translator, some, asked[which], time.monotonic() + 60)
        return found == expected[which][start : start + len(some)]

    with ThreadPoolExecutor(24) as threads:
        assert all(threads.map(ask, range(120)))
    assert queue.waiting == 0
    queue.close()


def test_what_a_search_refuses_is_said_to_its_lines(
    translator: Translator, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue(4096)
    with monkeypatch.context() as patched:
        patched.setattr(Search, "step", lambda self: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            queue.translate(translator, lines[1:3], Options(), time.monotonic() + 60)
    assert queue.translate(translator, lines[1:3], Options(), time.monotonic() + 60) == translator.translate(lines[1:3])
    queue.close()
    with pytest.raises(Refused, match="stopping"):
        queue.translate(translator, lines, Options(), time.monotonic() + 60)


def test_a_line_whose_time_is_over_is_not_begun(
    translator: Translator, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, held, step = Queue(4096), threading.Event(), Search.step
    monkeypatch.setattr(Search, "step", lambda self: (held.wait(10), step(self))[1])
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(queue.translate, translator, lines[1:2], Options(), time.monotonic() + 60)
        late = threads.submit(queue.translate, translator, lines[2:4], Options(), time.monotonic() - 0.9)
        with pytest.raises(Refused, match="too long"):
            late.result()
        held.set()
        assert first.result() == translator.translate(lines[1:2])
    queue.close()
    assert queue.lines == 1


def test_what_cannot_join(translator: Translator) -> None:
    assert not runs(translator, Options(n_best=2))
    assert not runs(translator, Options(search={"beam": 2}))
    assert not runs(translator, Options(alignment=True))


@pytest.mark.parametrize(
    ("source", "limit", "message"), [([9999, END], 4, "9999"), ([5, END], 100_000, "100000"), ([], 4, "row 0")]
)
def test_a_source_that_cannot_be_added(translator: Translator, source: list[int], limit: int, message: str) -> None:
    config = translator.searching(Options())
    [decoder] = translator.backend(config).decoders
    search = Search(decoder, [[5, 6, END]], [8], beam_of(config))
    with pytest.raises(KernelError, match=message):
        search.add(source, limit)
    while search.step() < 1:
        pass
    assert search.found(0)
