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

Target tokens are tokens, the end counted, of what each system wrote itself. Latencies are of calls with one sentence,
with all threads on it. Memory is the most that was resident in a process that decodes at batch 32 and beam 4, and
nothing else; `baseline` is a process that only imports PyTorch and Regard. Costs are microseconds a target token of
Regard's in int8, all translations made to have as many tokens.

With `--shortlist` all of it is done again, but for Hugging Face, which has none: each system over the bundle's
shortlist (`regard shortlist`), CTranslate2 over the same as its vmap. It takes the union of a batch's lists, Regard
each sentence's own.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from record import RESULTS, circumstances, write
from workers import BenchmarkError, Machine, at_least, exit_code, threads_option

from regard.bundle import Bundle, load
from regard.engine.decoding import PRECISIONS
from regard.exchange.ctranslate2 import write_ctranslate2
from regard.metrics import score
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
    shortlist: bool = False

    def __str__(self) -> str:
        return f"{self.system} {self.precision}" + (f", {self.workers} workers" if self.workers > 1 else "")


Speeds = dict[tuple[int, int], float]


class Bench:
    """The jobs that all systems are given."""

    def __init__(self, arguments: argparse.Namespace, bundle: Bundle, folder: Path) -> None:
        self.machine, self.bundle, self.folder = Machine(arguments.threads), bundle, folder
        self.counts = {32: arguments.lines, 1: max(arguments.lines // 8, 1)}
        self.singles = [
            {"batch": 1, "beam": beam, "count": max(arguments.lines // 2, 2), "single": True} for beam in (4, 1)
        ]
        lines = read_lines(arguments.source)
        self.sources = [bundle.source.encode(line) for line in lines]
        self.references = read_lines(arguments.reference)
        self.tokens = bundle.source.tokens(range(len(bundle.source)))
        self.extra = bundle.recipe.search.extra_length
        self.exact: list[str] = []
        """What Regard writes in float32, over all tokens."""

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
                "shortlist": choice.shortlist,
                "bundle": str(self.bundle.path),
                "directory": str(directory),
                "tokens": self.tokens if choice.system == "ctranslate2" else [],
                "sources": self.sources,
                "alpha": 1.0,
                "extra": self.extra,
                "threads": self.machine.threads,
                "turns": turns,
                "settings": [{"single": False, "fixed": 0, **setting} for setting in settings],
            },
        )

    def speeds(self, choice: Choice, pairs: list[tuple[int, int]], turns: int) -> tuple[Speeds, list[list[float]]]:
        """Target tokens a second in each setting, and milliseconds of calls with one sentence, if it has one worker."""
        settings = [{"batch": batch, "beam": beam, "count": self.counts[batch]} for batch, beam in pairs]
        singles = self.singles if choice.workers == 1 else []
        found = self.run(choice, [*settings, *singles], turns)["results"]
        speeds = {
            pair: sum(len(ids) + 1 for ids in one["ids"]) / median(sum(calls) for calls in one["seconds"])
            for pair, one in zip(pairs, found, strict=False)
        }
        return speeds, [
            [median(calls) * 1000 for calls in zip(*one["seconds"], strict=True)] for one in found[len(pairs) :]
        ]

    def quality(self, choice: Choice) -> dict[str, Any]:
        """BLEU of all lines at beam 4, and the memory of the process that wrote them."""
        found = self.run(choice, [{"batch": 32, "beam": 4, "count": len(self.sources)}], 1)
        texts = [self.bundle.target.decode(ids) for ids in found["results"][0]["ids"]]
        bleu = score(texts, [self.references], ["bleu"], resamples=0)["bleu"]
        return {"bleu": bleu.value, "signature": bleu.signature, "peak_bytes": found["peak_bytes"], "texts": texts}


def named(pair: tuple[int, int]) -> str:
    return f"batch {pair[0]}, beam {pair[1]}"


def choices_of(arguments: argparse.Namespace) -> list[Choice]:
    found = [Choice("regard", precision) for precision in PRECISIONS]
    if "ctranslate2" in arguments.only:
        import ctranslate2

        types = arguments.types or sorted(ctranslate2.get_supported_compute_types("cpu"))
        found += [Choice("ctranslate2", kind, workers) for kind in types for workers in sorted({1, arguments.threads})]
    if "huggingface" in arguments.only:
        found += [Choice("huggingface", precision) for precision in ("float32", "bfloat16")]
    return found


def compare(arguments: argparse.Namespace, bench: Bench, choices: list[Choice]) -> dict[str, Any]:
    tried: dict[Choice, Speeds] = {}
    for choice in choices:
        tried[choice], _ = bench.speeds(choice, list(SETTINGS), 1)
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
    if theirs := [choice for choice in tried if choice.system == "ctranslate2" and choice.workers == 1]:
        going.setdefault(max(theirs, key=lambda choice: tried[choice][1, 4]), [])  # a sentence alone has one worker
    rounds: dict[tuple[Choice, tuple[int, int]], list[float]] = {}
    waits: dict[Choice, list[list[list[float]]]] = {}
    for turn in range(arguments.rounds):
        for choice in list(going)[:: 1 if turn % 2 == 0 else -1]:  # a machine that slows down slows all
            speeds, latencies = bench.speeds(choice, going[choice], arguments.turns)
            for pair, speed in speeds.items():
                rounds.setdefault((choice, pair), []).append(speed)
            if latencies:
                waits.setdefault(choice, []).append(latencies)
        print(f"  round {turn + 1} of {arguments.rounds}", flush=True)
    table = {}
    for pair in SETTINGS:
        rows = {}
        for choice in going:
            if speeds_of := rounds.get((choice, pair)):
                rows[str(choice)] = {"median": median(speeds_of), "least": min(speeds_of), "most": max(speeds_of)}
        ours = rounds[best["regard", pair], pair]
        times = {
            system: median(a / b for a, b in zip(ours, rounds[best[system, pair], pair], strict=True))
            for system in ("ctranslate2", "huggingface")
            if (system, pair) in best
        }
        table[named(pair)] = {"target_tokens_per_second": rows, "regard_is_faster_by": times}
    qualities = {choice: bench.quality(choice) for choice, pairs in going.items() if pairs}
    bench.exact = bench.exact or qualities[choices[0]]["texts"]
    for one in qualities.values():
        same = sum(a == b for a, b in zip(one.pop("texts"), bench.exact, strict=True))
        one["same_lines_as_float32"] = same / len(bench.exact)
    return {
        "settings": table,
        "latency_milliseconds": {str(choice): _latency(bench, turns) for choice, turns in waits.items()},
        "quality": {str(choice): one for choice, one in qualities.items()},
        "first_round": {
            str(choice): {named(pair): speed for pair, speed in speeds.items()} for choice, speeds in tried.items()
        },
    }


def _latency(bench: Bench, rounds: list[list[list[float]]]) -> dict[str, dict[str, float]]:
    table = {}
    for setting, *turns in zip(bench.singles, *rounds, strict=True):
        each = [median(same) for same in zip(*turns, strict=True)]
        table[f"beam {setting['beam']}"] = {"p50": median(each), "p95": quantiles(each, n=20, method="inclusive")[-1]}
    return table


def costs(bench: Bench, turns: int, shortlist: bool) -> dict[str, Any]:
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
    choice = Choice("regard", "int8", shortlist=shortlist)
    found = iter(zip(settings, counts, bench.run(choice, jobs, turns)["results"], strict=True))
    table: dict[str, Any] = {}
    for what, some in COSTS.items():
        table[what] = {}
        for setting, count, one in (next(found) for _ in some):
            key = setting["fixed"] if what == "length" else setting[what]
            seconds = median(sum(calls) for calls in one["seconds"])
            table[what][str(key)] = seconds / (count * setting["fixed"]) * 1e6
    return table


def show(result: dict[str, Any]) -> None:
    """The tables, as the documents write them."""
    for setting, one in result["settings"].items():
        rows = one["target_tokens_per_second"].items()
        _table(
            [setting, "target tokens/s", "least to most"],
            [[name, f"{s['median']:,.0f}", f"{s['least']:,.0f} to {s['most']:,.0f}"] for name, s in rows],
        )
        for system, times in one["regard_is_faster_by"].items():
            print(f"Regard's quickest is {times:.2f} times {system}'s")
    _table(
        ["", "BLEU", "memory", "lines as in float32"],
        [
            [name, f"{one['bleu']:.2f}", f"{one['peak_bytes'] / 2**20:,.0f} MB", f"{one['same_lines_as_float32']:.1%}"]
            for name, one in result["quality"].items()
        ],
    )
    beams = ["beam 4", "beam 1"]
    _table(
        ["one sentence, milliseconds", *(f"{beam}, {p}" for beam in beams for p in ("p50", "p95"))],
        [
            [name, *(f"{each[beam][p]:.1f}" for beam in beams for p in ("p50", "p95"))]
            for name, each in result["latency_milliseconds"].items()
        ],
    )
    for what, row in result["microseconds_per_target_token"].items():
        _table([what, *row], [["µs a target token", *(f"{value:,.0f}" for value in row.values())]])


def _table(head: list[str], rows: list[list[str]]) -> None:
    print()
    for row in (head, ["---"] * len(head), *rows):
        print(f"| {' | '.join(row)} |")


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
    parser.add_argument("--types", nargs="*", help="compute types of CTranslate2 that are tried (default: all)")
    parser.add_argument("--shortlist", action="store_true", help="the same again with the bundle's shortlist")
    parser.add_argument("--results", type=Path, default=RESULTS / "decode.json", help="where to write")
    threads_option(parser)
    arguments = parser.parse_args()
    bundle = load(arguments.bundle)
    if arguments.shortlist and bundle.shortlist() is None:
        raise BenchmarkError(f"{arguments.bundle} has no shortlist: let `regard shortlist` learn one, or leave it out.")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(arguments, bundle, Path(folder))
        if len(bench.sources) != len(bench.references) or len(bench.sources) < arguments.lines:
            raise BenchmarkError(
                f"{arguments.source} has {len(bench.sources)} lines and {arguments.reference} {len(bench.references)}; "
                f"they must be as many, and at least --lines ({arguments.lines})."
            )
        choices = choices_of(arguments)
        result = {
            **circumstances(),
            "threads": arguments.threads,
            "model": bundle.recipe.model.model_dump(),
            "vocabulary": len(bundle.target),
            "lines": bench.counts,
            "rounds": arguments.rounds,
            "turns": arguments.turns,
            **compare(arguments, bench, choices),
            "baseline_bytes": bench.run(Choice("baseline", "float32"), [], 1)["peak_bytes"],
            "microseconds_per_target_token": costs(bench, arguments.turns, False),
        }
        show(result)
        write(arguments.results, result)
        if arguments.shortlist:
            went_on = result["quality"].keys() | result["latency_milliseconds"].keys()
            some = [
                replace(choice, shortlist=True)
                for choice in choices
                if str(choice) in went_on and choice.system != "huggingface"
            ]
            result["with_shortlists"] = {
                **compare(arguments, bench, some),
                "microseconds_per_target_token": costs(bench, arguments.turns, True),
            }
            print("\nWith shortlists:")
            show(result["with_shortlists"])
            write(arguments.results, result)
    print(f"\nwritten to {arguments.results}")
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
