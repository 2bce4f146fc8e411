"""Shards encoded by several processes at once: one reads the corpus, each worker encodes the shards it is given.

Text goes to a worker in a file beside the shard that it becomes; what is said over the pipe is JSON. Workers end when
whoever started them does, however that came about.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import connection, get_context, resource_tracker
from pathlib import Path
from typing import Any

from regard import errors
from regard.data.shards import Encoder, Raw
from regard.settings.data import Filters
from regard.text.config import Order
from regard.text.tokenizer import Tokenizer

# A worker has the next shard waiting while it encodes one; more would only fill the disk with text.
_WAITING = 2


def cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def encode(encoder: Encoder, raws: Iterable[Raw], workers: int, advance: Callable[[int], None]) -> list[dict[str, Any]]:
    """What `Encoder.encode` returns for each shard, in order; by at most `workers` processes at a time.

    Raises what it would raise, and DataError if a worker ends before its work.
    """
    made: dict[int, dict[str, Any]] = {}
    with _crew() as crew:
        for number, raw in enumerate(raws):
            _hear(crew, made, advance, 0)
            if len(crew) < workers and all(worker.waiting for worker in crew):
                crew.append(_Worker(encoder))
            while all(worker.waiting == _WAITING for worker in crew):
                _hear(crew, made, advance, None)
            min(crew, key=lambda worker: worker.waiting).give(number, raw)
        while any(worker.waiting for worker in crew):
            _hear(crew, made, advance, None)
    return [made[number] for number in sorted(made)]


class _Worker:
    """A worker as the one who started it knows it."""

    def __init__(self, encoder: Encoder) -> None:
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.folder = encoder.folder
        self.waiting = 0
        models = (encoder.source.to_bytes(), encoder.target.to_bytes())
        plain = (theirs, str(encoder.folder), *models, encoder.target.order, encoder.filters.model_dump_json())
        self.process = context.Process(target=_work, args=plain, daemon=True)
        resource_tracker.ensure_running()  # it would let Ctrl-C through again if it were started only below
        # Ctrl-C is sent to workers too, but it is ours to end them; what is held back here stays so in them.
        held_back = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held_back)
        theirs.close()

    def give(self, number: int, raw: Raw) -> None:
        _text(self.folder, number).write_text(raw.to_json(), encoding="ascii")
        with suppress(ConnectionError):  # a worker that is gone is noticed when it is listened to
            self.pipe.send_bytes(str(number).encode())
        self.waiting += 1

    def end(self) -> None:
        self.pipe.close()
        self.process.terminate()
        self.process.join()

    def why_it_ended(self) -> errors.DataError:
        self.process.join()
        code = self.process.exitcode or 0
        how = f"was killed by signal {-code}, often for want of memory" if code < 0 else f"ended with code {code}"
        return errors.DataError(f"a worker process {how}, before its lines were encoded; try again with fewer workers.")


@contextmanager
def _crew() -> Iterator[list[_Worker]]:
    crew: list[_Worker] = []
    try:
        yield crew
    finally:
        for worker in crew:
            worker.end()


def _hear(
    crew: list[_Worker], made: dict[int, dict[str, Any]], advance: Callable[[int], None], wait: int | None
) -> None:
    """Take in all that workers have said, after waiting at most `wait` seconds (None: for ever) for the first of it."""
    while ready := connection.wait([worker.pipe for worker in crew], wait):
        for worker in (worker for worker in crew if worker.pipe in ready):
            try:
                said = json.loads(worker.pipe.recv_bytes())
            except (EOFError, ConnectionError):
                raise worker.why_it_ended() from None
            if "encoded" in said:
                advance(said["encoded"])
            elif "number" in said:
                made[said["number"]] = said["entry"]
                worker.waiting -= 1
            elif "errno" in said:
                raise OSError(said["errno"], said["strerror"], said["filename"])
            else:
                raise getattr(errors, said["error"])(said["message"])
        wait = 0


def _work(pipe: Any, folder: str, source: bytes, target: bytes, order: Order, filters: str) -> None:
    """The life of a worker: encodes the shards that it is told the numbers of, until nobody is there to tell."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    learnt = Tokenizer.from_bytes(source)
    other = (learnt if target == source else Tokenizer.from_bytes(target)).in_order(order)
    encoder = Encoder(Path(folder), learnt, other, Filters.model_validate_json(filters), threads=1)

    def say(**what: Any) -> None:
        pipe.send_bytes(json.dumps(what).encode())

    with suppress(EOFError, ConnectionError):
        while True:
            number = int(pipe.recv_bytes())
            text = _text(encoder.folder, number)
            try:
                raw = Raw(**json.loads(text.read_text("ascii")))
                text.unlink()
                say(number=number, entry=encoder.encode(number, raw, lambda count: say(encoded=count)))
            except errors.RegardError as error:
                say(error=type(error).__name__, message=str(error))
            except ConnectionError:
                raise
            except OSError as error:
                name = os.fspath(error.filename) if error.filename is not None else None
                say(errno=error.errno, strerror=error.strerror, filename=name)


def _text(folder: Path, number: int) -> Path:
    """Where the text of a shard waits to be encoded."""
    return folder / f"{number:05d}.json"
