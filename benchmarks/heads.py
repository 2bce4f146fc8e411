"""What it costs to take the least useful heads out of a model, chosen on validation pairs and scored on a test set.

    python benchmarks/heads.py --bundle runs/multi30k/bundle --valid val.en val.de --test test.en test.de

Heads are ranked three ways on the validation pairs: by what is lost without each, by the gradients of their masks, and
by these gradients anew after each head that went. Of each way the pruned bundle is saved, and it and the whole one
translate both sets by the compiled decoder. Which way is best is read off the validation set; the test set is only
reported. Nothing is trained after pruning.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from record import RESULTS, circumstances, write

import regard
from regard.explore.changes import Head, config_of
from regard.explore.heads import Ranking, heads
from regard.explore.pruning import least_useful, prune, prune_heads
from regard.tasks.evaluate import evaluate_lines
from regard.text import read_lines

WAYS = ("ablation", "gradient", "gradient, one after the other")
Lines = tuple[list[str], list[str]]


def bleu(bundle: Path, pairs: Lines) -> dict[str, Any]:
    """The score with its interval and signature."""
    return evaluate_lines(regard.load(bundle, device="cpu"), pairs[0], [pairs[1]]).scores["bleu"].to_dict()


def pruned(bundle: Path, out: Path, way: str, ranking: Ranking, valid: Lines, part: float) -> tuple[Head, ...]:
    """Write the bundle without its least useful heads; returns those."""
    if way == WAYS[2]:
        return prune(bundle, out, valid, part, exact=False, greedy=True, progress=print).off
    if way == "gradient":
        effects = sorted(ranking.effects, key=lambda effect: effect.gradient, reverse=True)
        ranking = replace(ranking, effects=tuple(effects))
    config = config_of(regard.load(bundle, device="cpu").recipe)
    return prune_heads(bundle, out, least_useful(ranking, config, int(part * len(ranking.effects)))).off


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--valid", type=Path, nargs=2, required=True, help="source and target lines to choose by")
    parser.add_argument("--test", type=Path, nargs=2, required=True, help="source and target lines to report")
    parser.add_argument("--part", type=float, default=0.3334, help="of the heads, to be taken out")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=[*WAYS])
    parser.add_argument("--results", type=Path, default=RESULTS / "heads.json")
    arguments = parser.parse_args()
    valid, test = ((read_lines(a), read_lines(b)) for a, b in (arguments.valid, arguments.test))
    ways: dict[str, Any] = {}
    ranking = heads(arguments.bundle, *valid, progress=print)
    whole = {"validation": bleu(arguments.bundle, valid), "test": bleu(arguments.bundle, test)}
    result = {
        **circumstances(),
        "bundle": regard.load(arguments.bundle, device="cpu").recipe.name,
        "pairs": ranking.pairs,
        "rank_correlation": ranking.correlation,
        "ranking": [{"head": str(e.head), "loss": e.loss, "gradient": e.gradient} for e in ranking.effects],
        "bleu": whole,
        "ways": ways,
    }
    with tempfile.TemporaryDirectory() as folder:
        for number, name in enumerate(arguments.ways):
            out = Path(folder) / str(number)
            off = pruned(arguments.bundle, out, name, ranking, valid, arguments.part)
            found = {"validation": bleu(out, valid), "test": bleu(out, test)}
            lost = {key: round(whole[key]["value"] - one["value"], 2) for key, one in found.items()}
            ways[name] = {"off": [*map(str, off)], "bleu": found, "bleu_lost": lost}
            result["chosen"] = min(ways, key=lambda way: ways[way]["bleu_lost"]["validation"])
            write(arguments.results, result)
            print(f"{name}: BLEU lost {lost}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
