"""Training speed of Regard and its peers, side by side: target tokens a second, memory, use of the machine.

    REGARD_DATA=… ./run bench train_step

All train the same Transformer (4 + 4 layers, width 256, 8,000 joint BPE tokens, tied embeddings, dropout 0.1) on
Multi30k English to German, each in a process of its own, in turn, over several rounds. The peers read the same batches
in the same order, rectangles of at most `--batch-tokens` a side, padding included. Regard reads these very batches with
`--layout padded`; with `--layout packed` it has as many tokens a side without padding. Each peer gets an environment of
its own (`.peers/`, made once with the versions in `environments.py`) and its best setting:

* regard: its Trainer on the token store, batches made as it goes, `precision = "auto"`; float32 is shown beside it.
* batched-products: a Transformer written by hand for a plain loop, attention by batched products.
* torch-transformer: torch.nn.Transformer in a plain loop.
* joeynmt, eole: their models and losses in a plain loop, on Regard's buckets of near-equal length.
* marian-own: Marian's own trainer in C++ by the wheel pymarian, on the text as tokens; float32, its own batches.
* marian: Hugging Face's MarianMTModel in a plain loop, and joeynmt-own: JoeyNMT 2.3 as its users run it, `python -m
  joeynmt train`, in float32, for it has no 16-bit training on CPUs; both only where `--only` names them.

Peers in a plain loop are tried with bfloat16 autocast and with float32, which have a line each; and, in the quicker of
the two, with lengths rounded up to a multiple of 4, as Regard rounds them; with the C library's allocator told to keep
what is freed, as Regard tells it; with tcmalloc and with jemalloc, where this machine has them (Debian:
libtcmalloc-minimal4, libjemalloc2). The quickest way goes on in both precisions. `--compile` tries torch.compile on the
two loops that are plain PyTorch.

The plain loop (`peers/loop.py`) reads batches that are in memory before the clock starts, and has fused AdamW. Where a
peer can leave out dropout that the paper does not have (attention weights, inside the feed-forward network), it does.
The first batches are not timed.

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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import multi30k
import numpy as np
from environments import interpreter
from flops import step_flops
from record import RESULTS, circumstances, write
from tables import train_step_tables
from workers import ISAS, SCRATCH, BenchmarkError, Machine, at_least, exit_code, save_batches, threads_option

from regard.data.batches import Batch, Batches, Layout
from regard.data.store import Store
from regard.settings import DataConfig
from regard.tasks.prepare import Prepared
from regard.text import END, PAD, Tokenizer, write_lines

OWN, MARIAN = "joeynmt-own", "marian-own"
"""JoeyNMT's command, in the environment of `joeynmt`, and Marian's trainer: on batches of their own."""

SYSTEMS = {
    "regard": "regard_trainer",
    "batched-products": "batched_products",
    "torch-transformer": "torch_transformer",
    "joeynmt": "joeynmt_model",
    "eole": "eole_model",
    MARIAN: "marian_own",
    "marian": "marian",
    OWN: "joeynmt_own",
}
"""Each system's script in `peers/`."""
USUAL = list(SYSTEMS)[:6]
HOUSES = {OWN: "joeynmt", MARIAN: "pymarian"}
"""Whose environment a system has, if not its own."""
KEPT = {"MALLOC_MMAP_THRESHOLD_": str(2**30), "MALLOC_TRIM_THRESHOLD_": str(2**31 - 1), "MALLOC_TOP_PAD_": str(2**26)}
"""What `regard.kernels.native.keep_memory` tells the C library, for another process."""
LIBRARIES = {"tcmalloc": "libtcmalloc_minimal.so.4", "jemalloc": "libjemalloc.so.2"}

SHAPE = {"layers": 4, "width": 256, "feedforward": 1024, "heads": 4, "dropout": 0.1, "smoothing": 0.1}
QUICK = {**SHAPE, "layers": 1, "width": 64, "feedforward": 256}
REFERENCE = "regard (float32)"

Lengths = list[tuple[int, int]]
"""Tokens of the source and of the target of pairs, ends counted."""


