"""Contrasts that lectures draw, by what they do to BLEU: pooling, order, frequent words damped, no places.

    REGARD_DATA=… ./run bench contrasts

Each is one key of a recipe. The small Transformer of `recipes/multi30k-de-en/small.toml` and Bahdanau's model are
trained on Multi30k German to English, several seeds each, as many updates for all of a family; BLEU and
perplexity a token are of the dev set. A contrast of Bahdanau's model is compared with Bahdanau's model. Perplexity is
never weighted, whatever the training loss.

Runs are kept in `--runs` and taken up again; with `--minutes` no run begins after so many.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch
from variants import chosen, compared, keep, show, train_all
from workers import ROOT, at_least, exit_code, threads_option

_DAMPED = {
    "damping 0.1": ["train.regularizers.token-weights=0.1"],
    "damping 0.01": ["train.regularizers.token-weights=0.01"],
}

FAMILIES: dict[str, dict[str, list[str]]] = {
    "transformer": {
        "transformer": [],
        "right to left": ['text.order="right-to-left"'],
        **_DAMPED,
        "frequent words cost 0.1": ["train.regularizers.attention-cost=0.1"],
        "source table apart": ['model.share="target"'],
        "source table apart, frequent words short": ['model.share="target"', "train.regularizers.input-weights=0.01"],
        "mean pooling": ['model.score="mean"'],
        "no places": ['model.positions="none"'],
    },
    "bahdanau": {
        "bahdanau": [],
        "bahdanau, right to left": ['text.order="right-to-left"'],
        "bahdanau, frequent words cost 0.1": ["train.regularizers.attention-cost=0.1"],
        "bahdanau, frequent words short": ["train.regularizers.input-weights=0.01"],
        "bahdanau, mean pooling": ['model.score="mean"'],
    },
}
"""By family the variants, the first being that which its others are compared with."""

_SIZES = ["width=192", "encoder_width=192", "embedding=128", "readout=128", "dropout=0.2", "init_range=0.05"]


def model_of(family: str) -> list[str]:
    """What makes the recipe one of this family."""
    if family == "transformer":
        return []
    # The recipe's [model] is a Transformer's, so the table is given anew.
    table = ", ".join(size.replace("=", " = ") for size in _SIZES)
    return [f'model={{ family = "bahdanau", {table} }}']


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    names = [name for variants in FAMILIES.values() for name in variants]
    parser.add_argument("--seeds", type=at_least(1), default=3, help="of each variant (default: 3)")
    parser.add_argument("--updates", type=at_least(1), help="of each run (default: the recipe's)")
    parser.add_argument("--minutes", type=at_least(1), default=60, help="no run begins after these (default: 60)")
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "contrasts", help="where runs are kept")
    parser.add_argument("--quick", action="store_true", help="two variants, one seed, 4 updates: to see that it works")
    parser.add_argument("--results", type=Path, help="where to write (default: benchmarks/results, not in part)")
    threads_option(parser)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    quick = ["search.beam=1", "search.extra_length=2", "train.validate_every=4", "train.max_updates=4"]
    until = time.monotonic() + 60 * arguments.minutes
    changes, runs, tables = {}, {}, {}
    for family, every in FAMILIES.items():
        if not set(every) & set(arguments.only or names):
            continue
        variants, common = chosen(every, arguments.only), model_of(family)
        if arguments.quick:
            variants, common, arguments.seeds = dict(list(variants.items())[:2]), [*common, *quick], 1
        elif arguments.updates:
            common = [*common, f"train.max_updates={arguments.updates}"]
        changes[family] = variants
        runs[family] = train_all(variants, arguments.seeds, until, arguments.runs, common)
        tables[family] = compared(runs[family], ["bleu", "perplexity"])
        show(tables[family])
    keep(arguments, "contrasts", {"changes": changes, "runs": runs, "tables": tables})
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
