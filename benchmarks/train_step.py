"""Training speed of Regard and its peers, side by side: target tokens a second, memory, use of the machine.

    REGARD_DATA=… ./run bench train_step

All train the same Transformer (4 + 4 layers, width 256, 8,000 joint BPE tokens, tied embeddings, dropout 0.1) on
Multi30k English to German, each in a process of its own, in turn, over several rounds. The peers read the same batches
in the same order, rectangles of at most `--batch-tokens` a side, padding included. Regard reads these very batches with
`--layout padded`; with `--layout packed` it has as many tokens a side without padding. Each peer gets an environment of
its own (`.peers/`, made once with the versions below) and its best setting:

* regard: its Trainer on the token store, batches made as it goes, `precision = "auto"`; float32 is shown beside it.
* batched-products: a Transformer written by hand for a plain loop, attention by batched products.
* torch-transformer: torch.nn.Transformer in a plain loop.
* marian: Hugging Face's MarianMTModel in a plain loop.
* joeynmt, eole: their models and losses in a plain loop, on Regard's buckets of near-equal length.
* joeynmt-own: JoeyNMT 2.3 as its users run it, `python -m joeynmt train` on the text as tokens, in float32, for it has
  no 16-bit training on CPUs. Batches, loop, optimiser and dropout are its own; only the tokens are Regard's.

The plain loop (`peers/loop.py`) reads batches that are in memory before the clock starts, and has fused AdamW; peers
are tried with bfloat16 autocast and without in the first round, and go on with the quicker. Where a peer can leave out
dropout that the paper does not have (attention weights, inside the feed-forward network), it does. The first batches
are not timed.

A target token is a token to predict, the end of the sentence counted, padding not; each system must count those that
the batches hold. Memory is the most that was resident in the process. Utilisation is the operations of `flops.py` (6
for each multiply-add of a matrix that a token really passes through, attention's own products counted, padding not) a
second, over the most that the machine did in any round in a large square product in bfloat16 or float32 on as many
threads (`peers/peak.py`).

`--isa avx512` switches AMX off. `--isa avx2` stands for a machine without bfloat16: all train in float32, as Regard
chooses for itself there.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import multi30k
import numpy as np
from environments import interpreter
from flops import step_flops
from record import RESULTS, circumstances, write
from workers import ISAS, SCRATCH, BenchmarkError, Machine, at_least, exit_code, save_batches, threads_option

from regard.data.batches import Batch, Batches, Layout
from regard.settings import DataConfig
from regard.tasks.prepare import Prepared
from regard.text import END, write_lines

OWN = "joeynmt-own"
"""JoeyNMT's command; in the environment of `joeynmt`, on batches of its own."""

SYSTEMS = {
    "regard": "regard_trainer",
    "batched-products": "batched_products",
    "torch-transformer": "torch_transformer",
    "marian": "marian",
    "joeynmt": "joeynmt_model",
    OWN: "joeynmt_own",
    "eole": "eole_model",
}
"""Each system's script in `peers/`."""

SHAPE = {"layers": 4, "width": 256, "feedforward": 1024, "heads": 4, "dropout": 0.1, "smoothing": 0.1}
QUICK = {**SHAPE, "layers": 1, "width": 64, "feedforward": 256}
REFERENCE = "regard (float32)"

Lengths = list[tuple[int, int]]
"""Tokens of the source and of the target of pairs, ends counted."""


@dataclass(frozen=True)
class Row:
    """A line of the table: a system in one precision; of several with one name, the quickest stays."""

    system: str
    name: str
    precision: str


def rows_of(systems: list[str], isa: str) -> list[Row]:
    """What is tried. Regard chooses for itself, and its reference has a line of its own."""
    if isa == "avx2":
        return [Row(system, system, "float32") for system in systems]
    rows = []
    for system in systems:
        if system == "regard":
            rows += [Row(system, system, "auto"), Row(system, REFERENCE, "float32")]
        elif system == OWN:
            rows.append(Row(system, system, "float32"))
        else:
            rows += [Row(system, system, precision) for precision in ("bfloat16", "float32")]
    return rows


def batches_of(prepared: Prepared, tokens: int, layout: Layout, count: int) -> list[Batch]:
    """The first batches that Regard makes of the store."""
    made = Batches(prepared.train, batch_tokens=tokens, layout=layout, seed=1)
    return [next(made) for _ in range(count)]


