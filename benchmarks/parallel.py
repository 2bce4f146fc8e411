"""Train on several processes, kill some, go on with other numbers of them; hold losses and order against one process.

    python benchmarks/parallel.py

Everything goes through `torchrun -m regard train` (or `python -m regard train` for one process), on gloo and CPU, in
float32 (the curves also in bfloat16), without dropout, two batches to an update, with clipping, a moving average and
validation.

* **curves**: each kind (DDP, FSDP2) with each number of processes, against one process with the same global batch: the
  largest difference of a logged loss and of a dev loss, whether the batches were the same lines in
  the same order, and how often gradients were reduced.
* **kills**: a process drawn from a seed is killed (SIGKILL) after an update drawn from it; the run goes on from its
  last checkpoint with another number of processes, or as the other kind, to the end.
* **restarts**: the same, but `torchrun --max-restarts 1` goes on by itself.
* **stops**: SIGTERM to one process: all of them stop after the same update, with exit code 130 or, where torchrun was
  quicker, by its signal; and the run goes on.

Adam divides by the size of a gradient, so a difference in its last bit grows with every update, the faster the higher
the rate is; the recipe's rate is one at which fifty updates do not make a last bit a fifth digit. Exit code 1 if a loss
differs by more than 1e-5 (2e-2 in bfloat16), or the order at all.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

from record import RESULTS, circumstances, write

TOLERANCE = {"float32": 1e-5, "bfloat16": 2e-2}
"""Of a loss, in nats a token."""
PATIENCE = 900
"""Seconds until a run or a moment that does not come is an error."""

RECIPE = """
seed = 7

[data]
source = "{folder}/letters"
target = "{folder}/backwards"
valid_lines = 60
batch_tokens = 400
pool = 500
layout = "{layout}"

[text]
kind = "bpe"
size = 300
shrink = true

[model]
width = 32
heads = 4
feedforward = 64
encoder_layers = 2
decoder_layers = 2
dropout = 0.0

[train]
max_updates = {updates}
accumulate = 2
schedule = "inverse-sqrt"
learning_rate = 1e-3
warmup = 10
clip = 1.0
precision = "{precision}"
average = "ema"
ema_decay = 0.9
validate_every = 10
save_every = 5
log_every = 1

