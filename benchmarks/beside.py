"""What Regard and JoeyNMT make of the same text in the same time on one core: both train, and translate the same sets.

    REGARD_DATA=… ./run bench beside --recipe recipes/general-en-de/base.toml --minutes 100

Regard trains the recipe by the clock (`train.minutes`). JoeyNMT, by its own command, reads the same pairs in the same
subwords, which it is given with spaces between, and builds the same shape with pre-norm. It puts pairs into batches as
they come, so they come to it with those of like lengths together; it has batches of as many tokens, Adam, and warm-up
and inverse square root as in its own recipes. Its learning rate is the one of `--rates` that has the lowest dev
perplexity after a tenth of the time; how many updates the time holds is measured before. It saves 20 checkpoints; kept
is the best one or the mean of the last five, whichever has the higher dev BLEU (of every fifth line of 64 tokens or
less: a few longer ones, of which it makes no end, take it a quarter of an hour). Both search with the recipe's beam.
Minutes are those of batches and updates, without validation. Noise in the recipe is Regard's alone (`--set
text.noise={}` leaves it out). Scores are of detokenised text; test sets are translated once, at the end.

What was trained is kept in `--runs`: Regard's run is taken up again, and so is what JoeyNMT had ended. With `--only`
each can be trained by a process of its own, on its own core: the results file keeps what it holds of other systems and
recipes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
from environments import interpreter
from record import RESULTS, circumstances, write
from train_step import save_text
from workers import ROOT, SCRATCH, SCRIPTS, BenchmarkError, at_least, exit_code

import regard
from regard.kernels.build import threads_at_most
from regard.metrics import score
from regard.recipe import Recipe, load
from regard.tasks.prepare import Prepared, prepare_for
from regard.text import read_lines, write_lines

STEP = re.compile(r"^(\S+ \S+) - INFO .*Epoch +\d+, Step: +(\d+), Batch Loss", re.MULTILINE)
CHECK = re.compile(r"Evaluation result \(.*?ppl: +([\d.]+)")
ENDED = "Skipping test after training"
CHECKPOINTS, LAST, EVERY, TRIAL, DEV, LONGEST = 20, 5, 5, 40, 5, 64
"""What JoeyNMT saves, how many of the last are averaged, updates between lines of its log, fewest of a trial, and of
how many dev lines one is translated to choose a checkpoint, and the most tokens of such a line."""
Sets = dict[str, tuple[list[str], list[str]]]


def sets_of(recipe: Recipe) -> Sets:
    """Lines of the dev set and of each test set; raises BenchmarkError for a recipe that JoeyNMT could not be given."""
    if recipe.model.family != "transformer" or not recipe.text.joint or not isinstance(recipe.data.valid_source, str):
        raise BenchmarkError(
            f"{recipe.name}: must be of a Transformer with a joint vocabulary and a dev set in one file a side; give "
            "such a recipe."
        )
    named = {"dev": (recipe.data.valid_source, recipe.data.valid_target)}
    named |= {name: (each.source, each.reference) for name, each in recipe.data.test.items()}
    return {name: (read_lines(str(source)), read_lines(str(reference))) for name, (source, reference) in named.items()}


def scored(outputs: dict[str, list[str]], sets: Sets, language: str) -> dict[str, Any]:
    """BLEU and chrF of each set's output."""
    found: dict[str, Any] = {}
    for name, lines in outputs.items():
        made = score(lines, sets[name][1], ("bleu", "chrf"), language=language)
        found[name] = {
            metric: {"value": one.value, "interval": list(one.interval or ()), "signature": one.signature}
            for metric, one in made.items()
        }
    return found


def ours(recipe: Recipe, runs: Path) -> dict[str, Any]:
    """Regard's scores, and how much it trained."""
    out = runs / "regard"
    regard.fit(recipe, out, resume=True)
    found = json.loads((out / "results.json").read_text(encoding="utf-8"))
    kept = {key: found["training"][key] for key in ("updates", "target_tokens", "seconds", "precision")}
    return {**kept, "scores": {each["set"]: each["scores"] for each in found["scores"]}}


def bucketed(lengths: list[int], tokens: int, seed: int) -> list[int]:
    """Pairs in random batches of like lengths, each as long as JoeyNMT cuts one: longest times pairs is `tokens`."""
    draw = np.random.default_rng(seed)
    batches: list[list[int]] = [[]]
    for pair in sorted(draw.permutation(len(lengths)).tolist(), key=lambda each: lengths[each]):
        batches[-1].append(pair)
        if lengths[pair] * len(batches[-1]) >= tokens:
            batches.append([])
    return [pair for i in draw.permutation(len(batches) - 1) for pair in batches[i]] + batches[-1]


