"""Which files of the package a command goes through: `python tools/way.py translate BUNDLE FILE`.

A file counts if the body of one of its functions runs; what runs while modules are imported does not count. Of a
training run it also says which files lie between a batch and the weights that it changes: those whose functions run in
the main thread from the end of one optimiser's step to the end of the next, the second one to the third by default.
With `--json` the answer is JSON, on the standard error as ever.
"""

from __future__ import annotations

import inspect
import json
import runpy
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

PACKAGE = "regard"
ROOT = str(Path(__file__).resolve().parent.parent / PACKAGE)
WINDOW = 2
"""Between this step of the optimiser and the next the way from a batch to changed weights is counted."""


class Counter:
    """What is called whenever a function is entered or left; it keeps the files in which that happened."""

    def __init__(self) -> None:
        self.until_first_update: set[str] = set()
        self.all: dict[str, dict[str, int]] = {}
        self.from_batch_to_weights: set[str] = set()
        self.steps = 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "return" and code.co_name == "step" and "/torch/optim/" in code.co_filename:
            self.steps += _is_whole_step(frame)
        if event != "call" or not code.co_flags & inspect.CO_OPTIMIZED or not code.co_filename.startswith(ROOT):
            return
        if _while_importing(frame):
            return
        file = str(Path(code.co_filename).relative_to(ROOT))
        self.all.setdefault(file, {})[code.co_qualname] = _lines(code)
        if self.steps == 0:
            self.until_first_update.add(file)
        if self.steps == WINDOW and threading.current_thread() is threading.main_thread():
            self.from_batch_to_weights.add(file)


def _is_whole_step(frame: FrameType) -> bool:
    """Whether this is an optimiser's step, and neither a scheduler's nor one that another step has called."""
    above = frame.f_back
    while above is not None:
        if above.f_code.co_name == "step" and "/torch/optim/" in above.f_code.co_filename:
            return False
        above = above.f_back
    return True


def _while_importing(frame: FrameType) -> bool:
    above = frame.f_back
    while above is not None:
        code = above.f_code
        if code.co_name == "<module>" and code.co_filename.startswith(ROOT) and "__main__" not in code.co_filename:
            return True
        above = above.f_back
    return False


def _lines(code: CodeType) -> int:
    return len({line for _, _, line in code.co_lines() if line})


def follow(words: list[str]) -> tuple[int, dict[str, Any]]:
    """Run the command; its exit code, and where it went."""
    counter = Counter()
    sys.argv = [PACKAGE, *words]
    code = 0
    threading.setprofile(counter)
    sys.setprofile(counter)
    try:
        runpy.run_module(PACKAGE, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]  # typeshed forgets that None ends it
    return code, {
        "files": {file: sum(functions.values()) for file, functions in sorted(counter.all.items())},
        "until_first_update": sorted(counter.until_first_update) if counter.steps else [],
        "from_batch_to_weights": sorted(counter.from_batch_to_weights),
        "loaded": sorted(name for name in sys.modules if name.partition(".")[0] == PACKAGE),
        "heavy": [name for name in ("torch", "transformers", "matplotlib", "rich") if name in sys.modules],
    }


def main() -> None:
    as_json, words = sys.argv[1:2] == ["--json"], sys.argv[1:]
    sys.path.insert(0, str(Path(ROOT).parent))
    code, way = follow(words[as_json:])
    if as_json:
        print(json.dumps(way), file=sys.stderr)
        sys.exit(code)
    for file, lines in way["files"].items():
        print(f"{lines:6}  {file}", file=sys.stderr)
    print(
        f"{len(way['files'])} files, {sum(way['files'].values())} lines of code in functions that ran; "
        f"{len(way['loaded'])} modules of {PACKAGE} loaded, and {', '.join(way['heavy']) or 'nothing heavy'}",
        file=sys.stderr,
    )
    for key, what in (("until_first_update", "to the first update"), ("from_batch_to_weights", "an update")):
        if way[key]:
            print(f"{what}, {len(way[key])} files: {', '.join(way[key])}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
