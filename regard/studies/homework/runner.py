"""The other process: loads a student's file, calls its functions, and writes each result as a line of JSON.

`python -P -m regard.studies.homework.runner JOB RESULTS`. The job says which file, which calls, and how much memory.
A line is written before a call begins and when it ends, so that whoever reads them knows where an endless loop or a
crash was.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from .values import decoded, encoded, holds_tensors

Write = Callable[[dict[str, object]], None]


def limit_memory(more: int) -> None:
    """Let this process take so many bytes more than it has; where the system knows no such limit, nothing happens."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[5])  # data and stack
    except (ImportError, OSError, IndexError):
        return
    resource.setrlimit(resource.RLIMIT_DATA, (pages * resource.getpagesize() + more,) * 2)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 28,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def said(error: BaseException, file: str) -> dict[str, object]:
    """What went wrong: the error's kind and words, and the last line of the student's file that it passed."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    if isinstance(error, SyntaxError):
        line, words = error.lineno, error.msg
    else:
        words = str(error)
    return {"kind": type(error).__name__, "words": words[:500], "line": line}


def load(file: str, write: Write) -> dict[str, object] | None:
    """What the student's file defines, or None where it cannot be read or run, which is written."""
    names: dict[str, object] = {"__name__": "homework", "__file__": file}
    try:
        text = Path(file).read_bytes()
        exec(compile(text, file, "exec", dont_inherit=True), names)
    except BaseException as error:
        write({"failed": said(error, file)})
        return None
    return names


def call(names: dict[str, object], asked: dict[str, object], file: str) -> dict[str, object]:
    """What one call gives, or how it went wrong, and which arguments it wrote into."""
    function = names.get(str(asked["function"]))
    try:
        if asked.get("by"):
            module, _, runs = str(asked["by"]).partition(":")
            return {"value": encoded(getattr(import_module(module), runs)(names))}
        if not callable(function):
            return {"missing": True}
        arguments = {key: decoded(value) for key, value in asked["arguments"].items()}  # type: ignore[attr-defined]  # it is JSON's
        before = {key: encoded(value) for key, value in arguments.items()}
        given = copy.copy(arguments)
        value = encoded(function(**given))
        changed = [key for key, was in before.items() if encoded(arguments[key]) != was]
        return {"value": value, "changed": changed}
    except BaseException as error:
        return {"error": said(error, file)}


def main(job: str, results: str) -> None:
    """Do the calls of a job."""
    asked = json.loads(Path(job).read_text("utf-8"))
    if asked["torch"] or any(holds_tensors(each["arguments"]) for each in asked["calls"]):
        import torch

        torch.set_num_threads(1)
    with open(results, "a", encoding="utf-8") as out:

        def write(record: dict[str, object]) -> None:
            out.write(json.dumps(record) + "\n")
            out.flush()

        write({"ready": True})
        limit_memory(asked["memory"])
        names = load(asked["file"], write)
        if names is None:
            return
        if asked["given"]:  # model answers in the place of functions that are known to be wrong
            answers: dict[str, object] = {"__name__": "answers"}
            exec(asked["answers"], answers)
            names.update({name: answers[name] for name in asked["given"]})
        write({"loaded": True})
        for number, each in enumerate(asked["calls"]):
            write({"begins": number})
            write({"ends": number, **call(names, each, asked["file"])})


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
