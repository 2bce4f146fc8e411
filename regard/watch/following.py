"""Watches runs while they go on: reads their logs, holds new checkpoints, and has them translated one at a time."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress

from regard import recipe as recipes
from regard.errors import NO_TORCH, RegardError
from regard.models import FAMILIES

from .log import Plain
from .results import hold, known, waiting
from .runs import Run, Saved
from .sentences import Sentence, keep, kept

SECONDS = 2.0
"""Between two looks at the runs."""
_TRIES = 2
_AT_ONCE = 8  # checkpoints that one process translates, since it takes seconds to begin
_TRANSLATING = 3600.0  # seconds after which a translation is given up
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


class Follower:
    """What is known of some runs, kept up to date by a thread; `close` ends it."""

    def __init__(
        self, runs: list[Run], *, translates: bool = True, sentences: tuple[Sentence, ...] = (), nice: int = 10
    ) -> None:
        """Without `translates` nothing is computed; without sentences those of the run are taken, or chosen.

        `nice` is how far what translates gives way to other programs. At 19 it would wait for most of an hour beside a
        training that keeps all cores busy; at 10 it has about a tenth of one of them.
        """
        self.runs, self.translates, self.sentences, self.nice = runs, translates, sentences, nice
        self.busy: dict[str, str] = {}
        """Of a run, by its name, the checkpoint that is being translated."""
        self.wrong: dict[str, str] = {}
        """Of a run, why its checkpoints cannot be translated."""
        self._tries: Counter[tuple[str, str]] = Counter()
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._work, name="regard-watching", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def close(self) -> None:
        """End the watching, and a translation that is being made."""
        self._closed.set()
        with suppress(OSError, AttributeError):
            if self._process is not None:
                self._process.terminate()
        if self._thread.is_alive():
            self._thread.join(10)
        for run in self.runs:
            run.close()

    # -- what is known -------------------------------------------------------------------------------------------------

    def news(self, number: int, generation: int, seen: dict[str, int]) -> Plain:
        """What a page that has seen so many events of each kind needs of a run; all of it in another generation."""
        run = self.runs[number]
        with self._lock:
            run.log.refresh()
            starts = seen if generation == run.log.generation else {}
            events = {kind: columns.since(max(0, starts.get(kind, 0))) for kind, columns in run.log.kinds.items()}
            return {**self._about(run), "generation": run.log.generation, "events": events}

    def whole(self, number: int, most: int) -> Plain:
        """All that is known of a run, with at most so many points of each curve."""
        run = self.runs[number]
        with self._lock:
            run.log.refresh()
            events = {kind: columns.thinned(most) for kind, columns in run.log.kinds.items()}
            samples = {saved.name: result for saved, result in known(run)}
            return {**self._about(run), "generation": 0, "events": events, "results": samples}

    def result(self, number: int, name: str) -> Plain | None:
        """What a checkpoint made of the sentences."""
        with self._lock:
            return next((result for saved, result in known(self.runs[number]) if saved.name == name), None)

    def _about(self, run: Run) -> Plain:
        on_disk = {saved.name: saved for saved in run.checkpoints()}
        results = {saved.name: (saved, result) for saved, result in known(run)} if run.exists else {}
        every = {**{name: saved for name, (saved, _) in results.items()}, **on_disk}
        order = sorted(every.values(), key=lambda saved: (saved.update, saved.name == "bundle"))
        checkpoints: list[Plain] = [
            {
                **saved.to_dict(),
                "on_disk": saved.name in on_disk,
                "translated": saved.name in results and "samples" in results[saved.name][1],
                "stamp": results[saved.name][1]["stamp"] if saved.name in results else None,
                "error": results[saved.name][1].get("error") if saved.name in results else None,
            }
            for saved in order
        ]
        busy, wrong = self.busy.get(run.name), self.wrong.get(run.name)
        return {**run.about(), "checkpoints": checkpoints, "translating": busy, "wrong": wrong}

    # -- translating ---------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while not self._closed.is_set():
            for run in self.runs:
                if self.translates and not self._closed.is_set():
                    self._translate_next(run)
            self._closed.wait(SECONDS)

    def _translate_next(self, run: Run) -> None:
        """Hold what is new, and have the oldest of it translated."""
        if left := self._left(run):
            self._run(run, left[:_AT_ONCE])

    def _left(self, run: Run) -> list[Saved]:
        if not run.exists or run.name in self.wrong:
            return []
        try:
            if reason := _why_not(run):
                self.wrong[run.name] = reason
                return []
            with self._lock:
                run.log.refresh()
                if self.sentences and kept(run) != self.sentences:
                    keep(run, self.sentences)
                hold(run)
                return [saved for saved in waiting(run) if self._tries[run.name, saved.name] < _TRIES]
        except (OSError, RegardError) as error:  # a recipe that is being written, a full disk: looked at again
            self.busy.pop(run.name, None)
            self._tries[run.name, "?"] += 1
            if self._tries[run.name, "?"] > 30:
                self.wrong[run.name] = str(error)
            return []

    def _run(self, run: Run, some: list[Saved]) -> None:
        """A process of its own: training is hardly slowed, memory is given back, and what fails fails alone."""
        saved, names = some[0], [each.name for each in some]
        self._tries[run.name, saved.name] += 1  # of the first, which the process begins with
        self.busy[run.name] = saved.name
        place = [str(run.path), str(run.cache)]
        command = [sys.executable, "-m", "regard.watch.translating", *place, str(self.nice), *names]
        said = ""
        try:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, **_ONE_THREAD, "CUDA_VISIBLE_DEVICES": ""},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
            )
            said = self._said(self._process, run, names)
            code = self._process.returncode
        except OSError as error:
            code, said = 1, str(error)
        finally:
            self.busy.pop(run.name, None)
        if code and not self._closed.is_set() and self._tries[run.name, saved.name] >= _TRIES:
            if "No module named 'torch'" in said:
                self.wrong[run.name] = NO_TORCH.format("Translating by checkpoints")
            else:
                last = said.strip().splitlines()[-1:] or [f"exit code {code}"]
                self.wrong[run.name] = f"{saved.name}: could not be translated ({last[0][:300]})"

    def _said(self, process: subprocess.Popen[str], now: Run, names: list[str]) -> str:
        """What a process said of its failure, when it has ended; what is new meanwhile is held."""
        end = time.monotonic() + _TRANSLATING
        while True:
            try:
                return process.communicate(timeout=SECONDS)[1]
            except subprocess.TimeoutExpired:
                if time.monotonic() > end:
                    process.kill()
                    process.communicate()
                    return "it took too long"
            done = {file.stem for file in (now.cache / "samples").glob("*.json")}
            self.busy[now.name] = next((name for name in names if name not in done), names[-1])
            for run in self.runs:
                with self._lock, suppress(OSError):
                    if run.exists and run.name not in self.wrong:
                        hold(run)

    def finish(self) -> None:
        """Translate all that waits, in this thread."""
        for run in self.runs:
            while self.translates and not self._closed.is_set() and (left := self._left(run)):
                self._run(run, left[:_AT_ONCE])


def _why_not(run: Run) -> str | None:
    """Why a run's checkpoints have no translations; None: they have."""
    recipe = recipes.load(run.path / "recipe.toml")
    kind = FAMILIES[recipe.model.family].kind
    if kind in ("encoder-decoder", "mask-predictor"):
        return None
    return f"a {recipe.model.family} model does not translate; its curves and checkpoints are shown."
