"""The paper's Table 3 in small: what heads, d_k, dropout, label smoothing, places, depth and width do to a Transformer.

    REGARD_DATA=… ./run bench table3

A Transformer of width 128 (`recipes/multi30k-de-en/small.toml`) is trained on the first 10,000 pairs of Multi30k,
German to English, with one thing changed at a time, three seeds each and as many updates, batches and target tokens
for all; perplexity a token and BLEU are of the dev set. So few pairs are read seven times, and a model without dropout
begins to know them by heart, as the paper's does in 100,000 steps; with all 29,000 that would take far longer. Rows are
named as in the paper. The four directions that are asked for come first: one head is the worst of (A), a smaller d_k is
worse (B), no dropout is the worst of (D), label smoothing raises perplexity (D).

Runs are kept in `--runs` and taken up again; with `--minutes` no run begins after so many.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any

import multi30k
import torch
from variants import chosen, compared, keep, show, train_all
from workers import ROOT, SCRATCH, at_least, exit_code, threads_option

VARIANTS: dict[str, list[str]] = {
    "base": [],
    "A: 1 head": ["model.heads=1"],
    "B: d_k 4": ["model.key_width=4"],
    "D: dropout 0": ["model.dropout=0.0"],
    "D: smoothing 0": ["train.label_smoothing=0.0"],
    "A: 16 heads": ["model.heads=16"],
    "B: d_k 16": ["model.key_width=16"],
    "D: dropout 0.3": ["model.dropout=0.3"],
    "E: learned places": ['model.positions="learned"'],
    "A: 8 heads": ["model.heads=8"],
    "C: 1 layer": ["model.encoder_layers=1", "model.decoder_layers=1"],
    "C: width 64": ["model.width=64"],
    "C: feed-forward 128": ["model.feedforward=128"],
}
"""Heads and widths of (A) follow each other, so that the cost stays the same; d_k is 32 in the base."""

DIRECTIONS: list[tuple[str, list[str], str, list[str]]] = [
    ("one head is the worst of (A)", ["A: 1 head"], "perplexity", ["base", "A: 8 heads", "A: 16 heads"]),
    ("a smaller d_k is worse", ["B: d_k 4"], "perplexity", ["base", "B: d_k 16"]),
    ("no dropout is the worst of (D)", ["D: dropout 0"], "perplexity", ["base", "D: dropout 0.3"]),
    ("label smoothing raises perplexity", ["base"], "perplexity", ["D: smoothing 0"]),
]
"""What the paper found: those of the first list have a higher value than those of the second."""


def directions(made: dict[str, dict[int, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Whether the means go the paper's way, for those comparisons whose runs there are."""
    found = []
    for claim, higher, measure, lower in DIRECTIONS:
        for more in higher:
            for less in lower:
                if more in made and less in made:
                    table = compared({less: made[less], more: made[more]}, [measure])
                    row = table[more][measure]
                    gap = row["difference"]
                    found.append({"claim": claim, "higher": more, "lower": less, "as_printed": gap["mean"] > 0, **row})
    return found


def shortened(pairs: int) -> list[str]:
    """What makes the recipe train on the first `pairs` lines."""
    place = SCRATCH / "table3" / str(pairs)
    place.mkdir(parents=True, exist_ok=True)
    for side, language in (("source", "de"), ("target", "en")):
        if not (place / side).exists():
            with gzip.open(multi30k.folder() / f"train.{language}.gz", "rt", encoding="utf-8") as lines:
                (place / side).write_text("".join(islice(lines, pairs)), encoding="utf-8")
    return [f"data.{side}={json.dumps(str(place / side))}" for side in ("source", "target")]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=at_least(1), default=3, help="of each variant (default: 3)")
    parser.add_argument("--pairs", type=at_least(100), default=10_000, help="trained on (default: 10,000)")
    parser.add_argument("--updates", type=at_least(1), default=1000, help="of each run (default: 1,000)")
    parser.add_argument("--minutes", type=at_least(1), default=60, help="no run begins after these (default: 60)")
    parser.add_argument("--only", nargs="+", choices=VARIANTS, metavar="NAME", help=", ".join(VARIANTS))
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "table3", help="where runs are kept")
    parser.add_argument("--quick", action="store_true", help="two variants, one seed, 4 updates: to see that it works")
    parser.add_argument("--results", type=Path, help="where to write (default: benchmarks/results, not in part)")
    threads_option(parser)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    variants = chosen(VARIANTS, arguments.only)
    common = ['data.metrics=["bleu"]']
    if arguments.quick:
        variants = dict(list(variants.items())[:2])
        arguments.seeds, arguments.updates = 1, 4
        common += ["search.beam=1", "search.extra_length=2", "train.validate_every=4"]
    common += [f"train.max_updates={arguments.updates}", f"train.warmup={arguments.updates // 10}"]
    until = time.monotonic() + 60 * arguments.minutes
    made = train_all(variants, arguments.seeds, until, arguments.runs, [*common, *shortened(arguments.pairs)])
    table = compared(made, ["perplexity", "bleu"])
    show(table)
    claims = directions(made)
    for claim in claims:
        sure = "" if claim["told_apart"] else ", which the seeds do not tell apart"
        way = "as printed" if claim["as_printed"] else "the other way"
        print(f"{claim['claim']} ({claim['higher']} against {claim['lower']}): {way}{sure}")
    found = {
        "pairs": arguments.pairs,
        "changes": variants,
        "common": common,
        "runs": made,
        "table": table,
        "directions": claims,
    }
    keep(arguments, "table3", found)
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
