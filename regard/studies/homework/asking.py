"""A student's functions asked in a process of their own, which may hang, crash, exit or print without harm to us."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from .exercise import Exercise
from .values import decoded, encoded

MEMORY = 2 << 30
"""Bytes that a student's file may take beyond what Python and PyTorch take themselves."""
_START = 300.0
"""Seconds that a process may need until it has loaded Python and PyTorch, on a busy machine."""


@dataclass(frozen=True)
class Failure:
    """How a call, or the reading of a file, went wrong."""

    kind: str
    words: str = ""
    line: int | None = None


@dataclass(frozen=True)
class Outcome:
    """What one call gave."""

    value: object = None
    failure: Failure | None = None
    changed: tuple[str, ...] = ()
    """Arguments that the function wrote into."""


@dataclass(frozen=True)
class Asked:
    """One call: a function and its arguments, or what runs a training with the functions."""

    function: str
    arguments: object = field(default_factory=dict)
    by: str = ""


def calls_of(exercise: Exercise) -> list[Asked]:
    """The calls of all checks, in their order; the training last."""
    found = [Asked(check.function, dict(case)) for check in exercise.checks for case in check.cases]
    return [*found, Asked("", {}, exercise.trained.by)] if exercise.trained else found


@dataclass(frozen=True)
class Helped:
    """Functions of the file that model answers stand in for, and the text that has them."""

    names: tuple[str, ...] = ()
    answers: str = ""


def ask(
    file: Path, calls: list[Asked], seconds: float, memory: int = MEMORY, helped: Helped | None = None
) -> list[Outcome] | Failure:
    """What each call gave; a Failure where the file cannot even be loaded.

    After a call that ends the process (too slow, a crash, an exit), the function's other calls are left out, and those
    of other functions are made in a new process.
    """
    found: dict[int, Outcome] = {}
    left = list(range(len(calls)))
    while left:
        records, end = _run(file, [calls[number] for number in left], (seconds, memory), helped or Helped())
        begun = -1
        for record in records:
            with suppress(Exception):  # the student's code may have written there: what cannot be read is no result
                if "failed" in record:
                    return Failure(**record["failed"])  # type: ignore[arg-type]  # it is JSON's
                begun = min(_number(record, "begins", begun), len(left) - 1)
                if "ends" in record:
                    found[left[_number(record, "ends", 0)]] = _outcome(record)
        open_ = [number for number in left if number not in found]
        if not open_:
            break
        if begun < 0 or left[begun] in found:
            return end or Failure("exit")
        stuck = calls[left[begun]].function
        for number in open_:
            if calls[number].function == stuck:
                found[number] = Outcome(failure=end or Failure("exit"))
        left = [number for number in left if number not in found]
    return [found[number] for number in range(len(calls))]


def _number(record: dict[str, object], key: str, default: int) -> int:
    value = record.get(key, default)
    assert isinstance(value, int)
    return value


def _outcome(record: dict[str, object]) -> Outcome:
    if record.get("missing"):
        return Outcome(failure=Failure("missing"))
    if "error" in record:
        return Outcome(failure=Failure(**record["error"]))  # type: ignore[arg-type]  # it is JSON's
    changed = record.get("changed") or ()
    return Outcome(decoded(record["value"]), changed=tuple(changed))  # type: ignore[arg-type]  # it is JSON's


def _run(
    file: Path, calls: list[Asked], limits: tuple[float, int], helped: Helped
) -> tuple[list[dict[str, object]], Failure | None]:
    """The lines that a process wrote, and how it ended if it did not end by itself."""
    with tempfile.TemporaryDirectory(prefix="homework-", ignore_cleanup_errors=True) as folder:
        job, results = Path(folder, "job.json"), Path(folder, "results.jsonl")
        asked = [{"function": c.function, "arguments": _arguments(c), "by": c.by} for c in calls]
        trains = any(c.by for c in calls)
        seconds, memory = limits
        written = {"file": str(file.resolve()), "calls": asked, "memory": memory, "torch": trains}
        written |= {"given": helped.names, "answers": helped.answers}
        job.write_text(json.dumps(written), "utf-8")
        results.touch()
        command = [sys.executable, "-P", "-m", f"{__package__}.runner", str(job), str(results)]
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            end = _waited(process, results, seconds)
        finally:
            _end(process)
        return list(_lines(results)), end


def _arguments(call: Asked) -> dict[str, object]:
    assert isinstance(call.arguments, dict)
    return {key: encoded(value) for key, value in call.arguments.items()}


def _environment() -> dict[str, str]:
    """This process's environment, with the package that is running, and one thread."""
    package = str(Path(__file__).resolve().parents[3])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    own = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    return {**os.environ, **own}


def _waited(process: subprocess.Popen[bytes], results: Path, seconds: float) -> Failure | None:
    """None where the process ends by itself and well; the clock starts when it has loaded what it needs."""
    limit, started = time.monotonic() + _START, False
    while True:
        with suppress(subprocess.TimeoutExpired):
            code = process.wait(timeout=0.02)
            return None if code == 0 else Failure("ended", str(code))
        if not started and results.stat().st_size:
            limit, started = time.monotonic() + seconds, True
        if time.monotonic() > limit:
            return Failure("slow", f"{seconds:g}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and whatever it has started."""
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _lines(results: Path) -> Iterator[dict[str, object]]:
    """Its whole lines that are JSON objects; the last may be cut off."""
    for line in results.read_text("utf-8", errors="replace").split("\n"):
        with suppress(ValueError):
            record = json.loads(line)
            if isinstance(record, dict):
                yield record
