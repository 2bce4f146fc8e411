"""What Regard and JoeyNMT make of the same text in the same time on one core: both train, and translate the same sets.

    REGARD_DATA=… ./run bench beside --recipe recipes/general-en-de/base.toml --minutes 100

Regard trains the recipe by the clock (`train.minutes`). JoeyNMT, by its own command, reads the same pairs in the same
subwords, which it is given with spaces between, and builds the same shape with pre-norm; it has batches of as many
tokens, Adam, and warm-up and inverse square root as in its own recipes. Its learning rate is the one of `--rates` that
has the lowest dev perplexity after a tenth of the time; how many updates the time holds is measured before. It saves 20
checkpoints; kept is the best one or the mean of the last five, whichever has the higher dev BLEU. Both search with the
recipe's beam. Minutes are those of batches and updates, without validation. The recipe's noise is left out, unless
`--noise` keeps it for Regard. Scores are Regard's, of detokenised text; test sets are translated once, at the end.

What was trained is kept in `--runs`; with `--only` the systems can be trained by two processes, a core each.
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

from environments import interpreter
from record import RESULTS, circumstances, write
from workers import ROOT, SCRATCH, BenchmarkError, at_least, exit_code

import regard
from regard.kernels.build import threads_at_most
from regard.metrics import score
from regard.recipe import Recipe, load
from regard.tasks.prepare import Prepared, prepare_for
from regard.text import END, read_lines, write_lines

PEERS = Path(__file__).resolve().parent / "peers"
STEP = re.compile(r"^(\S+ \S+) - INFO .*Epoch +\d+, Step: +(\d+), Batch Loss", re.MULTILINE)
CHECK = re.compile(r"Evaluation result \(.*?ppl: +([\d.]+)")
CHECKPOINTS, LAST, EVERY, TRIAL = 20, 5, 5, 40
"""What JoeyNMT saves, how many of the last are averaged, updates between lines of its log, fewest of a trial."""
Sets = dict[str, tuple[list[str], list[str]]]


def sets_of(recipe: Recipe) -> Sets:
    """Lines of the dev set and of each test set, source and reference."""
    named = {"dev": (recipe.data.valid_source, recipe.data.valid_target)}
    named |= {name: (each.source, each.reference) for name, each in recipe.data.test.items()}
    return {name: (read_lines(str(source)), read_lines(str(reference))) for name, (source, reference) in named.items()}


def scored(outputs: dict[str, list[str]], sets: Sets) -> dict[str, Any]:
    """BLEU and chrF of each set's output."""
    found: dict[str, Any] = {}
    for name, lines in outputs.items():
        made = score(lines, sets[name][1], ("bleu", "chrf"))
        found[name] = {
            metric: {"value": one.value, "interval": list(one.interval or ()), "signature": one.signature}
            for metric, one in made.items()
        }
    return found


def ours(recipe: Recipe, runs: Path, sets: Sets) -> dict[str, Any]:
    """Regard's scores, and how much it trained."""
    out = runs / "regard"
    regard.fit(recipe, out, resume=True)
    training = json.loads((out / "results.json").read_text(encoding="utf-8"))["training"]
    outputs = {name: read_lines(out / "hypotheses" / f"{name}.txt") for name in sets}
    for name, lines in outputs.items():
        write_lines(runs / f"regard.{name}.txt", lines)
    kept = {key: training[key] for key in ("updates", "target_tokens", "seconds", "precision")}
    return {**kept, "scores": scored(outputs, sets)}


