"""Decoding speed of Regard, CTranslate2, Marian and Hugging Face on a CPU: one network, sentences and search.

    ./run bench grow --bundle runs/multi30k/bundle --out runs/base          # a bundle of base shape
    ./run bench decode --bundle runs/base --source test.en.gz --reference test.de.gz

Each system runs in a process of its own. First all that each can be set to is tried once: CTranslate2 every compute
type that this processor has, with one worker on one thread, one on all and as many workers as threads, by MKL and by
oneDNN; Marian float32 and intgemm's int8, on one thread and on all; Hugging Face float32 and bfloat16. The two quickest
of CTranslate2's, its quickest in float32 and the quickest of the others' go on, chosen for each setting by itself; then
all that went on run in turn over several rounds, every other round backwards, and a system's figure is that of its
best. Regard is shown in all its precisions, first as it is by default.

Every worker has as many batches of 32 as the others: with three batches on two workers a quarter of what both can do
would be waiting, which is no fault of its system.

A beam stops when as many hypotheses as it is wide have ended, which is CTranslate2's rule; Hugging Face has
`early_stopping=True`, the same. Marian's sentences are all as long as its batch's longest source (`marian_files.py`
says why). Sentences are ids for all but Marian, which splits a line of tokens at its spaces. A target token is one of
what a system wrote itself, the end counted. Long sentences are captions put together until they have 60 words; their
translations are made to have 80 tokens, for a model of captions stops after the first.

`--parts` names what else is measured: `curves` (beams and batches, Regard and the best of CTranslate2), `waiting` (ways
in which threads of OpenMP wait), `constraints`, `quality` (BLEU and memory) and `avx2` (both with AVX2 alone). Results
are written after each step, so a run that is cut off leaves what it has.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from environments import interpreter
from marian_files import write_marian
from record import RESULTS, circumstances, write
from tables import decode_tables
from workers import BenchmarkError, Machine, at_least, exit_code, threads_option

from regard.bundle import Bundle, load
from regard.exchange.ctranslate2 import write_ctranslate2
from regard.metrics import score
from regard.text import read_lines

Table = dict[str, Any]
Ids = list[list[int]]
LENGTH = 80  # tokens of the translation of a long sentence
DEFAULT, ONE, LONG = "batch 32, beam 4", "one sentence, beam 4", "60 words, beam 4"
TRIED = {DEFAULT: DEFAULT, "batch 32, greedy": "batch 32, greedy", ONE: ONE, "one sentence, greedy": ONE, LONG: DEFAULT}
"""Settings, and in which of them the settings of a system are tried for it."""
OTHERS = ("ctranslate2", "marian", "huggingface")
PARTS = ("settings", "curves", "waiting", "constraints", "quality", "avx2")
PRECISIONS = ("auto", "bfloat16", "int8")
AVX2 = (
    {"REGARD_CPU": "avx2"},
    {"CT2_FORCE_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
)
WAITING = {"passive": {"OMP_WAIT_POLICY": "passive"}, "active": {"OMP_WAIT_POLICY": "active"}}
WAITING["active, 10,000 turns"] = {"OMP_WAIT_POLICY": "active", "GOMP_SPINCOUNT": "10000"}
MARIAN_TYPES = ("float32", "intgemm8")


@dataclass(frozen=True)
class Choice:
    """How a system can be set: workers that share the threads, and what its environment says."""

    system: str
    precision: str
    threads: int
    workers: int = 1
    note: str = ""
    environment: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        split = f", {self.workers} x {self.threads // self.workers}" if self.system in ("ctranslate2", "marian") else ""
        return f"{self.system} {self.precision}{split}{', ' if self.note else ''}{self.note}"

    def within(self, note: str, environment: dict[str, str]) -> Choice:
        joined = ", ".join(filter(None, (self.note, note)))
        return replace(self, note=joined, environment=(*self.environment, *environment.items()))


class Bench:
    """The jobs that all systems are given."""

    def __init__(self, arguments: argparse.Namespace, bundle: Bundle, folder: Path) -> None:
        self.bundle, self.folder, self.turns = bundle, folder, arguments.turns
        self.shortlist, self.threads = arguments.shortlist, arguments.threads
        self.lines, self.references = read_lines(arguments.source), read_lines(arguments.reference)
        if len(self.lines) != len(self.references) or len(self.lines) < arguments.lines:
            raise BenchmarkError(
                f"{arguments.source} has {len(self.lines)} lines and {arguments.reference} {len(self.references)}; "
                f"they must be as many, and at least --lines ({arguments.lines})."
            )
        self.sources = [bundle.source.encode(line) for line in self.lines]
        self.tokens = bundle.source.tokens(range(len(bundle.source)))
        self.even = 32 * arguments.threads
        if arguments.lines % self.even:
            raise BenchmarkError(
                f"--lines is {arguments.lines}; take a multiple of {self.even}, so that {arguments.threads} workers "
                "have as many batches of 32 each, and none waits for the others."
            )
        self.count = arguments.lines
        many = max(arguments.lines // 4 // self.even, 1) * self.even
        self.long = [bundle.source.encode(line) for line in joined(self.lines, 60)[:many]]

    def setting(self, name: str, share: float = 1.0) -> Table:
        """The job of a setting, with this share of its sentences."""

        def some(sources: Ids, least: int = 2) -> Ids:
            return sources[: max(int(len(sources) * share) // least, 1) * least]

        beam = 1 if "greedy" in name else 4
        if name == LONG:
            return {"batch": 32, "beam": beam, "sources": some(self.long, self.even), "fixed": LENGTH}
        if name.startswith("one"):
            return {
                "batch": 1,
                "beam": beam,
                "sources": some(self.sources[: max(self.count * 3 // 8, 2)]),
                "single": True,
            }
        return {"batch": 32, "beam": beam, "sources": some(self.sources[: self.count], self.even)}

    def run(self, choice: Choice, settings: Sequence[Table], turns: int) -> Table:
        """What `peers/decoder.py` measures of a choice; the model is written for it if it is not there yet."""
        kind = "npz" if choice.system == "marian" else choice.precision
        directory = self.folder / f"{choice.system}-{kind}"
        writers = {"ctranslate2": lambda: write_ctranslate2(self.bundle, directory, choice.precision)}
        writers["marian"] = lambda: write_marian(self.bundle, directory)
        if choice.system in writers and not directory.exists():
            directory.mkdir()
            writers[choice.system]()
        own = list(self.tokens)
        if choice.system == "marian":
            own[1], own[3] = "<unk>", "</s>"
        job = {
            "system": choice.system,
            "precision": choice.precision,
            "workers": choice.workers,
            "shortlist": self.shortlist,
            "bundle": str(self.bundle.path),
            "directory": str(directory),
            "tokens": own if choice.system in writers else [],
            "alpha": 1.0,
            "extra": self.bundle.recipe.search.extra_length,
            "threads": choice.threads,
            "turns": turns,
            "settings": list(settings),
        }
        python = interpreter("pymarian") if choice.system == "marian" else None
        return Machine(choice.threads).run("decoder", job, python, dict(choice.environment))

    def measured(self, choice: Choice, settings: Sequence[Table], turns: int) -> list[Table]:
        """Of each setting: target tokens a second, and the median milliseconds of each call."""
        found = self.run(choice, settings, turns)["results"]
        return [
            {
                "speed": sum(len(ids) + 1 for ids in one["ids"]) / median(sum(calls) for calls in one["seconds"]),
                "calls": [median(calls) * 1000 for calls in zip(*one["seconds"], strict=True)],
                "ids": one["ids"],
            }
            for one in found
        ]


def joined(lines: Sequence[str], words: int) -> list[str]:
    """Lines put together, one after the other, until each has at least this many words."""
    made: list[list[str]] = [[]]
    for line in lines:
        made[-1].append(line)
        if sum(len(part.split()) for part in made[-1]) >= words:
            made.append([])
    return [" ".join(parts) for parts in made[:-1]]


def choices_of(arguments: argparse.Namespace) -> list[Choice]:
    """All that is tried."""
    threads = arguments.threads
    found = [Choice("regard", precision, threads) for precision in PRECISIONS]
    if "ctranslate2" in arguments.only:
        splits = sorted({(1, 1), (1, threads), (threads, threads)})
        for note, environment in (("MKL", {}), ("oneDNN", {"CT2_USE_MKL": "0"})):
            for kind in _types(environment):
                plain = [Choice("ctranslate2", kind, total, workers) for workers, total in splits]
                found += [choice.within(note, environment) for choice in plain]
    if "marian" in arguments.only:
        found += [Choice("marian", kind, total) for kind in MARIAN_TYPES for total in sorted({1, threads})]
    if "huggingface" in arguments.only:
        found += [Choice("huggingface", precision, threads) for precision in ("float32", "bfloat16")]
    return found


def _types(environment: dict[str, str]) -> list[str]:
    code = "import ctranslate2, json; print(json.dumps(sorted(ctranslate2.get_supported_compute_types('cpu'))))"
    machine = Machine(1)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**machine.environment, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    return [kind for kind in found if not (kind == "int8" and "int8_float32" in found)]  # it is another name of that


def go_on(tried: dict[Choice, dict[str, float]]) -> dict[str, list[Choice]]:
    """The choices of each setting that run in the rounds: Regard's all, of the others the best."""
    found = {}
    for name, where in TRIED.items():
        found[name] = [choice for choice in tried if choice.system == "regard"]
        for system in dict.fromkeys(choice.system for choice in tried if choice.system != "regard"):
            own = sorted((c for c in tried if c.system == system), key=lambda c: tried[c][where], reverse=True)
            best = own[: 2 if system == "ctranslate2" else 1]
            if system == "ctranslate2":
                best += [c for c in own if c.precision == "float32"][:1]
            found[name] += dict.fromkeys(best)
    return found