def unsorted(lengths: Lengths, tokens: int, count: int) -> list[list[int]]:
    """The first batches of pairs in random order, cut as JoeyNMT does: once the longest side times pairs is `tokens`.

    They hold the pairs' places in `lengths`, which are drawn anew when all were there.
    """
    draw = np.random.default_rng(1)
    batches: list[list[int]] = [[]]
    while True:
        for place in draw.permutation(len(lengths)).tolist():
            batches[-1].append(place)
            if max(max(lengths[i]) for i in batches[-1]) * len(batches[-1]) >= tokens:
                if len(batches) == count:
                    return batches
                batches.append([])


def save_text(folder: Path, prepared: Prepared, lines: list[int]) -> None:
    """The tokens of these lines and the vocabulary, as `peers/joeynmt_own.py` reads them."""
    tokenizer, store = prepared.source_tokenizer, prepared.train
    for side, ids_of in (("source", store.source_ids), ("target", store.target_ids)):
        write_lines(folder / f"train.{side}", (" ".join(tokenizer.tokens(ids_of(line))) for line in lines))
    write_lines(folder / "vocabulary.txt", tokenizer.tokens(range(END + 1, len(tokenizer))))


def lengths_of(batch: Batch) -> Lengths:
    return list(zip(batch.source_lengths.tolist(), batch.target_lengths.tolist(), strict=True))


def work_of(shape: dict[str, Any], batches: list[Lengths]) -> tuple[int, float]:
    """Target tokens and operations of training on these batches once."""
    pairs = [pair for batch in batches for pair in batch]
    return sum(t for _, t in pairs), step_flops(shape, pairs)


def spread(values: list[float]) -> dict[str, Any]:
    return {"median": median(values), "least": min(values), "most": max(values), "rounds": values}


def compare(arguments: argparse.Namespace) -> dict[str, Any]:
    machine = Machine(arguments.threads, arguments.isa)
    prepared = multi30k.load(SCRATCH / f"multi30k-{arguments.vocabulary}", arguments.vocabulary)
    shape = {**(QUICK if arguments.quick else SHAPE), "vocabulary": len(prepared.source_tokenizer)}
    pythons = {system: interpreter("joeynmt" if system == OWN else system) for system in arguments.only}
    steps = arguments.warmup + arguments.steps
    padded = batches_of(prepared, arguments.batch_tokens, "padded", steps)
    own = padded if arguments.layout == "padded" else batches_of(prepared, arguments.batch_tokens, "packed", steps)
    store = prepared.train
    stored = list(zip((store.source.lengths + 1).tolist(), (store.target.lengths + 1).tolist(), strict=True))
    mixed = unsorted(stored, arguments.batch_tokens, steps)
    read = {system: [lengths_of(batch) for batch in padded] for system in arguments.only}
    read |= {"regard": [lengths_of(batch) for batch in own], OWN: [[stored[i] for i in lines] for lines in mixed]}
    work = {system: work_of(shape, batches[arguments.warmup :]) for system, batches in read.items()}
    peak = {"bfloat16": 0.0, "float32": 0.0}
    sizes = [512] if arguments.quick else [2048, 4096]
    rows = rows_of(arguments.only, arguments.isa)
    runs: dict[Row, list[dict[str, Any]]] = {row: [] for row in rows}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "batches.npz"
        pairs = [(b.source, np.concatenate([b.target_input[:, :1], b.target_output], axis=1)) for b in padded]
        save_batches(path, pairs)
        save_text(Path(folder), prepared, [line for lines in mixed for line in lines])
        for turn in range(arguments.rounds):
            # In every round, for one that falls into a busy moment would flatter all.
            measured = machine.run("peak", {"sizes": sizes, "turns": 3})
            peak = {name: max(best, measured[name]) for name, best in peak.items()}
            for row in rows if turn % 2 == 0 else rows[::-1]:  # so that a machine that slows down slows all
                job = {
                    "batches": str(path),
                    "store": str(store.path),
                    "text": folder,
                    "sizes": [(len(pairs), sum(t for _, t in pairs)) for pairs in read[OWN]],
                    "batch_tokens": arguments.batch_tokens,
                    "layout": arguments.layout,
                    "shape": shape,
                    "bfloat16": row.precision == "bfloat16",
                    "precision": row.precision,
                    "warmup": arguments.warmup,
                    "steps": arguments.steps,
                    "rate": 5e-4,
                    "memory": False,
                }
                tokens = work[row.system][0]
                found = machine.run(SYSTEMS[row.system], job, pythons[row.system])
                if found["tokens"] != tokens:
                    raise BenchmarkError(
                        f"{row.name} counted {found['tokens']} target tokens, the batches hold {tokens}."
                    )
                runs[row].append(found)
                speed = tokens / found["seconds"]
                print(f"  round {turn + 1}: {row.system} ({row.precision}) {speed:,.0f} tokens/s", flush=True)
            if turn == 0:
                rows = [row for row in rows if row == quickest(runs, row.name)]
    most = max(peak.values())
    table = {}
    for row in rows:
        tokens, flops = work[row.system]
        speeds = [tokens / found["seconds"] for found in runs[row]]
        table[row.name] = {
            "precision": row.precision,
            "target_tokens_per_second": spread(speeds),
            "peak_bytes": spread([found["peak_bytes"] for found in runs[row]]),
            "target_tokens": tokens,
            "model_flops": flops,
            "utilisation": median(speeds) / tokens * flops / most,
            "parameters": runs[row][0]["parameters"],
            "loss": [runs[row][0]["losses"][0], runs[row][0]["losses"][-1]],
            "versions": runs[row][0]["versions"],
            "first_round": {
                tried.precision: tokens / runs[tried][0]["seconds"] for tried in runs if tried.name == row.name
            },
        }
    return {
        "isa": arguments.isa,
        "threads": arguments.threads,
        "shape": shape,
        "batch_tokens": arguments.batch_tokens,
        "layout": arguments.layout,
        "warmup": arguments.warmup,
        "steps": arguments.steps,
        "rounds": arguments.rounds,
        "peak_flops_per_second": peak,
        "systems": table,
        "regard_is_faster_by": faster(table),
    }


