"""What watching a run costs it: the same training alone and watched, in turn, and how long translations take.

A small Transformer on Multi30k (`REGARD_DATA` names the folder that holds it) saves a checkpoint every few updates, far
more often than a run would, so that something is being translated all the time: the least favourable case. The share of
training's speed that is kept is the median of the rounds' ratios, each of two runs one after the other.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from record import RESULTS, circumstances, write

RECIPE = """
name = "watched"
[data]
source = "{data}/{train}.en.gz"
target = "{data}/{train}.de.gz"
valid_source = "{data}/val.en.gz"
valid_target = "{data}/val.de.gz"
source_language = "en"
target_language = "de"
[text]
size = {size}
[model]
family = "transformer"
width = {width}
heads = 4
feedforward = 1024
encoder_layers = 3
decoder_layers = 3
[train]
max_updates = {updates}
save_every = {save_every}
validate_every = 1000000
keep_checkpoints = 1
log_every = 10
"""


FULL = {"train": "train", "size": 6000, "width": 256}
QUICK = {"train": "val", "size": 1000, "width": 32}


def train(recipe: Path, out: Path, *, watched: bool) -> tuple[float, list[float]]:
    """Target tokens a second of a run; and of each checkpoint that was translated meanwhile, the seconds that took."""
    regard = [sys.executable, "-m", "regard"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    watching = None
    if watched:
        watching = subprocess.Popen([*regard, "watch", str(out), "--port", "0"], **quiet)
    try:
        subprocess.run([*regard, "train", str(recipe), "--out", str(out)], check=True, **quiet)
    finally:
        if watching is not None:
            watching.terminate()
            watching.wait()
    events = [json.loads(line) for line in (out / "log.jsonl").read_text("utf-8").splitlines()]
    first, last = (next(e for e in order if e["event"] == "train") for order in (events, events[::-1]))
    speed = (last["tokens"] - first["tokens"]) / (last["trained"] - first["trained"])
    results = [json.loads(file.read_text("utf-8")) for file in (out / "watch" / "samples").glob("update-*.json")]
    return speed, [result["seconds"] for result in results if "seconds" in result]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--save-every", type=int, default=25)
    parser.add_argument("--quick", action="store_true", help="show that it works; nothing is kept")
    asked = parser.parse_args()
    if asked.quick:
        asked.rounds, asked.updates = 1, 30
    if "REGARD_DATA" not in os.environ:
        sys.exit("REGARD_DATA must name the folder that holds multi30k/")
    data = Path(os.environ["REGARD_DATA"]) / "multi30k"
    rounds, seconds = [], []
    with tempfile.TemporaryDirectory() as folder:
        recipe = Path(folder) / "recipe.toml"
        sizes = QUICK if asked.quick else FULL
        text = RECIPE.format(data=data, updates=asked.updates, save_every=asked.save_every, **sizes)
        recipe.write_text(text, "utf-8")
        for number in range(asked.rounds):
            alone, _ = train(recipe, Path(folder) / f"alone-{number}", watched=False)
            beside, took = train(recipe, Path(folder) / f"watched-{number}", watched=True)
            rounds.append({"alone": round(alone), "watched": round(beside), "kept": round(beside / alone, 3)})
            seconds += took
            print(rounds[-1], f"{len(took)} checkpoints translated")
    found = {
        "kept": statistics.median(each["kept"] for each in rounds),
        "seconds_of_a_checkpoint": round(statistics.median(seconds), 2) if seconds else None,
        "checkpoints_translated": len(seconds),
        "rounds": rounds,
    }
    print(json.dumps(found, indent=1))
    if not asked.quick:
        write(RESULTS / "watch.json", {**circumstances(), **found})


if __name__ == "__main__":
    main()