def settings(bench: Bench, arguments: argparse.Namespace, choices: list[Choice], result: Table, save: Any) -> None:
    """Speed in each setting, and what each wait for one sentence is."""
    tried: dict[Choice, dict[str, float]] = {}
    names = list(dict.fromkeys(TRIED.values()))
    for choice in choices:
        share = 0.25 if choice.system == "huggingface" else 0.5
        found = bench.measured(choice, [bench.setting(name, share) for name in names], 1)
        tried[choice] = {name: one["speed"] for name, one in zip(names, found, strict=True)}
        result["tried"][str(choice)] = tried[choice]
        print(f"  {choice}: {'; '.join(f'{n}: {s:,.0f}' for n, s in tried[choice].items())} tokens/s", flush=True)
        save()
    going = go_on(tried)
    runs: dict[str, dict[Choice, list[Table]]] = {name: {c: [] for c in going[name]} for name in TRIED}
    for turn in range(arguments.rounds):
        order = [choice for choice in choices if any(choice in some for some in going.values())]
        for choice in order[:: 1 if turn % 2 == 0 else -1]:  # a machine that slows down slows all
            own = [name for name in TRIED if choice in going[name]]
            share = 0.25 if choice.system == "huggingface" else 1.0
            jobs = [bench.setting(name, share) for name in own]
            for name, one in zip(own, bench.measured(choice, jobs, bench.turns), strict=True):
                runs[name][choice].append(one)
        print(f"  round {turn + 1} of {arguments.rounds}", flush=True)
        result["settings"] = {name: summary(some) for name, some in runs.items()}
        save()


