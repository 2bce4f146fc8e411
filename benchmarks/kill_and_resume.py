"""Kill a training run at random moments, resume it each time, and hold its weights against those of one never killed.

    ./run bench kill_and_resume

Everything goes through the command line, as a user's run would: `python -m regard train RECIPE --out DIR [--resume]`,
in bfloat16 on two threads if not told otherwise. Dropout, subword sampling, gradient accumulation, validation, the best
weights and averaging are on. Two recipes: BPE in rectangles with a moving average, and unigram tokens packed without
padding with the mean of the last snapshots.

Moments are drawn from a seed: some SIGKILLs wait for a file that exists only inside a save (of a checkpoint, of a
snapshot or the best weights, of the bundle) or while the token store is written or the dev set scored, and strike a
few random milliseconds later; the rest strike at a random moment after a random update. A few SIGINTs (Ctrl-C) are
strewn in: they must end with exit code 130, a checkpoint after the batch at hand, and the command to go on with. Where
a kill fell is told by what it left behind, not by what it was meant to hit.

At the end the last checkpoint, the bundle's weights and golden sentences must be the same bytes, and every loss in the
log the same number. Exit code 1 if anything differs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from record import RESULTS, circumstances, write
from safetensors import safe_open

TIMED = {"seconds", "trained", "tokens_per_second"}
"""What a log says about the clock, which no two runs share."""
STARTED = "Ctrl-C saves and stops"
"""Said on standard error when training begins."""
PATIENCE = 900
"""Seconds until a moment that does not come is an error."""

RECIPE = """
seed = 7

[data]
source = "{folder}/letters"
target = "{folder}/backwards"
valid_lines = 60
batch_tokens = 350
pool = 500
layout = "{layout}"

[text]
kind = "{kind}"
size = 330
shrink = true
sampling = 0.2

[model]
width = 32
heads = 2
feedforward = 64
encoder_layers = 2
decoder_layers = 2
dropout = 0.2

[train]
max_updates = {updates}
accumulate = 3
schedule = "inverse-sqrt"
learning_rate = 3e-3
warmup = 10
clip = 1.0
precision = "{precision}"
validate_every = 5
save_every = 2
log_every = 1
{average}

[search]
beam = 2
extra_length = 5
"""
RUNS = {
    "bpe": {
        "layout": "padded",
        "kind": "bpe",
        "average": 'average = "ema"\nema_decay = 0.95\nkeep = "best"\nkeep_checkpoints = 2',
    },
    "unigram": {
        "layout": "packed",
        "kind": "unigram",
        "average": 'average = "last"\naverage_every = 4\naverage_last = 3\nkeep_checkpoints = 1',
    },
}


@dataclass(frozen=True)
class Moment:
    """When to strike: once `update` is in the log and the run is at `what`, `delay` seconds later."""

    what: str
    delay: float
    update: int = 0
    signal: int = signal.SIGKILL


@dataclass
class Tally:
    """What happened to one run."""

    updates: int
    kills: Counter[str] = field(default_factory=Counter)
    interrupts: int = 0
    between_batches_of_an_update: int = 0
    """Checkpoints left by an interrupt whose gradients were not yet applied."""
    missed: int = 0
    """Moments that had passed before the signal was sent."""


# -- what a run leaves on disk -----------------------------------------------------------------------------------------

PREPARING, CHECKPOINT, WEIGHTS, BUNDLE = (
    "preparing",
    "saving a checkpoint",
    "saving a snapshot or the best weights",
    "saving the bundle",
)
STARTING, VALIDATING, SCORING, ANYWHERE = "starting", "validating", "scoring after training", "training"
HALF_WRITTEN = {
    CHECKPOINT: ("checkpoints/*.part",),
    WEIGHTS: ("snapshots/*.part", "best.safetensors.part"),
    BUNDLE: (".bundle.*.part", ".bundle.old"),
    PREPARING: ("prepared/.*.part",),
}
Found = set[tuple[str, int]]


def half_written(out: Path, what: str) -> Found:
    """What is there only while something is written; by name and time, since an earlier kill may have left some."""
    found = set()
    for pattern in HALF_WRITTEN[what]:
        for path in out.glob(pattern):
            with suppress(FileNotFoundError):
                found.add((str(path), path.stat().st_ctime_ns))
    return found


def leftovers(out: Path) -> Found:
    """Everything that is half-written now."""
    return set[tuple[str, int]]().union(*(half_written(out, what) for what in HALF_WRITTEN))


def is_at(what: str, out: Path, stale: Found) -> bool:
    """Whether a run is at this point; `stale` are the leftovers of earlier kills."""
    if what in HALF_WRITTEN:
        return bool(half_written(out, what) - stale)
    if what == VALIDATING:  # an update is logged after which the dev set is scored, and the score is not
        last = _last(out / "log.jsonl")
        return last.get("event") == "train" and last["update"] % 5 == 0
    if what == SCORING:
        return (out / "bundle").exists() and not (out / "results.json").exists()
    return True


def place_of(out: Path, updates: int, started: bool, stale: Found) -> str:
    """Where a kill fell, told by what it left."""
    for what in HALF_WRITTEN:
        if is_at(what, out, stale):
            return what
    if not started:
        return STARTING if (out / "prepared" / "valid" / "store.json").exists() else PREPARING
    if is_at(VALIDATING, out, stale):
        return VALIDATING
    return SCORING if any((out / "checkpoints").glob(f"update-{updates:09d}-*")) else ANYWHERE


def _last(path: Path) -> dict[str, Any]:
    """The last whole line of a log, or nothing."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 1000))
            lines = file.read().split(b"\n")
        return dict(json.loads(lines[-2])) if len(lines) > 1 else {}
    except (OSError, ValueError):
        return {}