def quickest(runs: dict[Row, list[dict[str, Any]]], name: str) -> Row:
    """Of the lines with one name, the one that goes on to the later rounds."""
    return min((row for row in runs if row.name == name), key=lambda row: float(runs[row][0]["seconds"]))


def faster(table: dict[str, Any]) -> dict[str, Any]:
    """Regard's speed over each other's, round by round, for those of a round ran under like conditions."""
    if "regard" not in table:
        return {}
    own = table["regard"]["target_tokens_per_second"]["rounds"]
    others = {name: row["target_tokens_per_second"]["rounds"] for name, row in table.items() if name != "regard"}
    return {name: spread([a / b for a, b in zip(own, speeds, strict=True)]) for name, speeds in others.items()}


def show(result: dict[str, Any]) -> None:
    best = ", ".join(f"{peak / 1e9:.0f} GFLOP/s in {name}" for name, peak in result["peak_flops_per_second"].items())
    print(f"\nthe machine's peak: {best}")
    print(f"{'system':20} {'precision':10} {'tokens/s':>9} {'spread':>17} {'memory':>9} {'use':>6} {'regard is':>11}")
    for name, row in result["systems"].items():
        speed = row["target_tokens_per_second"]
        ratio = result["regard_is_faster_by"].get(name)
        print(
            f"{name:20} {row['precision']:10} {speed['median']:9,.0f} {speed['least']:8,.0f}-{speed['most']:8,.0f} "
            f"{row['peak_bytes']['median'] / 2**20:6,.0f} MB {row['utilisation']:6.1%} "
            + (f"{ratio['median']:6.2f} times" if ratio else "")
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small model, few steps: to see that it works")
    parser.add_argument("--rounds", type=at_least(1), help="how often each is timed (default: 5)")
    parser.add_argument("--steps", type=at_least(1), help="timed steps (default: 30)")
    parser.add_argument("--warmup", type=at_least(1), help="steps before them (default: 8)")
    parser.add_argument("--batch-tokens", type=at_least(64), help="padded tokens a side (default: 4096)")
    parser.add_argument(
        "--layout",
        choices=["padded", "packed"],
        default=DataConfig.model_fields["layout"].default,
        help="of Regard's batches (default: the recipe's)",
    )
    parser.add_argument("--vocabulary", type=at_least(300), default=8000, help="joint BPE tokens")
    parser.add_argument(
        "--only", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), metavar="NAME", help=", ".join(SYSTEMS)
    )
    parser.add_argument(
        "--results", type=Path, help="where to write (default: benchmarks/results, nowhere with --quick)"
    )
    threads_option(parser)
    parser.add_argument("--isa", choices=ISAS, default="native", help="what of the processor is used")
    arguments = parser.parse_args()
    defaults = (1, 3, 1, 512) if arguments.quick else (5, 30, 8, 4096)
    for name, value in zip(("rounds", "steps", "warmup", "batch_tokens"), defaults, strict=True):
        if getattr(arguments, name) is None:
            setattr(arguments, name, value)
    if arguments.results is None and not arguments.quick:
        name = "train_step" if arguments.isa == "native" else f"train_step_{arguments.isa}"
        arguments.results = RESULTS / f"{name}.json"
    result = {**circumstances(), **compare(arguments)}
    show(result)
    if arguments.results:
        write(arguments.results, result)
        print(f"\nwritten to {arguments.results}")
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