def summary(runs: dict[Choice, list[Table]]) -> Table:
    """Of one setting: each choice's speed, the waits of single calls, and how many times as fast Regard is."""
    rows: Table = {}
    for choice, found in runs.items():
        speeds = [one["speed"] for one in found]
        rows[str(choice)] = {"median": median(speeds), "least": min(speeds), "most": max(speeds)}
        if len(found[0]["calls"]) > 1:
            each = [median(same) for same in zip(*(one["calls"] for one in found), strict=True)]
            rows[str(choice)] |= {"p50": median(each), "p95": quantiles(each, n=20, method="inclusive")[-1]}
    best: Table = {}
    for system in dict.fromkeys(choice.system for choice in runs if choice.system != "regard"):
        own = {str(choice): choice for choice in runs if choice.system == system}
        best[system] = _best(rows, own)
        plain = {name: choice for name, choice in own.items() if choice.precision == "float32"}
        if plain:
            best[f"{system} in float32"] = _best(rows, plain)
    times = {}
    for ours in (choice for choice in runs if choice.system == "regard"):
        times[str(ours)] = {
            against: {key: _times(rows[str(ours)], rows[name], key) for key, name in of.items()}
            for against, of in best.items()
        }
    return {"systems": rows, "best": best, "regard_is_faster_by": times}