[search]
beam = 1
extra_length = 5
"""


@dataclass(frozen=True)
class Place:
    """How a run, or a part of it, is carried."""

    kind: str
    processes: int

    def __str__(self) -> str:
        return f"{self.kind} on {self.processes}"


# -- inside a process of a run -----------------------------------------------------------------------------------------


def watched(folder: Path, arguments: list[str]) -> int:
    """The command line, with every batch's lines, this process's number and its reductions written into a folder."""
    import torch.distributed as dist
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    from regard.apps.cli import main
    from regard.train import Trainer

    (folder / f"process-{os.environ.get('RANK', 0)}").write_text(str(os.getpid()))
    with (
        (folder / f"batches-{os.getpid()}").open("w") as batches,
        (folder / f"reduced-{os.getpid()}").open("w") as sums,
    ):
        # FSDP2 calls one or the other, as the version of PyTorch goes.
        scattering = "reduce_scatter_single" if hasattr(dist, "reduce_scatter_single") else "reduce_scatter_tensor"
        begin, backward, scatter = Trainer.__init__, Trainer._backward, getattr(dist, scattering)
        at = 0

        def count(*_: Any) -> None:
            sums.write(f"{at}\n")
            sums.flush()

        def hooked(state, bucket):  # type: ignore[no-untyped-def]  # PyTorch reads annotations
            count()
            return allreduce_hook(dist.group.WORLD, bucket)

        def scattered(*given: Any, **named: Any) -> Any:
            count()
            return scatter(*given, **named)

        def begun(self: Any, *given: Any, **named: Any) -> None:
            begin(self, *given, **named)
            if hasattr(self.step, "register_comm_hook"):
                self.step.register_comm_hook(None, hooked)

        def seen(self: Any, batch: Any, *part: int) -> float:
            nonlocal at
            at = self.progress.microstep
            batches.write(f"{at} {hashlib.sha256(batch.lines.tobytes()).hexdigest()}\n")
            batches.flush()
            return float(backward(self, batch, *part))

        Trainer.__init__, Trainer._backward = begun, seen  # type: ignore[method-assign]
        setattr(dist, scattering, scattered)
        return main(arguments)


# -- a run seen from outside -------------------------------------------------------------------------------------------


class Run:
    """A run in a directory: started, killed, gone on with."""

    def __init__(self, recipe: Path, out: Path) -> None:
        self.recipe, self.out = recipe, out
        self.folder = out.with_name(out.name + ".watched")
        self.folder.mkdir(parents=True)
        self.started = 0

    def start(self, place: Place, restarts: int = 0) -> subprocess.Popen[bytes]:
        """Start it, or go on with it, in a number of processes."""
        for old in self.folder.glob("process-*"):
            old.unlink()
        self.started += 1
        words = [str(Path(__file__)), "--watched", str(self.folder), "train", str(self.recipe), "--out", str(self.out)]
        words += ["--resume", "--set", f"train.parallel={place.kind}"]
        command = [sys.executable, *words]
        if place.processes > 1:
            torchrun = ["torch.distributed.run", "--standalone", f"--nproc-per-node={place.processes}"]
            command = [sys.executable, "-m", *torchrun, f"--max-restarts={restarts}", *words]
        with (self.folder / f"heard-{self.started}").open("wb") as heard:
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=heard, env=environment)

    def finish(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for its end, which must be a good one."""
        if process.wait(PATIENCE):
            said = (self.folder / f"heard-{self.started}").read_text("utf-8")
            raise RuntimeError(f"{self.out.name}: exit code {process.returncode}\n{said}")

    def strike(self, process: subprocess.Popen[bytes], update: int, rank: int, number: int) -> int:
        """Send a signal to one process once an update is in the log; returns the update then logged."""
        limit = time.monotonic() + PATIENCE
        while self._update() < update:
            if time.monotonic() > limit or process.poll() is not None:
                said = (self.folder / f"heard-{self.started}").read_text("utf-8")
                raise TimeoutError(f"{self.out.name}: update {update} did not come ({process.poll()})\n{said}")
            time.sleep(0.005)
        os.kill(int((self.folder / f"process-{rank}").read_text()), number)
        return self._update()

    def events(self, kind: str) -> dict[int, dict[str, Any]]:
        """The log's events of a kind by update."""
        found = {}
        with suppress(FileNotFoundError):
            for line in (self.out / "log.jsonl").read_text("utf-8").splitlines():
                with suppress(ValueError):  # it is being written
                    event = json.loads(line)
                    if event["event"] == kind:
                        found[event["update"]] = event
        return found

    def _update(self) -> int:
        return max(self.events("train"), default=0)

    def batches(self) -> dict[int, set[str]]:
        """What any process of any start has learnt from at each batch of the run."""
        found: dict[int, set[str]] = {}
        for path in self.folder.glob("batches-*"):
            for line in path.read_text().splitlines():
                at, lines = line.split()
                found.setdefault(int(at), set()).add(lines)
        return found

    def reductions(self) -> list[int]:
        """The batches, counted from 0, after which gradients were reduced: in each process, each time."""
        return [int(at) for path in self.folder.glob("reduced-*") for at in path.read_text().split()]


def compared(run: Run, reference: Run) -> dict[str, Any]:
    """How far a finished run is from the one on one process."""
    differences = {}
    for kind in ("train", "validate"):
        here, there = run.events(kind), reference.events(kind)
        if here.keys() != there.keys():
            raise RuntimeError(f"{run.out.name}: other updates in the log than on one process")
        differences[kind] = max(abs(here[u]["loss"] - there[u]["loss"]) for u in there)
    return {
        "largest_difference_of_a_loss": differences["train"],
        "largest_difference_of_a_dev_loss": differences["validate"],
        "same_batches_in_the_same_order": run.batches() == reference.batches(),
    }


def good(found: dict[str, Any]) -> bool:
    """Whether a comparison is as it must be."""
    tolerance = TOLERANCE[found["precision"]]
    losses = found["largest_difference_of_a_loss"], found["largest_difference_of_a_dev_loss"]
    return max(losses) <= tolerance and bool(found["same_batches_in_the_same_order"])


# -- the scenarios -----------------------------------------------------------------------------------------------------