def _update(out: Path) -> int:
    """The last update in the log."""
    return int(_last(out / "log.jsonl").get("update", 0))


# -- one run -----------------------------------------------------------------------------------------------------------


def launch(recipe: Path, out: Path, *options: str) -> tuple[subprocess.Popen[bytes], Path]:
    """Start the command line; standard error goes to a file beside `out`."""
    heard = out.with_name(out.name + ".heard")
    command = [sys.executable, "-m", "regard", "train", str(recipe), "--out", str(out), *options]
    with heard.open("wb") as stream:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stream)
    return process, heard


def strike(process: subprocess.Popen[bytes], heard: Path, out: Path, moment: Moment, stale: Found) -> bool:
    """Wait for the moment and send its signal; False if the run was over before."""
    limit = time.monotonic() + PATIENCE
    ready = moment.what in (PREPARING, STARTING)
    while process.poll() is None:
        if time.monotonic() > limit:
            process.kill()
            raise TimeoutError(f"{moment.what}: the moment did not come in {PATIENCE} s")
        ready = ready or (
            STARTED.encode() in heard.read_bytes() and _last(out / "log.jsonl").get("update", 0) >= moment.update
        )
        if ready and is_at(moment.what, out, stale):
            time.sleep(moment.delay)
            process.send_signal(moment.signal)
            process.wait(PATIENCE)
            return process.returncode == (-signal.SIGKILL if moment.signal == signal.SIGKILL else 130)
        time.sleep(0.002 if not ready else 0.0002)
    return False


def go(recipe: Path, out: Path, moments: list[Moment], updates: int) -> Tally:
    """Run to the end through all the moments."""
    tally = Tally(updates)
    waiting = list(moments)
    while True:
        options = ["--resume"] if (out / "recipe.toml").exists() else []
        stale = leftovers(out)
        process, heard = launch(recipe, out, *options)
        if waiting:
            moment = waiting.pop(0)
            struck = strike(process, heard, out, moment, stale)
        else:
            struck = False
        try:
            code = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        said = heard.read_text(encoding="utf-8")
        if not struck:
            if code != 0:
                raise RuntimeError(f"the run failed with {code}:\n{said}")
            if not waiting:
                return tally
            tally.missed += 1
        elif moment.signal == signal.SIGINT:
            tally.interrupts += 1
            if "--resume" not in said or "Traceback" in said:
                raise RuntimeError(f"an interrupt that does not say how to go on:\n{said}")
            tally.between_batches_of_an_update += _between(out)
        else:
            tally.kills[place_of(out, updates, STARTED in said, stale)] += 1


def _between(out: Path) -> bool:
    """Whether the newest checkpoint holds gradients that wait for more."""
    newest = max((out / "checkpoints").glob("update-*"))
    return int(newest.name.rpartition("-")[2]) % 3 != 0