def _best(rows: Table, names: Any) -> dict[str, str]:
    """By tokens a second, and by either wait: which of a system's choices is best, each by itself."""
    best = {"median": max(names, key=lambda name: rows[name]["median"])}
    return best | {p: min(names, key=lambda n: rows[n][p]) for p in ("p50", "p95") if p in rows[next(iter(names))]}


def _times(ours: Table, theirs: Table, key: str) -> float:
    return float(ours[key] / theirs[key] if key == "median" else theirs[key] / ours[key])


def best_choice(result: Table, choices: list[Choice], name: str = DEFAULT, kind: str = "") -> Choice | None:
    """CTranslate2's best in a setting, by what was found; of one compute type, if that is named."""
    known = {
        str(choice): choice
        for choice in choices
        if choice.system == "ctranslate2" and choice.precision.startswith(kind)
    }
    rows = result["settings"].get(name, {}).get("systems") or {
        k: {"median": v[name]} for k, v in result["tried"].items()
    }
    return max((c for n, c in known.items() if n in rows), key=lambda c: rows[str(c)]["median"], default=None)


# -- what else is measured ---------------------------------------------------------------------------------------------


def rounds_of(bench: Bench, arguments: argparse.Namespace, pairs: dict[str, Choice], jobs: dict[str, Table]) -> Table:
    """Target tokens a second of each job by each choice: medians over the rounds, in which all take turns."""
    found: dict[str, dict[str, list[float]]] = {name: {label: [] for label in pairs} for name in jobs}
    for turn in range(arguments.rounds):
        for label, choice in list(pairs.items())[:: 1 if turn % 2 == 0 else -1]:
            for name, one in zip(jobs, bench.measured(choice, list(jobs.values()), bench.turns), strict=True):
                found[name][label].append(one["speed"])
    return {name: {label: median(speeds) for label, speeds in some.items()} for name, some in found.items()}