class Joey:
    """JoeyNMT on the text of a recipe."""

    def __init__(self, recipe: Recipe, prepared: Prepared, folder: Path, threads: int) -> None:
        self.recipe, self.prepared, self.folder = recipe, prepared, folder
        self.python = interpreter("joeynmt")
        self.environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer = prepared.source_tokenizer
        train, valid = prepared.train, prepared.valid
        few = range(0, len(valid), max(1, len(valid) // 300))
        for name, store, lines in (("train", train, range(len(train))), ("dev", valid, few)):
            for side, ids_of in (("source", store.source.line_ids), ("target", store.target.line_ids)):
                rows = (" ".join(tokenizer.tokens(ids_of(line))) for line in lines)
                write_lines(folder / f"{name}.{side}", rows)
        write_lines(folder / "vocabulary.txt", tokenizer.tokens(range(END + 1, len(tokenizer))))

    def configuration(self, name: str, rate: float, updates: int, checks: int, checkpoint: str = "") -> Path:
        """The file that its command reads."""
        model, train, search = self.recipe.model, self.recipe.train, self.recipe.search
        language = {"level": "word", "voc_file": str(self.folder / "vocabulary.txt")}

        def side(layers: int) -> dict[str, Any]:
            return {
                "type": "transformer",
                "num_layers": layers,
                "num_heads": model.heads,
                "hidden_size": model.width,
                "ff_size": model.feedforward,
                "dropout": model.dropout,
                "layer_norm": "pre",
                "embeddings": {"embedding_dim": model.width, "scale": True, "dropout": model.dropout},
            }

        settings = {
            "name": name,
            "model_dir": str(self.folder / name),
            "use_cuda": False,
            "random_seed": self.recipe.seed,
            "data": {
                "train": str(self.folder / "train"),
                "dev": str(self.folder / "dev"),
                "src": {"lang": "source", **language},
                "trg": {"lang": "target", **language},
            },
            "model": {
                "initializer": "xavier_uniform",
                "embed_initializer": "xavier_uniform",
                "tied_embeddings": True,
                "tied_softmax": True,
                "encoder": side(model.encoder_layers),
                "decoder": side(model.decoder_layers),
            },
            "training": {
                "optimizer": "adam",
                "adam_betas": [0.9, 0.98],
                "learning_rate": rate,
                "scheduling": "warmupinversesquareroot",
                "learning_rate_warmup": min(1000, updates // 4),
                "learning_rate_min": 0.0,
                "clip_grad_norm": 1.0,
                "label_smoothing": train.label_smoothing,
                "normalization": "tokens",
                "batch_type": "token",
                "batch_size": self.recipe.data.batch_tokens,
                "epochs": 1000,
                "updates": updates,
                "logging_freq": EVERY,
                "validation_freq": max(1, updates // checks // EVERY) * EVERY,
                "keep_best_ckpts": -1,
                "print_valid_sents": [],
                "early_stopping_metric": "ppl",
                "overwrite": True,
            },
            "testing": {
                "batch_size": search.batch_size,
                "batch_type": "sentence",
                "beam_size": search.beam if checkpoint else 1,
                "beam_alpha": search.alpha,
                "max_output_length": 200 if checkpoint else 1,  # checks are of the loss
                "load_model": checkpoint,
                "eval_metrics": [],
            },
        }
        path = self.folder / f"{name}.yaml"
        path.write_text(json.dumps(settings), encoding="utf-8")  # JSON is YAML
        return path

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
        """Seconds of an update, and dev perplexity at the end."""
        self.call("-m", "joeynmt", "train", str(self.configuration(name, rate, updates, checks)), "--skip-test")
        log = (self.folder / name / "train.log").read_text(encoding="utf-8")
        steps = [(datetime.fromisoformat(when.replace(",", ".")), int(step)) for when, step in STEP.findall(log)]
        # The first updates are not the fastest, and between some two lines a check was made.
        gaps = [(b[0] - a[0]).total_seconds() / (b[1] - a[1]) for a, b in pairwise(steps[2:])]
        plain = [gap for gap in gaps if gap < 3 * median(gaps)]
        return {"seconds": mean(plain), "perplexity": float(CHECK.findall(log)[-1])}

    def translate(self, name: str, checkpoint: Path, lines: Sequence[str]) -> list[str]:
        """Detokenised output of these lines."""
        tokenizer = self.prepared.source_tokenizer
        given = [" ".join(tokenizer.tokens(tokenizer.encode(line))) for line in lines]
        config = self.configuration(name, 1e-3, 100, 1, str(checkpoint))
        made = self.call("-m", "joeynmt", "translate", str(config), lines=given).splitlines()[-len(given) :]
        ids = ([tokenizer.id_of(token) for token in line.split(" ")] for line in made)
        return [tokenizer.decode([each for each in line if each is not None]) for line in ids]


def theirs(joey: Joey, minutes: float, rates: Sequence[float], sets: Sets, runs: Path) -> dict[str, Any]:
    """JoeyNMT's scores, and how it was trained."""
    speed = joey.train("speed", rates[0], TRIAL, 1)["seconds"]
    updates = max(CHECKPOINTS * EVERY, round(60 * minutes / speed))
    trials = {rate: joey.train(f"rate-{rate}", rate, max(TRIAL, updates // 10), 1)["perplexity"] for rate in rates}
    rate = min(trials, key=lambda each: trials[each])
    print(f"  joeynmt: {speed:.2f} seconds an update, so {updates}; dev perplexity of each rate: {trials}", flush=True)
    trained = joey.train("main", rate, updates, CHECKPOINTS)
    saved = sorted((joey.folder / "main").glob("[0-9]*.ckpt"), key=lambda path: int(path.stem))
    average = joey.folder / "average.ckpt"
    joey.call(str(PEERS / "joeynmt_average.py"), str(average), *map(str, saved[-LAST:]))
    candidates = {"best": (joey.folder / "main" / "best.ckpt").resolve(), f"mean of the last {LAST}": average}
    outputs = {name: {"dev": joey.translate("main", path, sets["dev"][0])} for name, path in candidates.items()}
    dev = {name: scored(made, sets)["dev"]["bleu"]["value"] for name, made in outputs.items()}
    chosen = max(dev, key=lambda each: dev[each])
    made = outputs[chosen]
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
        "scores": scored(made, sets),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--recipe", type=Path, required=True, help="of a translator")
    parser.add_argument("--minutes", type=float, default=100.0, help="of training, for each (default: 100)")
    parser.add_argument("--rates", type=float, nargs="+", default=[7e-4, 1.5e-3, 3e-3], help="that JoeyNMT tries")
    parser.add_argument("--only", nargs="+", choices=("regard", "joeynmt"), default=["regard", "joeynmt"])
    parser.add_argument("--noise", action="store_true", help="keep the recipe's noise for Regard")
    parser.add_argument("--threads", type=at_least(1), default=1)
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "beside", help="where runs are kept")
    parser.add_argument("--set", nargs="+", default=[], metavar="TABLE.KEY=VALUE", help="changes of the recipe")
    parser.add_argument("--results", type=Path, default=RESULTS / "beside.json")
    given = parser.parse_args()
    changes = [f"train.minutes={given.minutes}", "train.max_updates=1000000"]
    changes += [f"data.cache={json.dumps(str(SCRATCH / 'beside'))}", *([] if given.noise else ["text.noise={}"])]
    recipe = load(given.recipe, os.environ, [*changes, *given.set])
    sets = sets_of(recipe)
    runs = given.runs / recipe.name
    runs.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {}
    with threads_at_most(given.threads):
        if "regard" in given.only:
            found["regard"] = ours(recipe, runs, sets)
        if "joeynmt" in given.only:
            prepared = prepare_for(recipe, runs)
            joey = Joey(recipe, prepared, runs / "joeynmt", given.threads)
            found["joeynmt"] = theirs(joey, given.minutes, given.rates, sets, runs)
    for name, row in found.items():
        told = ", ".join(f"{each} {made['bleu']['value']:.2f}" for each, made in row["scores"].items())
        print(f"{name}: {row['updates']} updates in {row['seconds'] / 60:.0f} minutes; BLEU: {told}")
    write(given.results, {**circumstances(), "recipe": str(given.recipe), "minutes": given.minutes, "systems": found})
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