class Scenarios:
    """Runs of one recipe, all held against one process's."""

    def __init__(self, folder: Path, layout: str, precision: str, updates: int) -> None:
        self.folder, self.updates, self.draw = folder, updates, random.Random(1)
        lines = [" ".join(self.draw.choices("abcdefghij", k=self.draw.randint(1, 9))) for _ in range(1500)]
        (folder / "letters").write_text("".join(f"{line}\n" for line in lines), "utf-8")
        (folder / "backwards").write_text("".join(f"{line[::-1]}\n" for line in lines), "utf-8")
        self.recipe = folder / "recipe.toml"
        self.recipe.write_text(
            RECIPE.format(folder=folder, layout=layout, precision=precision, updates=updates), "utf-8"
        )
        self.made = 0
        self.reference = self.new()
        self.reference.finish(self.reference.start(Place("ddp", 1)))

    def new(self) -> Run:
        self.made += 1
        return Run(self.recipe, self.folder / f"run-{self.made}")

    def _moment(self) -> int:
        return self.draw.randint(self.updates // 4, self.updates // 2)

    def curve(self, place: Place) -> dict[str, Any]:
        run = self.new()
        run.finish(run.start(place))
        reduced = run.reductions()
        each = len(reduced) / place.processes / self.updates
        return {
            "run": str(place),
            **compared(run, self.reference),
            "reductions_an_update": each,
            "reduced_only_after_the_last_batch_of_an_update": all(at % 2 == 1 for at in reduced),
        }

    def kill(self, first: Place, then: Place) -> dict[str, Any]:
        run, rank = self.new(), self.draw.randrange(first.processes)
        process = run.start(first)
        update = run.strike(process, self._moment(), rank, signal.SIGKILL)
        process.wait(PATIENCE)
        run.finish(run.start(then))
        found = {"run": str(first), "killed_process": rank, "after_update": update, "gone_on_with": str(then)}
        return {**found, **compared(run, self.reference)}

    def restart(self, place: Place) -> dict[str, Any]:
        run, rank = self.new(), self.draw.randrange(place.processes)
        process = run.start(place, restarts=1)
        update = run.strike(process, self._moment(), rank, signal.SIGKILL)
        run.finish(process)
        return {"run": str(place), "killed_process": rank, "after_update": update, **compared(run, self.reference)}

    def stop(self, place: Place, then: Place) -> dict[str, Any]:
        run, rank = self.new(), self.draw.randrange(place.processes)
        process = run.start(place)
        run.strike(process, self._moment(), rank, signal.SIGTERM)
        process.wait(PATIENCE)
        # torchrun ends with a code of its own, and tells those of its processes.
        said = (run.folder / "heard-1").read_text("utf-8")
        found = {
            "run": str(place),
            "asked_process": rank,
            # The first to end makes torchrun end those that are still on their way out.
            "exit_with_130": said.count(": 130 (pid"),
        }
        run.finish(run.start(then))
        return {**found, "gone_on_with": str(then), **compared(run, self.reference)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=50)
    parser.add_argument("--quick", action="store_true", help="two processes, one run of each kind, one kill")
    parser.add_argument("--results", type=Path, default=RESULTS / "parallel.json")
    options = parser.parse_args()
    results: dict[str, list[dict[str, Any]]] = {"curves": [], "kills": [], "restarts": [], "stops": []}

    def note(scenario: str, found: dict[str, Any]) -> None:
        results[scenario].append({"layout": layout, "precision": precision, **found})
        print(scenario, json.dumps(results[scenario][-1]), flush=True)

    kinds, counts = ("ddp", "fsdp"), (1, 2, 4)
    with tempfile.TemporaryDirectory() as name:
        cases = (("packed", "float32"), ("padded", "float32"), ("packed", "bfloat16"))
        for layout, precision in cases[:1] if options.quick else cases:
            folder = Path(name) / f"{layout}-{precision}"
            folder.mkdir()
            runs = Scenarios(folder, layout, precision, options.updates)
            if options.quick:
                note("curves", runs.curve(Place("ddp", 2)))
                note("kills", runs.kill(Place("fsdp", 2), Place("ddp", 1)))
                continue
            for place in [Place(kind, count) for kind in kinds for count in counts if count > 1]:
                note("curves", runs.curve(place))
            if (layout, precision) != cases[0]:
                continue
            for kind in kinds:
                for before, after in permutations(counts, 2):
                    note("kills", runs.kill(Place(kind, before), Place(kind, after)))
                note("restarts", runs.restart(Place(kind, 2)))
                note("stops", runs.stop(Place(kind, 2), Place(kind, 4)))
            for one, other in permutations(kinds):
                note("kills", runs.kill(Place(one, 2), Place(other, 4)))

    everything = [found for scenario in results.values() for found in scenario]
    fine = all(good(found) for found in everything) and all(
        found.get("reduced_only_after_the_last_batch_of_an_update", True) and found.get("exit_with_130", 1) > 0
        for found in everything
    )
    summary = {
        "updates": options.updates,
        "largest_difference_of_a_loss": {
            precision: max(f["largest_difference_of_a_loss"] for f in everything if f["precision"] == precision)
            for precision in TOLERANCE
            if any(f["precision"] == precision for f in everything)
        },
        "same_order_everywhere": all(found["same_batches_in_the_same_order"] for found in everything),
        "as_it_must_be": fine,
    }
    write(options.results, {**circumstances(), **summary, **results})
    print(json.dumps(summary))
    return 0 if fine else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--watched"]:
        sys.exit(watched(Path(sys.argv[2]), sys.argv[3:]))
    sys.exit(main())
