"""Training speed of the recurrent families beside JoeyNMT 2.3's recurrent models of the same shape, in target tokens/s.

    REGARD_DATA=… ./run bench recurrent

All read the same batches of Multi30k English to German in the same order, each model in a process of its own, in turn,
over several rounds. JoeyNMT's model and loss run in the plain loop of `train_step.py`, with fused AdamW, in bfloat16
autocast or float32, whichever was quicker in the first round; Regard is its Trainer with `precision = "auto"`, making
batches and everything else included. JoeyNMT has no recurrent decoder without attention, so `seq2seq` stands beside the
one that has least: Luong's without input feeding. Its encoder works in both directions only, each with half of the
width; so does ours here, which the paper's Luong does not. Bars: a family whose decoder waits for no
attention (seq2seq, Luong without input feeding) trains at least 3 times as fast, the others at least as fast.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import multi30k
import numpy as np
from environments import interpreter
from record import RESULTS, circumstances, write
from train_step import batches_of, spread
from workers import SCRATCH, BenchmarkError, Machine, at_least, exit_code, save_batches, threads_option

Table = dict[str, Any]

PEER: Table = {"cell": "lstm", "attention": "luong", "init_hidden": "last"}


def models_of(width: int, embedding: int, layers: int, dropout: float) -> dict[str, tuple[Table, Table, float]]:
    """By name: Regard's [model], JoeyNMT's in its own words, and how many times as fast Regard must be."""
    sizes = {"width": width, "embedding": embedding, "layers": layers}
    ours = {**sizes, "dropout": dropout, "bidirectional": True, "reverse_source": False}
    theirs = {**PEER, **sizes}
    both = {"width": width, "embedding": embedding, "layers": 1}
    bahdanau = {
        **{"family": "bahdanau", "width": width, "encoder_width": width, "embedding": embedding},
        **{"readout": width, "dropout": dropout},
    }
    its = {"cell": "gru", "attention": "bahdanau", "input_feeding": True}
    return {
        "seq2seq": ({"family": "seq2seq", **ours}, {**theirs, "input_feeding": False}, 3.0),
        "luong without input feeding": (
            {"family": "luong", "input_feeding": False, **ours},
            {**theirs, "input_feeding": False},
            3.0,
        ),
        "luong with input feeding": ({"family": "luong", **ours}, {**theirs, "input_feeding": True}, 1.0),
        "bahdanau": (bahdanau, {**its, **both, "init_hidden": "bridge"}, 1.0),
    }


def compare(arguments: argparse.Namespace) -> Table:
    machine = Machine(arguments.threads)
    prepared = multi30k.load(SCRATCH / f"multi30k-{arguments.vocabulary}", arguments.vocabulary)
    shape = {"width": arguments.width, "dropout": 0.2, "smoothing": 0.1, "vocabulary": len(prepared.source_tokenizer)}
    models = models_of(arguments.width, arguments.width // 2, arguments.layers, shape["dropout"])
    python = interpreter("joeynmt")
    batches = batches_of(prepared, arguments.batch_tokens, "padded", arguments.warmup + arguments.steps)
    expected = sum(batch.target_tokens for batch in batches[arguments.warmup :])
    runs: dict[str, dict[str, list[Table]]] = {name: {} for name in models}
    best: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "batches.npz"
        pairs = [(b.source, np.concatenate([b.target_input[:, :1], b.target_output], axis=1)) for b in batches]
        save_batches(path, pairs)
        for turn in range(arguments.rounds):
            for name, (ours, theirs, _) in models.items():
                tries = [best[name]] if name in best else ["bfloat16", "float32"]
                jobs: list[tuple[str, str, Table]] = [("regard", "regard_trainer", {"model": ours, "shape": shape})]
                jobs += [(p, "joeynmt_recurrent", {"shape": {**shape, "peer": theirs}}) for p in tries]
                for label, script, job in jobs if turn % 2 == 0 else jobs[::-1]:
                    job |= {"batches": str(path), "bfloat16": label == "bfloat16", "precision": "auto", "rate": 5e-4}
                    job |= {"warmup": arguments.warmup, "steps": arguments.steps, "memory": False}
                    found = machine.run(script, job, None if label == "regard" else python)
                    if found["tokens"] != expected:
                        raise BenchmarkError(f"{name}: {found['tokens']} target tokens; the batches hold {expected}.")
                    runs[name].setdefault(label, []).append(found)
                    print(
                        f"  round {turn + 1}: {name}, {label}: {expected / found['seconds']:,.0f} tokens/s", flush=True
                    )
                best.setdefault(name, min(tries, key=lambda label: float(runs[name][label][0]["seconds"])))
    return {
        "threads": arguments.threads,
        "shape": {**shape, "embedding": arguments.width // 2, "layers": arguments.layers},
        "batch_tokens": arguments.batch_tokens,
        "warmup": arguments.warmup,
        "steps": arguments.steps,
        "rounds": arguments.rounds,
        "models": {name: summary(runs[name], best[name], expected, models[name]) for name in models},
    }


def summary(runs: dict[str, list[Table]], best: str, tokens: int, model: tuple[Table, Table, float]) -> Table:
    speeds = {label: [tokens / run["seconds"] for run in runs[label]] for label in ("regard", best)}
    ratios = [a / b for a, b in zip(speeds["regard"], speeds[best], strict=True)]
    sides = {
        side: {
            "target_tokens_per_second": spread(speeds[label]),
            "parameters": runs[label][0]["parameters"],
            "loss": [runs[label][0]["losses"][0], runs[label][0]["losses"][-1]],
            "versions": runs[label][0]["versions"],
        }
        for side, label in (("regard", "regard"), ("joeynmt", best))
    }
    return {
        "model": model[0],
        "peer": {**model[1], "precision": best},
        **sides,
        "regard_is_faster_by": spread(ratios),
        "bar": model[2],
        "met": spread(ratios)["median"] >= model[2],
    }


def show(result: Table) -> None:
    print(f"\n{'model':30} {'regard':>8} {'JoeyNMT':>8}  in        regard is   bar")
    for name, row in result["models"].items():
        ours, theirs = (row[side]["target_tokens_per_second"]["median"] for side in ("regard", "joeynmt"))
        print(
            f"{name:30} {ours:8,.0f} {theirs:8,.0f}  {row['peer']['precision']:9} "
            f"{row['regard_is_faster_by']['median']:5.2f} times  {row['bar']:.0f}{'' if row['met'] else ', not met'}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small models, few steps: to see that it works")
    parser.add_argument("--rounds", type=at_least(1), help="how often each is timed (default: 3)")
    parser.add_argument("--steps", type=at_least(1), help="timed steps (default: 8)")
    parser.add_argument("--warmup", type=at_least(1), help="steps before them (default: 3)")
    parser.add_argument("--batch-tokens", type=at_least(64), help="padded tokens a side (default: 2048)")
    parser.add_argument("--width", type=at_least(2), help="of recurrent layers; embeddings have half (default: 512)")
    parser.add_argument("--layers", type=at_least(1), default=2, help="of encoder and decoder; Bahdanau has one")
    parser.add_argument("--vocabulary", type=at_least(300), default=8000, help="joint BPE tokens")
    parser.add_argument(
        "--results", type=Path, help="where to write (default: benchmarks/results, nowhere with --quick)"
    )
    threads_option(parser)
    arguments = parser.parse_args()
    names = ("rounds", "steps", "warmup", "batch_tokens", "width")
    for name, value in zip(names, (1, 2, 1, 256, 32) if arguments.quick else (3, 8, 3, 2048, 512), strict=True):
        if getattr(arguments, name) is None:
            setattr(arguments, name, value)
    if arguments.results is None and not arguments.quick:
        arguments.results = RESULTS / "recurrent.json"
    result = {**circumstances(), **compare(arguments)}
    show(result)
    if arguments.results:
        write(arguments.results, result)
        print(f"\nwritten to {arguments.results}")
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