class Joey:
    """JoeyNMT on the text of a recipe."""

    def __init__(self, recipe: Recipe, prepared: Prepared, folder: Path, threads: int) -> None:
        self.recipe, self.prepared, self.folder = recipe, prepared, folder
        self.python = interpreter("joeynmt")
        self.environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer, train, valid = prepared.source_tokenizer, prepared.train, prepared.valid
        lengths = np.maximum(train.source.lengths, train.target.lengths) + 1
        save_text(folder, tokenizer, train, bucketed(lengths.tolist(), recipe.data.batch_tokens, recipe.seed))
        save_text(folder, tokenizer, valid, range(0, len(valid), max(1, len(valid) // 300)), "dev")

    def configuration(self, name: str, rate: float, updates: int, checks: int, checkpoint: str = "") -> str:
        """What a user would write into the file that its command reads."""
        from joeynmt_own import configuration  # a script of peers/

        recipe, text = self.recipe, str(self.folder)
        shape = recipe.model.model_dump() | {"layers": 0, "smoothing": recipe.train.label_smoothing}
        job = {"shape": shape, "text": text, "seed": recipe.seed, "rate": rate, "sizes": []}
        job["batch_tokens"] = recipe.data.batch_tokens
        settings = configuration(job, text, name)
        for side in ("encoder", "decoder"):
            settings["model"][side] |= {"num_layers": shape[f"{side}_layers"], "layer_norm": "pre"}
        settings["model"] |= {"initializer": "xavier_uniform", "embed_initializer": "xavier_uniform"}
        settings["data"]["dev"] = f"{text}/dev"
        settings["training"] |= {
            "learning_rate_warmup": min(1000, updates // 4),
            "clip_grad_norm": 1.0,
            "shuffle": False,  # `bucketed` did it
            "epochs": 1000,
            "updates": updates,
            "logging_freq": EVERY,
            "validation_freq": max(1, updates // checks // EVERY) * EVERY,
            "keep_best_ckpts": -1,
            "print_valid_sents": [],
            "early_stopping_metric": "ppl",
            "overwrite": True,
        }
        settings["testing"] = {
            "batch_size": recipe.search.batch_size,
            "batch_type": "sentence",
            "beam_size": recipe.search.beam if checkpoint else 1,
            "beam_alpha": recipe.search.alpha,
            "max_output_length": -1 if checkpoint else 1,  # its own limit, 1.5 times the source; checks are of the loss
            "load_model": checkpoint,
            "eval_metrics": [],
        }
        return json.dumps(settings)  # JSON is YAML

    def call(self, *words: str, lines: Sequence[str] = ()) -> str:
        done = subprocess.run(
            [str(self.python), *words],
            input="".join(f"{line}\n" for line in lines),
            env=self.environment,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise BenchmarkError(f"{' '.join(words)} failed:\n{done.stderr[-1000:]}")
        return done.stdout

    def train(self, name: str, rate: float, updates: int, checks: int) -> dict[str, float]:
        """Seconds of an update, and dev perplexity at the end; of a training that has ended, it is not made again."""
        path, settings = self.folder / name / "train.log", self.folder / f"{name}.yaml"
        wanted = self.configuration(name, rate, updates, checks)
        ended = path.exists() and ENDED in path.read_text(encoding="utf-8")
        if not ended or settings.read_text(encoding="utf-8") != wanted:
            settings.write_text(wanted, encoding="utf-8")
            print(f"  joeynmt: {updates} updates, told in {path}", flush=True)
            self.call("-m", "joeynmt", "train", str(settings), "--skip-test")
        log = path.read_text(encoding="utf-8")
        steps = [(datetime.fromisoformat(when.replace(",", ".")), int(step)) for when, step in STEP.findall(log)]
        # The first updates are not the fastest, and between some two lines a check was made.
        gaps = [(b[0] - a[0]).total_seconds() / (b[1] - a[1]) for a, b in pairwise(steps[2:])]
        plain = [gap for gap in gaps if gap < 3 * median(gaps)]
        return {"seconds": mean(plain), "perplexity": float(CHECK.findall(log)[-1])}

    def translate(self, name: str, checkpoint: Path, lines: Sequence[str]) -> list[str]:
        """Detokenised output of these lines."""
        tokenizer = self.prepared.source_tokenizer
        given = [" ".join(tokenizer.tokens(tokenizer.encode(line))) for line in lines]
        # It goes on as long as the longest line of a batch asks for, so lines of like lengths come together.
        order = sorted(range(len(given)), key=lambda i: given[i].count(" ").bit_length())
        settings = self.folder / "translate.yaml"
        settings.write_text(self.configuration(name, 1e-3, 100, 1, str(checkpoint)), encoding="utf-8")
        said = self.call("-m", "joeynmt", "translate", str(settings), lines=[given[i] for i in order])
        made = dict(zip(order, said.splitlines()[-len(given) :], strict=True))
        ids = ([tokenizer.id_of(token) for token in made[i].split(" ")] for i in range(len(given)))
        return [tokenizer.decode([each for each in line if each is not None]) for line in ids]


def theirs(joey: Joey, minutes: float, rates: Sequence[float], sets: Sets, runs: Path) -> dict[str, Any]:
    """JoeyNMT's scores, and how it was trained."""
    language = joey.recipe.data.target_language
    speed = joey.train("speed", rates[0], TRIAL, 1)["seconds"]
    updates = max(CHECKPOINTS * EVERY, round(60 * minutes / speed))
    trials = {rate: joey.train(f"rate-{rate}", rate, max(TRIAL, updates // 10), 1)["perplexity"] for rate in rates}
    rate = min(trials, key=lambda each: trials[each])
    print(f"  joeynmt: {speed:.2f} seconds an update, so {updates}; dev perplexity of each rate: {trials}", flush=True)
    trained = joey.train("main", rate, updates, CHECKPOINTS)
    saved = sorted((joey.folder / "main").glob("[0-9]*.ckpt"), key=lambda path: int(path.stem))
    average = joey.folder / "average.ckpt"
    joey.call(str(SCRIPTS / "joeynmt_average.py"), str(average), *map(str, saved[-LAST:]))
    candidates = {"best": (joey.folder / "main" / "best.ckpt").resolve(), f"mean of the last {LAST}": average}
    encode = joey.prepared.source_tokenizer.encode
    pairs = [pair for pair in zip(*sets["dev"], strict=True) if len(encode(pair[0])) <= LONGEST][::DEV]
    source, reference = ([pair[side] for pair in pairs] for side in (0, 1))
    dev = {}
    for name, path in candidates.items():
        lines = joey.translate("main", path, source)
        dev[name] = score(lines, reference, ("bleu",), language=language, resamples=0)["bleu"].value
    chosen = max(dev, key=lambda each: dev[each])
    made = {}
    for name, (source, _) in sets.items():
        if name != "dev":
            made[name] = joey.translate("main", candidates[chosen], source)
            write_lines(runs / f"joeynmt.{name}.txt", made[name])
    return {
        "updates": updates,
        "seconds": updates * trained["seconds"],
        "rate": rate,
        "trials": {str(each): value for each, value in trials.items()},
        "checkpoint": chosen,
        "dev_bleu": dev,
        "scores": scored(made, sets, language),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--recipe", type=Path, required=True, help="of a translator")
    parser.add_argument("--minutes", type=float, default=100.0, help="of training, for each (default: 100)")
    parser.add_argument("--rates", type=float, nargs="+", default=[7e-4, 1.5e-3, 3e-3], help="that JoeyNMT tries")
    parser.add_argument("--only", nargs="+", choices=("regard", "joeynmt"), default=["regard", "joeynmt"])
    parser.add_argument("--threads", type=at_least(1), default=1)
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "beside", help="where runs are kept")
    parser.add_argument("--set", nargs="+", default=[], metavar="TABLE.KEY=VALUE", help="changes of the recipe")
    parser.add_argument("--results", type=Path, default=RESULTS / "beside.json")
    given = parser.parse_args()
    sys.path.insert(0, str(SCRIPTS))
    changes = [f"train.minutes={given.minutes}", "train.max_updates=1000000"]
    changes += [f"data.cache={json.dumps(str(SCRATCH / 'beside'))}"]
    recipe = load(given.recipe, os.environ, [*changes, *given.set])
    sets = sets_of(recipe)
    runs = given.runs / recipe.name
    runs.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {}
    with threads_at_most(given.threads):
        if "regard" in given.only:
            found["regard"] = ours(recipe, runs)
        if "joeynmt" in given.only:
            prepared = prepare_for(recipe, runs)
            joey = Joey(recipe, prepared, runs / "joeynmt", given.threads)
            found["joeynmt"] = theirs(joey, given.minutes, given.rates, sets, runs)
    for name, row in found.items():
        told = ", ".join(f"{each} {made['bleu']['value']:.2f}" for each, made in row["scores"].items())
        print(f"{name}: {row['updates']} updates in {row['seconds'] / 60:.0f} minutes; BLEU: {told}")
    known = json.loads(given.results.read_text(encoding="utf-8")) if given.results.exists() else {}
    rows = {name: {**circumstances(), "minutes": given.minutes, **row} for name, row in found.items()}
    write(given.results, known | {recipe.name: known.get(recipe.name, {}) | rows})
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