@dataclass(frozen=True)
class Way:
    """How a peer is run beside its precision: what its environment says, rounded lengths, compiled or not."""

    name: str = "as it is"
    environment: tuple[tuple[str, str], ...] = ()
    rounded: bool = False
    compiled: bool = False


@dataclass(frozen=True)
class Row:
    """A line of the table: a system in one precision."""

    system: str
    name: str
    precision: str


def rows_of(systems: list[str], isa: str) -> list[Row]:
    """The lines. Regard chooses for itself, and its float32 has a line of its own."""
    rows = []
    for system in systems:
        if isa == "avx2":
            rows.append(Row(system, system, "float32"))
        elif system == "regard":
            rows += [Row(system, system, "auto"), Row(system, REFERENCE, "float32")]
        elif system in HOUSES:
            rows.append(Row(system, system, "float32"))
        else:
            rows += [Row(system, f"{system} ({precision})", precision) for precision in ("bfloat16", "float32")]
    return rows


def ways(compiled: bool) -> list[Way]:
    """What a peer in a plain loop is tried with, beside as it is."""
    kept = tuple(KEPT.items())
    found = [Way("rounded", rounded=True), Way("kept memory", kept), Way("kept memory, rounded", kept, rounded=True)]
    for name, library in LIBRARIES.items():
        places = sorted(Path("/usr/lib").glob(f"**/{library}"))
        found += [Way(name, (("LD_PRELOAD", str(place)),)) for place in places[:1]]
    return found + ([Way("compiled", kept, rounded=True, compiled=True)] if compiled else [])


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


def save_text(folder: Path, tokenizer: Tokenizer, store: Store, lines: Sequence[int], name: str = "train") -> None:
    """The tokens of these lines and the vocabulary, as `peers/joeynmt_own.py` reads them."""
    for side, ids_of in (("source", store.source.line_ids), ("target", store.target.line_ids)):
        write_lines(folder / f"{name}.{side}", (" ".join(tokenizer.tokens(ids_of(line))) for line in lines))
    write_lines(folder / "vocabulary.txt", tokenizer.tokens(range(END + 1, len(tokenizer))))


def lengths_of(batch: Batch) -> Lengths:
    return list(zip(batch.source_lengths.tolist(), batch.target_lengths.tolist(), strict=True))


def work_of(shape: dict[str, Any], batches: list[Lengths]) -> tuple[int, float]:
    """Target tokens and operations of training on these batches once."""
    pairs = [pair for batch in batches for pair in batch]
    return sum(t for _, t in pairs), step_flops(shape, pairs)


def spread(values: list[float]) -> dict[str, Any]:
    return {"median": median(values), "least": min(values), "most": max(values), "rounds": values}