def curves(bench: Bench, arguments: argparse.Namespace, choices: list[Choice], result: Table) -> Table:
    """Beams at batch 32, and batches at beam 4: Regard's int8 and the best of CTranslate2."""
    pairs = {"regard int8": Choice("regard", "int8", bench.threads)}
    if best := best_choice(result, choices):
        pairs[str(best)] = best
    sources = bench.sources[: bench.count]
    jobs: dict[str, Table] = {f"beam {beam}": {"batch": 32, "beam": beam, "sources": sources} for beam in (1, 4, 8)}
    for batch in (1, 2, 4, 8, 16, 32, 64):
        # CTranslate2 sorts what it is given and cuts it into batches, each for one worker.
        some = sources[: max(bench.count // 4, 2)] if batch < 8 else sources
        jobs[f"batch {batch}"] = {"batch": batch, "beam": 4, "sources": some}
    return rounds_of(bench, arguments, pairs, jobs)


def waiting(bench: Bench, arguments: argparse.Namespace, choices: list[Choice], result: Table) -> Table:
    """CTranslate2's quickest with threads inside of a worker, by how they wait; it has GNU's OpenMP."""
    own = [choice for choice in choices if choice.threads > choice.workers]
    best = best_choice(result, own) if own else None
    if best is None:
        return {}
    pairs = {"as it is": best, **{name: best.within(name, way) for name, way in WAITING.items()}}
    return rounds_of(bench, arguments, pairs, {name: bench.setting(name, 0.5) for name in (DEFAULT, ONE)})


def constraints(bench: Bench, arguments: argparse.Namespace, choices: list[Choice], result: Table) -> Table:
    """What rules cost: Regard's, and CTranslate2's for beginnings, which alone both have for each line."""
    texts = bench.lines[: bench.count // 2]
    said = bench.run(Choice("regard", "float32", bench.threads), [bench.setting(DEFAULT)], 1)["results"][0]["ids"]
    plain = [bench.bundle.target.decode(ids).split() or ["Ein"] for ids in said]
    job = {
        "bundle": str(bench.bundle.path),
        "lines": texts,
        **{"batch": 32, "beam": 4, "precision": "int8", "turns": bench.turns},
        "kinds": {
            "plain": {},
            "a beginning of one word": {"constraints": [{"prefix": words[0]} for words in plain[: len(texts)]]},
            "a word that must occur": {"constraints": [{"include": [words[-1]]} for words in plain[: len(texts)]]},
            "a word that must not": {"constraints": [{"forbid": [words[-1]]} for words in plain[: len(texts)]]},
            "no three tokens twice": {"no_repeat_ngram_size": 3},
        },
    }
    found = Machine(bench.threads).run("constrained", job)["kinds"]
    kept = {
        "a beginning of one word": lambda text, words: text.startswith(words[0]),
        "a word that must occur": lambda text, words: words[-1] in text,
    }
    table: Table = {}
    for name, one in found.items():
        table[name] = {"regard int8": one["tokens"] / median(one["seconds"])}
        if name in kept:
            table[name]["kept"] = sum(map(kept[name], one["texts"], plain)) / len(texts)
    if best := best_choice(result, choices):
        base = {"batch": 32, "beam": 4, "sources": bench.sources[: len(texts)]}
        begun = {
            **base,
            "targets": [bench.bundle.target.encode(words[0]) for words in plain[: len(texts)]],
            "begins": 9,
        }
        theirs = bench.measured(best, [base, begun], bench.turns)
        for name, each in zip(("plain", "a beginning of one word"), theirs, strict=True):
            table[name][str(best)] = each["speed"]
    return table


def quality(bench: Bench, arguments: argparse.Namespace, choices: list[Choice], result: Table) -> Table:
    """BLEU of all lines at batch 32 and beam 4, and the most memory of a process that does just this."""
    chosen = [Choice("regard", precision, bench.threads) for precision in PRECISIONS]
    own = [choice for choice in choices if choice.system == "ctranslate2"]
    chosen += dict.fromkeys(filter(None, (best_choice(result, own), best_choice(result, own, kind="float32"))))
    job = {"batch": 32, "beam": 4, "sources": bench.sources}
    table: Table = {}
    exact: list[str] = []
    for choice in chosen:
        found = bench.run(choice, [job], 1)
        texts = [bench.bundle.target.decode(ids) for ids in found["results"][0]["ids"]]
        exact = exact or texts
        bleu = score(texts, [bench.references], ["bleu"], resamples=0)["bleu"]
        table[str(choice)] = {
            "bleu": bleu.value,
            "signature": bleu.signature,
            "peak_bytes": found["peak_bytes"],
            "lines_as_by_default": sum(map(str.__eq__, texts, exact)) / len(exact),
        }
        print(f"  {choice}: {bleu.value:.2f} BLEU, {found['peak_bytes'] / 2**20:,.0f} MB", flush=True)
    for choice in (c for c in choices if c.system == "marian" and c.threads == bench.threads):
        found = bench.run(choice, [bench.setting(DEFAULT)], 1)
        table[str(choice)] = {"bleu": None, "peak_bytes": found["peak_bytes"]}
    table["Python and Regard alone"] = {
        "bleu": None,
        "peak_bytes": bench.run(Choice("baseline", "float32", bench.threads), [], 1)["peak_bytes"],
    }
    return table


def avx2(bench: Bench, arguments: argparse.Namespace, choices: list[Choice], result: Table) -> Table:
    """As on a processor that has AVX2 and no more: Regard's int8 and the best of CTranslate2's types there."""
    ours, theirs = AVX2
    pairs = {"regard int8": Choice("regard", "int8", bench.threads).within("AVX2", ours)}
    own = [
        c.within("AVX2", theirs) for c in choices if c.system == "ctranslate2" and not c.precision.startswith("float")
    ]
    names = (DEFAULT, "batch 32, greedy", ONE)
    tried = {c: bench.measured(c, [bench.setting(name, 0.25) for name in names], 1) for c in own}
    for place in range(len(names)):
        best = max(own, key=lambda choice: tried[choice][place]["speed"], default=None)
        pairs |= {str(best): best} if best else {}
    return rounds_of(bench, arguments, pairs, {name: bench.setting(name) for name in names})


Part = Callable[[Bench, argparse.Namespace, list[Choice], Table], Table]
MORE: dict[str, Part] = {
    "curves": curves,
    "waiting": waiting,
    "constraints": constraints,
    "quality": quality,
    "avx2": avx2,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bundle", type=Path, required=True, help="a Transformer that CTranslate2 can be given")
    parser.add_argument("--source", type=Path, required=True, help="test sentences")
    parser.add_argument("--reference", type=Path, required=True, help="their translations")
    parser.add_argument("--lines", type=at_least(2), default=256, help="timed at batch 32 (default: 256); fewer else")
    parser.add_argument("--rounds", type=at_least(1), default=3, help="how often each is timed (default: 3)")
    parser.add_argument("--turns", type=at_least(1), default=1, help="in each round (default: 1); medians count")
    parser.add_argument("--only", nargs="+", choices=OTHERS, default=list(OTHERS), help="beside Regard")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument(
        "--shortlist", action="store_true", help="over the bundle's shortlist; not Marian, Hugging Face"
    )
    parser.add_argument("--results", type=Path, default=RESULTS / "decode.json", help="where to write; parts are added")
    threads_option(parser)
    arguments = parser.parse_args()
    bundle = load(arguments.bundle)
    if arguments.shortlist:
        if bundle.shortlist() is None:
            raise BenchmarkError(f"{arguments.bundle} has no shortlist: let `regard shortlist` learn one.")
        arguments.only = [name for name in arguments.only if name == "ctranslate2"]
    result: Table = {"tried": {}, "settings": {}}
    if arguments.results.exists() and "settings" not in arguments.parts:
        result = json.loads(arguments.results.read_text(encoding="utf-8"))
    result |= {
        **circumstances(),
        "threads": arguments.threads,
        "bundle": {"name": bundle.recipe.name, "parameters": bundle.parameters, **bundle.provenance.notes},
        "model": bundle.recipe.model.model_dump(),
        "vocabulary": len(bundle.target),
        **{key: getattr(arguments, key) for key in ("lines", "rounds", "turns", "shortlist")},
    }
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(arguments, bundle, Path(folder))
        choices = choices_of(arguments)
        for part in arguments.parts:
            print(part, flush=True)
            if part == "settings":
                settings(bench, arguments, choices, result, lambda: write(arguments.results, result))
            else:
                result[part] = MORE[part](bench, arguments, choices, result)
            write(arguments.results, result)
    print("\n\n".join(decode_tables(result)))
    print(f"\nwritten to {arguments.results}")
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
