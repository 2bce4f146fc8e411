"""Variants of one recipe, several seeds each: trained once, kept, and compared with the unchanged one seed by seed.

A run is a folder, named by what was changed, the seed and everything else that it depends on; one that has ended is not
trained again, one that was cut off goes on. Runs are made in the order of the variants, all seeds of one before the
next, and no run begins once the time is up; what is told then is of the runs that there are.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import multi30k
from record import RESULTS, circumstances, write
from workers import SCRATCH

import regard
from regard.errors import Interrupted
from regard.recipe import Recipe, load, to_toml

__all__ = [
    "RECIPE",
    "chosen",
    "compared",
    "folder",
    "found_in",
    "interval",
    "keep",
    "recipe_of",
    "show",
    "train_all",
    "train_once",
]

RECIPE = Path(__file__).resolve().parent.parent / "recipes" / "multi30k-de-en" / "small.toml"

_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Student's t at 97.5 %, for 1, 2, … degrees of freedom."""

Variants = Mapping[str, Sequence[str]]
"""A name -> what is changed, as `--set` takes it; the first is that which the others are compared with."""


def recipe_of(changes: Sequence[str], seed: int, common: Sequence[str] = ()) -> Recipe:
    """The recipe with these changes; prepared text is shared by all."""
    variables = {**os.environ, "REGARD_DATA": str(multi30k.folder().parent)}
    cache = f"data.cache={json.dumps(str(SCRATCH / 'variants'))}"
    return load(RECIPE, variables, [*common, *changes, f"seed={seed}", cache])


def chosen(variants: dict[str, list[str]], names: Sequence[str] | None) -> dict[str, list[str]]:
    """Those of these names, or all; always the first, with which the others are compared."""
    base = next(iter(variants))
    return {name: changes for name, changes in variants.items() if name == base or not names or name in names}


def train_all(
    variants: Variants, seeds: int, until: float, runs: Path, common: Sequence[str] = ()
) -> dict[str, dict[int, dict[str, Any]]]:
    """Of each variant by seed, what its run found; `common` changes all. No run begins after `time.monotonic()` is
    `until`."""
    made: dict[str, dict[int, dict[str, Any]]] = {}
    for name, changes in variants.items():
        for seed in range(1, seeds + 1):
            out = train_once(name, recipe_of(changes, seed, common), runs, until)
            if out is None:
                continue
            made.setdefault(name, {})[seed] = run = found_in(out)
            print(f"  {name}, seed {seed}: perplexity {run['perplexity']:.3f}, BLEU {run['bleu']:.2f}", flush=True)
    return made


def folder(name: str, recipe: Recipe, runs: Path) -> Path:
    """Where the run of this recipe is kept."""
    digest = hashlib.sha256(to_toml(recipe).encode()).hexdigest()[:8]
    return runs / f"{re.sub('[^a-z0-9]+', '-', name.lower())}-{recipe.seed}-{digest}"


def train_once(name: str, recipe: Recipe, runs: Path, until: float) -> Path | None:
    """The folder of a run that has ended, or is gone on with until it has; None if it has not, and the time is up."""
    out = folder(name, recipe, runs)
    if not (out / "results.json").is_file():
        if time.monotonic() > until:
            print(f"  {name}, seed {recipe.seed}: not begun, the time is up", flush=True)
            return None
        try:
            regard.fit(recipe, out, resume=True)
        except Interrupted:
            raise KeyboardInterrupt from None
    return out


def found_in(out: Path) -> dict[str, Any]:
    """Dev perplexity a token and BLEU of a run that has ended; its training seconds, updates and target tokens."""
    result = json.loads((out / "results.json").read_text(encoding="utf-8"))
    events = [json.loads(line) for line in (out / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    last = [event for event in events if event["event"] == "validate"][-1]
    training, (dev, *_) = result["training"], result["scores"]
    bleu = dev["scores"]["bleu"]
    return {
        "perplexity": last["perplexity"],
        "bleu": bleu["value"],
        "signature": bleu["signature"],
        **{key: training[key] for key in ("updates", "target_tokens", "seconds", "precision")},
    }


def interval(values: Sequence[float]) -> dict[str, Any]:
    """Mean, and the 95 % interval of the mean by Student's t; of one value there is none."""
    half = (
        _T[min(len(values) - 2, len(_T) - 1)] * stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    )
    return {"mean": mean(values), "half": None if math.isnan(half) else half, "values": list(values)}


def compared(made: dict[str, dict[int, dict[str, Any]]], measures: Sequence[str]) -> dict[str, Any]:
    """Each variant's measures, and its differences from the first, seed by seed; told apart: the interval leaves out 0.

    Seeds share first weights and order of the data only as far as the variants allow, so the pairing may gain little.
    """
    base = next(iter(made.values()))
    table: dict[str, Any] = {}
    for name, runs in made.items():
        table[name] = {}
        for measure in measures:
            row = interval([run[measure] for run in runs.values()])
            gaps = [runs[seed][measure] - base[seed][measure] for seed in runs if seed in base]
            if runs is not base and gaps:
                row["difference"] = interval(gaps)
                half = row["difference"]["half"]
                row["told_apart"] = half is not None and abs(row["difference"]["mean"]) > half
            table[name][measure] = row
    return table


def show(table: dict[str, Any]) -> None:
    """The table as Markdown, differences from the first row in brackets."""
    measures = list(next(iter(table.values())))
    print(f"\n| variant | {' | '.join(measures)} |\n|---|{'---|' * len(measures)}")
    for name, row in table.items():
        cells = []
        for found in row.values():
            cell = f"{found['mean']:.2f}"
            if (gap := found.get("difference")) is not None:
                about = "" if gap["half"] is None else f" ± {gap['half']:.2f}"
                cell += f" ({gap['mean']:+.2f}{about}{'' if found['told_apart'] else ', not told apart'})"
            cells.append(cell)
        print(f"| {name} | {' | '.join(cells)} |")


def keep(arguments: argparse.Namespace, name: str, found: Mapping[str, Any]) -> None:
    """Write what was found to `--results`, or to benchmarks/results/NAME.json if it is of all variants in full."""
    in_part = arguments.quick or arguments.only
    if where := arguments.results or (None if in_part else RESULTS / f"{name}.json"):
        write(where, {**circumstances(), "threads": arguments.threads, "seeds": arguments.seeds, **found})