def draw(kills: int, interrupts: int, updates: int, seed: str) -> list[Moment]:
    """Moments in the order in which they come; a third of the kills wait for a save."""
    dice = random.Random(seed)

    def after() -> int:
        return dice.randint(0, updates - 8)

    moments = [Moment(CHECKPOINT, dice.uniform(0, 0.004), after()) for _ in range(max(1, kills // 3))]
    early, late = [], []
    if kills >= 12:
        moments += [Moment(WEIGHTS, dice.uniform(0, 0.001), after()) for _ in range(2)]
        moments += [Moment(VALIDATING, dice.uniform(0, 0.01), after()) for _ in range(2)]
        early = [Moment(PREPARING, dice.uniform(0, 0.005)), Moment(STARTING, dice.uniform(0.5, 2))]
        late = [Moment(BUNDLE, dice.uniform(0, 0.006), updates) for _ in range(2)]
        late += [Moment(SCORING, dice.uniform(0, 0.2), updates)]
    anywhere = kills - len(moments) - len(early) - len(late)
    moments += [Moment(ANYWHERE, dice.uniform(0, 0.3), after()) for _ in range(anywhere)]
    moments += [Moment(ANYWHERE, dice.uniform(0, 0.3), after(), signal.SIGINT) for _ in range(interrupts)]
    return [*early, *sorted(moments, key=lambda moment: moment.update), *late]


# -- the comparison ----------------------------------------------------------------------------------------------------


def compare(one: Path, other: Path) -> dict[str, bool]:
    """What of two runs is the same, bit for bit."""

    def same(name: str) -> bool:
        return (one / name).read_bytes() == (other / name).read_bytes()

    last = [max((out / "checkpoints").glob("update-*")).relative_to(out) for out in (one, other)]
    return {
        "last checkpoint's place": last[0] == last[1],
        "last checkpoint's tensors": same(f"{last[0]}/tensors.safetensors"),
        "last checkpoint's state": _state(one / last[0]) == _state(other / last[1]),
        "bundle's weights": same("bundle/weights.safetensors"),
        "bundle's subwords": same("bundle/subwords.model"),
        "bundle's golden sentences": same("bundle/golden.json"),
        "every loss in the log": _losses(one) == _losses(other),
    }


def _state(checkpoint: Path) -> dict[str, Any]:
    state = dict(json.loads((checkpoint / "state.json").read_text(encoding="utf-8"))["state"])
    state |= state.pop("progress")
    return {key: value for key, value in state.items() if key not in {*TIMED, "window"}}


def _losses(out: Path) -> list[dict[str, Any]]:
    events = map(json.loads, (out / "log.jsonl").read_text(encoding="utf-8").splitlines())
    return [{key: value for key, value in event.items() if key not in TIMED} for event in events]


# -- all of it ---------------------------------------------------------------------------------------------------------


def write_corpus(folder: Path) -> None:
    """1,200 lines of invented words, and the same letters backwards."""
    dice = random.Random(1)
    words = ["".join(dice.choices("abcdefghijk", k=dice.randint(2, 5))) for _ in range(80)]
    lines = [" ".join(dice.choices(words, k=dice.randint(1, 6))) for _ in range(1200)]
    (folder / "letters").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (folder / "backwards").write_text("".join(f"{line[::-1]}\n" for line in lines), encoding="utf-8")


def measure(name: str, arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """One recipe's run, killed and never killed."""
    began = time.perf_counter()
    recipe = folder / f"{name}.toml"
    updates, precision = arguments.updates, arguments.precision
    text = RECIPE.format(folder=folder, updates=updates, precision=precision, **RUNS[name])
    recipe.write_text(text, encoding="utf-8")
    whole, killed = folder / f"{name}-whole", folder / f"{name}-killed"
    go(recipe, whole, [], updates)
    tally = go(
        recipe, killed, draw(arguments.kills, arguments.interrupts, updates, f"{arguments.seed} {name}"), updates
    )
    same = compare(whole, killed)
    with safe_open(killed / "bundle" / "weights.safetensors", "numpy") as weights:
        tensors = len(list(weights.keys()))
    return {
        "updates": updates,
        "batches_an_update": 3,
        "epochs": max(event["epoch"] for event in _losses(whole) if event["event"] == "train"),
        "kills": sum(tally.kills.values()),
        "kills_fell": dict(sorted(tally.kills.items())),
        "kills_inside_a_save": sum(count for place, count in tally.kills.items() if place.startswith("saving")),
        "interrupts": tally.interrupts,
        "interrupts_between_batches_of_an_update": tally.between_batches_of_an_update,
        "moments_missed": tally.missed,
        "tensors_in_the_bundle": tensors,
        "same": same,
        "identical": all(same.values()),
        "seconds": round(time.perf_counter() - began, 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=18, help="SIGKILLs for each recipe")
    parser.add_argument("--interrupts", type=int, default=4, help="SIGINTs for each recipe")
    parser.add_argument("--updates", type=int, default=120, help="length of a run")
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=list(RUNS))
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--precision", choices=["bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="keep both runs in this new folder, to look at")
    parser.add_argument("--results", type=Path, default=RESULTS / "kill_and_resume.json")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    runs = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        write_corpus(folder)
        for name in arguments.runs:
            runs[name] = measure(name, arguments, folder)
            print(name, json.dumps(runs[name], indent=1), flush=True)
    totals = ("kills", "kills_inside_a_save", "interrupts", "interrupts_between_batches_of_an_update")
    result = {
        **circumstances(),
        "threads": arguments.threads,
        "precision": arguments.precision,
        "seed": arguments.seed,
        **{key: sum(run[key] for run in runs.values()) for key in totals},
        "kills_fell": dict(sorted(sum((Counter(run["kills_fell"]) for run in runs.values()), Counter[str]()).items())),
        "identical": all(run["identical"] for run in runs.values()),
        "runs": runs,
    }
    write(arguments.results, result)
    print(f"identical: {result['identical']} after {result['kills']} kills; see {arguments.results}")
    return 0 if result["identical"] else 1


if __name__ == "__main__":
    sys.exit(main())