class Bench:
    """What all systems are given, and how one is run."""

    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self.arguments, self.folder = arguments, folder
        self.machine = Machine(arguments.threads, arguments.isa)
        prepared = multi30k.load(SCRATCH / f"multi30k-{arguments.vocabulary}", arguments.vocabulary)
        self.shape = {**(QUICK if arguments.quick else SHAPE), "vocabulary": len(prepared.source_tokenizer)}
        self.store = store = prepared.train
        steps, tokens = arguments.warmup + arguments.steps, arguments.batch_tokens
        padded = batches_of(prepared, tokens, "padded", steps)
        own = padded if arguments.layout == "padded" else batches_of(prepared, tokens, "packed", steps)
        stored = list(zip((store.source.lengths + 1).tolist(), (store.target.lengths + 1).tolist(), strict=True))
        mixed = unsorted(stored, tokens, steps)
        self.read = {system: [lengths_of(batch) for batch in padded] for system in SYSTEMS}
        self.read |= {
            "regard": [lengths_of(batch) for batch in own],
            OWN: [[stored[i] for i in lines] for lines in mixed],
        }
        pairs = [(b.source, np.concatenate([b.target_input[:, :1], b.target_output], axis=1)) for b in padded]
        save_batches(folder / "batches.npz", pairs)
        save_batches(folder / "rounded.npz", [(rounded(a, 0), rounded(b, 1)) for a, b in pairs])
        save_text(folder, prepared.source_tokenizer, store, [line for lines in mixed for line in lines])

    def run(self, row: Row, way: Way, warmup: int, steps: int) -> dict[str, Any]:
        """What a system's script finds; it must count the tokens that its batches hold."""
        read = self.read[row.system][: warmup + steps]
        job = {
            "batches": str(self.folder / ("rounded.npz" if way.rounded else "batches.npz")),
            "store": str(self.store.path),
            "text": str(self.folder),
            "sizes": [(len(pairs), sum(t for _, t in pairs)) for pairs in read],
            "batch_tokens": self.arguments.batch_tokens,
            "layout": self.arguments.layout,
            "shape": self.shape,
            "bfloat16": row.precision == "bfloat16",
            "precision": row.precision,
            "warmup": warmup,
            "steps": steps,
            "rate": 5e-4,
            "memory": False,
            "compiled": way.compiled,
        }
        python = interpreter(HOUSES.get(row.system, row.system))
        found = self.machine.run(SYSTEMS[row.system], job, python, dict(way.environment))
        tokens, found["flops"] = work_of(self.shape, read[warmup:])
        if row.system == MARIAN:  # its batches are its own
            found["flops"] *= found["tokens"] / tokens
        elif found["tokens"] != tokens:
            raise BenchmarkError(f"{row.name} counted {found['tokens']} target tokens, the batches hold {tokens}.")
        found["speed"] = found["tokens"] / found["seconds"]
        return found


def rounded(ids: Any, beside: int) -> Any:
    """The same rectangle with its length rounded up to a multiple of 4, not counting what begins each row."""
    return np.pad(ids, ((0, 0), (0, -(ids.shape[1] - beside) % 4)), constant_values=PAD)


def best_ways(bench: Bench, rows: list[Row], result: dict[str, Any], save: Any) -> dict[str, Way]:
    """Of each peer in a plain loop the way that it is quickest in, by short runs; what was found goes into `tried`."""
    found: dict[str, Way] = {}
    short = (min(bench.arguments.warmup, 4), min(bench.arguments.steps, 4))
    for system in dict.fromkeys(row.system for row in rows):
        own = [row for row in rows if row.system == system]
        if system == "regard" or system in HOUSES:
            found[system] = Way()
            continue
        speeds: dict[tuple[Row, Way], float] = {}
        result["tried"][system] = {}

        def measure(row: Row, way: Way, system: str = system, speeds: Any = speeds) -> None:
            try:
                speed = bench.run(row, way, *short)["speed"]
            except BenchmarkError as error:
                result["tried"][system][f"{row.precision}, {way.name}"] = str(error)[-300:]
                return
            speeds[row, way] = speed
            result["tried"][system][f"{row.precision}, {way.name}"] = speed
            print(f"  {system}, {row.precision}, {way.name}: {speed:,.0f} tokens/s", flush=True)
            save()

        for row in own:
            measure(row, Way())
        if not speeds:
            raise BenchmarkError(f"{system} does not run: {result['tried'][system]}")
        quicker = max(speeds, key=lambda key: speeds[key])[0]
        for way in ways(bench.arguments.compile and system in ("batched-products", "torch-transformer")):
            measure(quicker, way)
        found[system] = max((key for key in speeds if key[0] == quicker), key=lambda key: speeds[key])[1]
    return found


