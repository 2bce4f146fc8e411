"""Decoding speed of Regard, CTranslate2 and Hugging Face's generate on a CPU: the same weights, sentences and search.

    regard train recipes/tatoeba-en-de/base.toml --out runs/tatoeba-en-de-base
    ./run bench decode --bundle runs/tatoeba-en-de-base/bundle --source test.en.gz --reference test.de.gz

Each system runs in a process of its own, in turn, over several rounds, with as many threads as `--threads`. The first
round tries what each can be set to: CTranslate2 every compute type that this processor has, with one worker on all
threads and with a worker a thread; Hugging Face float32 and bfloat16. Of these the quickest goes on, chosen for each
setting (batch, beam) by itself. Regard is shown in all its precisions. CTranslate2's model is exported in the type that
it computes in, so that it need not convert. A beam stops when as many hypotheses as it is wide have ended, which is
CTranslate2's rule; Hugging Face keeps its own. Regard decodes `batch` sentences at a time and takes the next where one
is done; CTranslate2 and the loop around Hugging Face are given all sentences and cut them into batches by length.

Target tokens are pieces, the end counted, of what each system wrote itself. Latencies are of calls with one sentence,
with all threads on it. Memory is the most that was resident in a process that decodes at batch 32 and beam 4, and
nothing else; `baseline` is a process that only imports PyTorch and Regard. The second table is of cost: microseconds a
target token of Regard's in int8, all translations made to have as many pieces.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from record import RESULTS, circumstances, write
from workers import BenchmarkError, Machine, at_least, exit_code, threads_option

from regard.bundle import Bundle, load
from regard.metrics import score
from regard.nn.decoding import PRECISIONS
from regard.tasks.exchange.ctranslate2 import write_ctranslate2
from regard.text import read_lines

SETTINGS = ((32, 4), (32, 1), (1, 4), (1, 1))
"""Sentences decoded together, and beam."""
COSTS = {
    "length": [{"batch": 32, "beam": 4, "fixed": length} for length in (10, 20, 40, 80)],
    "beam": [{"batch": 32, "beam": beam, "fixed": 20} for beam in (1, 2, 4, 8, 16)],
    "batch": [{"batch": batch, "beam": 4, "fixed": 20} for batch in (1, 2, 4, 8, 16, 32, 64)],
}


@dataclass(frozen=True)
class Choice:
    """How a system can be set."""

    system: str
    precision: str
    workers: int = 1

    def __str__(self) -> str:
        return f"{self.system} {self.precision}" + (f", {self.workers} workers" if self.workers > 1 else "")


class Bench:
    """The jobs that all systems are given."""

    def __init__(self, arguments: argparse.Namespace, bundle: Bundle, folder: Path) -> None:
        self.machine, self.bundle, self.folder = Machine(arguments.threads), bundle, folder
        self.counts = {32: arguments.lines, 1: max(arguments.lines // 8, 1)}
        lines = read_lines(arguments.source)
        self.sources = [bundle.source.encode(line) for line in lines]
        self.references = read_lines(arguments.reference)
        self.pieces = bundle.source.pieces(range(len(bundle.source)))
        self.extra = bundle.recipe.search.extra_length

    def run(self, choice: Choice, settings: list[dict[str, Any]], turns: int) -> dict[str, Any]:
        directory = self.folder / choice.precision
        if choice.system == "ctranslate2" and not directory.exists():
            directory.mkdir()
            write_ctranslate2(self.bundle, directory, choice.precision)
        return self.machine.run(
            "decoder",
            {
                "system": choice.system,
                "precision": choice.precision,
                "workers": choice.workers,
                "bundle": str(self.bundle.path),
                "directory": str(directory),
                "pieces": self.pieces if choice.system == "ctranslate2" else [],
                "sources": self.sources,
                "alpha": 1.0,
                "extra": self.extra,
                "threads": self.machine.threads,
                "turns": turns,
                "settings": [{"single": False, "fixed": 0, **setting} for setting in settings],
            },
        )

    def speeds(self, choice: Choice, pairs: list[tuple[int, int]], turns: int) -> dict[tuple[int, int], float]:
        """Target tokens a second in each setting."""
        settings = [{"batch": batch, "beam": beam, "count": self.counts[batch]} for batch, beam in pairs]
        found = self.run(choice, settings, turns)["results"]
        return {
            pair: sum(len(ids) + 1 for ids in one["ids"]) / median(sum(calls) for calls in one["seconds"])
            for pair, one in zip(pairs, found, strict=True)
        }

    def latency(self, choice: Choice, turns: int) -> dict[str, dict[str, float]]:
        """Milliseconds of a call with one sentence."""
        settings = [{"batch": 1, "beam": beam, "count": self.counts[1], "single": True} for beam in (4, 1)]
        found = self.run(choice, settings, turns)["results"]
        table = {}
        for setting, one in zip(settings, found, strict=True):
            each = sorted(median(calls) * 1000 for calls in zip(*one["seconds"], strict=True))
            table[f"beam {setting['beam']}"] = {"p50": median(each), "p95": quantiles(each, n=20)[-1]}
        return table

    def quality(self, choice: Choice) -> dict[str, Any]:
        """BLEU of all lines at beam 4, and the memory of the process that wrote them."""
        found = self.run(choice, [{"batch": 32, "beam": 4, "count": len(self.sources)}], 1)
        texts = [self.bundle.target.decode(ids) for ids in found["results"][0]["ids"]]
        bleu = score(texts, [self.references], ["bleu"], resamples=0)["bleu"]
        return {"bleu": bleu.value, "signature": bleu.signature, "peak_bytes": found["peak_bytes"], "texts": texts}


def named(pair: tuple[int, int]) -> str:
    return f"batch {pair[0]}, beam {pair[1]}"


def choices_of(systems: list[str], threads: int) -> list[Choice]:
    found = [Choice("regard", precision) for precision in PRECISIONS]
    if "ctranslate2" in systems:
        import ctranslate2

        types = sorted(ctranslate2.get_supported_compute_types("cpu"))
        found += [Choice("ctranslate2", kind, workers) for kind in types for workers in sorted({1, threads})]
    if "huggingface" in systems:
        found += [Choice("huggingface", precision) for precision in ("float32", "bfloat16")]
    return found


def compare(arguments: argparse.Namespace, bench: Bench) -> dict[str, Any]:
    tried: dict[Choice, dict[tuple[int, int], float]] = {}
    for choice in choices_of(arguments.only, arguments.threads):
        tried[choice] = bench.speeds(choice, list(SETTINGS), 1)
        shown = "; ".join(f"{named(pair)}: {speed:,.0f}" for pair, speed in tried[choice].items())
        print(f"  {choice}: {shown} tokens/s", flush=True)
    best: dict[tuple[str, tuple[int, int]], Choice] = {}
    for system in dict.fromkeys(choice.system for choice in tried):
        for pair in SETTINGS:
            own = [choice for choice in tried if choice.system == system]
            best[system, pair] = max(own, key=lambda choice: tried[choice][pair])
    going = {choice: list(SETTINGS) for choice in tried if choice.system == "regard"}
    for (_, pair), choice in best.items():
        pairs = going.setdefault(choice, [])
        if pair not in pairs:
            pairs.append(pair)
    rounds: dict[tuple[Choice, tuple[int, int]], list[float]] = {}
    for turn in range(arguments.rounds):
        for choice in list(going)[:: 1 if turn % 2 == 0 else -1]:  # a machine that slows down slows all
            for pair, speed in bench.speeds(choice, going[choice], arguments.turns).items():
                rounds.setdefault((choice, pair), []).append(speed)
        print(f"  round {turn + 1} of {arguments.rounds}", flush=True)
    table = {}
    for pair in SETTINGS:
        rows = {}
        for choice in going:
            if speeds := rounds.get((choice, pair)):
                rows[str(choice)] = {"median": median(speeds), "least": min(speeds), "most": max(speeds)}
        own = rounds[best["regard", pair], pair]
        times = {
            system: median(a / b for a, b in zip(own, rounds[best[system, pair], pair], strict=True))
            for system in ("ctranslate2", "huggingface")
            if (system, pair) in best
        }
        table[named(pair)] = {"target_tokens_per_second": rows, "regard_is_faster_by": times}
    kept = {str(choice): choice for choice in going}
    qualities = {name: bench.quality(choice) for name, choice in kept.items()}
    exact = next(one["texts"] for name, one in qualities.items() if name == "regard float32")
    for one in qualities.values():
        one["same_lines_as_float32"] = sum(a == b for a, b in zip(one.pop("texts"), exact, strict=True)) / len(exact)
    whole = {name: choice for name, choice in kept.items() if choice.workers == 1}
    if "ctranslate2" in arguments.only:  # a sentence alone has one worker
        one = max((c for c in tried if c.system == "ctranslate2" and c.workers == 1), key=lambda c: tried[c][1, 4])
        whole[str(one)] = one
    return {
        "settings": table,
        "latency_milliseconds": {name: bench.latency(choice, arguments.turns) for name, choice in whole.items()},
        "quality": qualities,
        "baseline_bytes": bench.run(Choice("baseline", "float32"), [], 1)["peak_bytes"],
        "first_round": {
            str(choice): {named(pair): speed for pair, speed in speeds.items()} for choice, speeds in tried.items()
        },
    }


def costs(bench: Bench, turns: int) -> dict[str, Any]:
    """Microseconds a target token, by one thing at a time."""
    vocabulary = len(bench.bundle.source)

    def sources(count: int, length: int) -> list[list[int]]:
        return [[100 + (7919 * i + 104729 * j) % (vocabulary - 100) for j in range(length)] for i in range(count)]

    settings = [setting for some in COSTS.values() for setting in some]
    counts = [max(2 * setting["batch"], 4) for setting in settings]
    jobs = [
        {**setting, "sources": sources(count, setting["fixed"])}
        for setting, count in zip(settings, counts, strict=True)
    ]
    found = iter(zip(settings, counts, bench.run(Choice("regard", "int8"), jobs, turns)["results"], strict=True))
    table: dict[str, Any] = {}
    for what, some in COSTS.items():
        table[what] = {}
        for setting, count, one in (next(found) for _ in some):
            key = setting["fixed"] if what == "length" else setting[what]
            seconds = median(sum(calls) for calls in one["seconds"])
            table[what][str(key)] = seconds / (count * setting["fixed"]) * 1e6
    return table


def show(result: dict[str, Any]) -> None:
    for setting, one in result["settings"].items():
        print(f"\n{setting}")
        for name, speed in one["target_tokens_per_second"].items():
            print(f"  {name:40} {speed['median']:8,.0f} tokens/s ({speed['least']:,.0f} to {speed['most']:,.0f})")
        for system, times in one["regard_is_faster_by"].items():
            print(f"  Regard's quickest is {times:.2f} times {system}'s")
    print()
    for name, one in result["quality"].items():
        print(
            f"{name:40} BLEU {one['bleu']:.2f}, {one['peak_bytes'] / 2**20:,.0f} MB, "
            f"{one['same_lines_as_float32']:.1%} of the lines as in float32"
        )
    print(f"{'baseline':40} {result['baseline_bytes'] / 2**20:,.0f} MB")
    for name, each in result["latency_milliseconds"].items():
        shown = "; ".join(f"{beam}: p50 {one['p50']:.1f} ms, p95 {one['p95']:.1f} ms" for beam, one in each.items())
        print(f"{name:40} {shown}")
    for what, row in result["microseconds_per_target_token"].items():
        print(f"by {what}: " + ", ".join(f"{key}: {value:,.0f} µs" for key, value in row.items()))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bundle", type=Path, required=True, help="a Transformer that CTranslate2 can be given")
    parser.add_argument("--source", type=Path, required=True, help="test sentences")
    parser.add_argument("--reference", type=Path, required=True, help="their translations")
    parser.add_argument("--lines", type=at_least(1), default=192, help="timed at batch 32 (default: 192); 1/8 at 1")
    parser.add_argument("--rounds", type=at_least(1), default=3, help="how often each is timed (default: 3)")
    parser.add_argument("--turns", type=at_least(1), default=3, help="in each round (default: 3; the median counts)")
    systems = ["ctranslate2", "huggingface"]
    parser.add_argument("--only", nargs="*", choices=systems, default=systems, help="whom to compare with")
    parser.add_argument("--results", type=Path, default=RESULTS / "decode.json", help="where to write")
    threads_option(parser)
    arguments = parser.parse_args()
    bundle = load(arguments.bundle)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(arguments, bundle, Path(folder))
        if len(bench.sources) != len(bench.references) or len(bench.sources) < arguments.lines:
            raise BenchmarkError(
                f"{arguments.source} has {len(bench.sources)} lines and {arguments.reference} {len(bench.references)}; "
                f"they must be as many, and at least --lines ({arguments.lines})."
            )
        result = {
            **circumstances(),
            "threads": arguments.threads,
            "model": bundle.recipe.model.model_dump(),
            "vocabulary": len(bundle.target),
            "lines": bench.counts,
            "rounds": arguments.rounds,
            "turns": arguments.turns,
            **compare(arguments, bench),
            "microseconds_per_target_token": costs(bench, arguments.turns),
        }
    show(result)
    write(arguments.results, result)
    print(f"\nwritten to {arguments.results}")
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