def compare(arguments: argparse.Namespace, save: Any) -> dict[str, Any]:
    """All rounds; `save` is given what is known after each."""
    peak = {"bfloat16": 0.0, "float32": 0.0}
    rows = rows_of(arguments.only, arguments.isa)
    runs: dict[Row, list[dict[str, Any]]] = {row: [] for row in rows}
    keys = ("isa", "threads", "batch_tokens", "layout", "warmup", "steps", "rounds")
    result: dict[str, Any] = {**{key: getattr(arguments, key) for key in keys}, "tried": {}, "systems": {}}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(arguments, Path(folder))
        result |= {"shape": bench.shape, "peak_flops_per_second": peak}
        best = best_ways(bench, rows, result, lambda: save(result))
        for turn in range(arguments.rounds):
            # In every round, for one that falls into a busy moment would flatter all.
            measured = bench.machine.run("peak", {"sizes": [512] if arguments.quick else [2048, 4096], "turns": 3})
            peak |= {name: max(most, measured[name]) for name, most in peak.items()}
            for row in rows if turn % 2 == 0 else rows[::-1]:  # so that a machine that slows down slows all
                runs[row].append(bench.run(row, best[row.system], arguments.warmup, arguments.steps))
                print(f"  round {turn + 1}: {row.name} {runs[row][-1]['speed']:,.0f} tokens/s", flush=True)
            result["systems"] = {
                row.name: line_of(row, best[row.system], runs[row], max(peak.values())) for row in rows
            }
            result["regard_is_faster_by"] = faster(result["systems"])
            save(result)
    return result


def line_of(row: Row, way: Way, runs: list[dict[str, Any]], most: float) -> dict[str, Any]:
    """A line of the table from its runs, of a machine that does `most` operations a second."""
    speeds = [found["speed"] for found in runs]
    return {
        "precision": row.precision,
        "way": way.name,
        "target_tokens_per_second": spread(speeds),
        "peak_bytes": spread([found["peak_bytes"] for found in runs]),
        "utilisation": median(found["flops"] / found["seconds"] for found in runs) / most,
        "parameters": runs[0]["parameters"],
        "loss": [runs[0]["losses"][0], runs[0]["losses"][-1]],
        "versions": runs[0]["versions"],
    }


def faster(table: dict[str, Any]) -> dict[str, Any]:
    """Regard's speed over each other's, round by round, for those of a round ran under like conditions.

    Its float32 is held against the others' float32.
    """
    found: dict[str, Any] = {}
    for ours in ("regard", REFERENCE):
        for name, row in table.items():
            if (
                ours not in table
                or name in ("regard", REFERENCE)
                or (ours == REFERENCE and row["precision"] != "float32")
            ):
                continue
            pairs = zip(*(table[each]["target_tokens_per_second"]["rounds"] for each in (ours, name)), strict=True)
            found.setdefault(ours, {})[name] = spread([a / b for a, b in pairs])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small model, few steps: to see that it works")
    parser.add_argument("--rounds", type=at_least(1), help="how often each is timed (default: 5)")
    parser.add_argument("--steps", type=at_least(1), help="timed steps (default: 30)")
    parser.add_argument("--warmup", type=at_least(1), help="steps before them (default: 30)")
    parser.add_argument("--batch-tokens", type=at_least(64), help="padded tokens a side (default: 4096)")
    parser.add_argument(
        "--layout",
        choices=["padded", "packed"],
        default=DataConfig.model_fields["layout"].default,
        help="of Regard's batches (default: the recipe's)",
    )
    parser.add_argument("--vocabulary", type=at_least(300), default=8000, help="joint BPE tokens")
    parser.add_argument("--only", nargs="+", choices=SYSTEMS, default=USUAL, metavar="NAME", help=", ".join(SYSTEMS))
    parser.add_argument(
        "--results", type=Path, help="where to write (default: benchmarks/results, nowhere with --quick)"
    )
    parser.add_argument("--compile", action="store_true", help="try torch.compile too, which takes minutes")
    threads_option(parser)
    parser.add_argument("--isa", choices=ISAS, default="native", help="what of the processor is used")
    arguments = parser.parse_args()
    defaults = (1, 3, 1, 512) if arguments.quick else (5, 30, 30, 4096)
    for name, value in zip(("rounds", "steps", "warmup", "batch_tokens"), defaults, strict=True):
        if getattr(arguments, name) is None:
            setattr(arguments, name, value)
    if arguments.results is None and not arguments.quick:
        name = "train_step" if arguments.isa == "native" else f"train_step_{arguments.isa}"
        arguments.results = RESULTS / f"{name}.json"

    def save(found: dict[str, Any]) -> None:
        if arguments.results:
            write(arguments.results, {**circumstances(), **found})

    print("\n\n".join(train_step_tables(compare(arguments, save))))
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
