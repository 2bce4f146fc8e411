"""Pairs of lines in, those that are fit to learn from out, and a report of the others: how many went, why, and which.

The text is read a pair at a time, so that memory grows with it by a mark for each pair alone: first the usual ratio of
lengths is found and all rules but the last are applied; then a sample of those left teaches small dictionaries, which
judge them all.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from statistics import median
from typing import TextIO

from regard.errors import DataError
from regard.machine import atomic_rename
from regard.text.lines import iter_lines, read_pairs

from .likeness import Dictionary
from .rules import RULES, Corpus, Pair, Rules, bare, check_rules, detector

_SAMPLE, _BATCH, _EXAMPLES, _LEAST_TO_JUDGE = 20_000, 4096, 3, 100
_NAMES = ("source", "target")

Progress = Callable[[str, int], None]  # called with what is being done and how many pairs are done


@dataclass
class Cleaned:
    """What became of a corpus."""

    read: int = 0
    kept: int = 0
    gone: dict[str, int] = field(default_factory=dict)  # of each rule how many pairs it took
    examples: dict[str, list[tuple[int, str, str]]] = field(default_factory=dict)  # line, source, target
    characters_ratio: float = 1.0  # usual characters of the target for one of the source
    likeness: dict[str, float] = field(default_factory=dict)  # of the pairs judged by the last rule, and of chance
    files: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        return {**vars(self), "meaning": {name: RULES[name][0] for name in self.gone}}


def clean(
    source: str | Path,
    target: str | Path | None,
    out: str | Path,
    *,
    languages: tuple[str, str] = ("", ""),
    fields: tuple[str, ...] = _NAMES,
    rules: Rules | None = None,
    progress: Progress | None = None,
) -> Cleaned:
    """Write what is fit to learn from to OUT.SOURCE and OUT.TARGET, the rest with its reason to OUT.rejected.tsv.

    source, target: two files of lines, or one file of pairs (any of `regard.text.lines.FORMATS`). languages: codes of
    both sides, which name the files and without which the rule "language" is not applied. The report is
    OUT.report.json too. The files appear when all is done; their lines stay in order. Raises DataError for an unknown
    rule or language and where nothing is left, TextError for files that cannot be read, held-out ones among them.
    """
    rules = rules or Rules()
    check_rules(rules)
    tell = progress or (lambda what, count: None)
    sides = [code or name for code, name in zip(languages, _NAMES, strict=True)]
    if sides[0] == sides[1]:
        raise DataError(f"both languages are {sides[0]!r}; name two, or leave --from and --to out.")

    def pairs() -> Iterator[Pair]:
        return (Pair(*pair) for pair in read_pairs(source, target, fields=fields, languages=languages))

    held_out = frozenset(bare(line) for file in rules.held_out for line in iter_lines(Path(file))) - {""}
    corpus = Corpus(languages, _usual(pairs()), held_out)
    made = Cleaned(characters_ratio=math.exp(corpus.log_ratio))
    names = [f"{out}.{side}" for side in sides]
    rejected = f"{out}.rejected.tsv"
    read = {Path(file).resolve() for file in (source, target, *rules.held_out) if file is not None}
    if over := [name for name in (*names, rejected) if Path(name).resolve() in read]:
        raise DataError(f"--out {out}: would replace {over[0]}, which is read; choose another beginning.")
    with ExitStack() as files:
        writers = _writers(files, [*names, rejected])
        survivors = _survivors(pairs(), rules, corpus, made, writers[2], tell)
        with _Waiting(Path(f"{out}.waiting.part")) as waiting:
            for number, pair in survivors:
                waiting.add(number, pair)
            for pair in _judged(waiting, rules, made, writers[2], tell):
                made.kept += 1
                for writer, side in zip(writers, pair.sides, strict=False):
                    writer.write(f"{side}\n")
        if not made.kept:
            gone = ", ".join(f"{name} {count:,}" for name, count in made.gone.items())
            raise DataError(f"no pair is left of {made.read:,}: {gone}. Switch rules off by --off, or check the files.")
        made.files = (*names, rejected)
        for name, writer in zip(made.files, writers, strict=True):
            writer.close()
            atomic_rename(Path(f"{name}.part"), Path(name))
    report = Path(f"{out}.report.json")
    report.with_suffix(".part").write_text(json.dumps(made.to_dict(), ensure_ascii=False, indent=1) + "\n", "utf-8")
    os.replace(report.with_suffix(".part"), report)
    return made


def _writers(files: ExitStack, names: Iterable[str]) -> list[TextIO]:
    """Files that are not there under their names yet; what is left of them goes with `files`."""
    made: list[TextIO] = []
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        files.callback(Path(f"{name}.part").unlink, missing_ok=True)
        made.append(files.enter_context(Path(f"{name}.part").open("w", encoding="utf-8", newline="\n")))  # noqa: SIM115
    return made


def _usual(pairs: Iterable[Pair]) -> float:
    """The median of the logarithm of the target's characters for one of the source, over the first pairs."""
    lengths = (pair.lengths for pair in islice(pairs, _SAMPLE))
    return median([math.log(target / source) for source, target in lengths if source and target] or [0.0])


def _reject(made: Cleaned, file: TextIO, name: str, number: int, pair: Pair) -> None:
    made.gone[name] = made.gone.get(name, 0) + 1
    shown = made.examples.setdefault(name, [])
    if len(shown) < _EXAMPLES:
        shown.append((number, *pair.sides))
    file.write("\t".join([name, str(number), *(side.replace("\t", " ") for side in pair.sides)]) + "\n")


def _survivors(
    pairs: Iterator[Pair], rules: Rules, corpus: Corpus, made: Cleaned, rejected: TextIO, tell: Progress
) -> Iterator[tuple[int, Pair]]:
    """The pairs with their numbers, from 1, that no rule takes, the last one aside."""
    alone = [(name, rule) for name, (_, rule) in RULES.items() if rule and name not in rules.off]
    others = detector(corpus.languages, rules) if any(corpus.languages) and "language" not in rules.off else None
    seen: set[bytes] = set()
    number = 0
    while batch := list(islice(pairs, _BATCH)):
        foreign = [[False] * len(batch)] * 2
        if others is not None:
            foreign = [others([pair.sides[side] for pair in batch], side) for side in (0, 1)]
        for pair, *abroad in zip(batch, *foreign, strict=True):
            number += 1
            made.read += 1
            reason = next((name for name, rule in alone if rule(pair, rules, corpus)), "")
            if not reason and "duplicate" not in rules.off:
                mark = _mark(pair, rules)
                reason = "duplicate" if mark in seen else ""
                seen.add(mark)
            reason = reason or ("language" if any(abroad) else "")
            if reason:
                _reject(made, rejected, reason, number, pair)
            else:
                yield number, pair
        tell("pairs read", number)


def _mark(pair: Pair, rules: Rules) -> bytes:
    """What is the same for pairs of which one is enough: their words, whatever the spaces and the case."""
    sides = {"pair": (0, 1), "source": (0,), "target": (1,)}[rules.duplicates]
    return blake2b("\n".join(" ".join(pair.words[side]) for side in sides).encode(), digest_size=16).digest()


class _Waiting:
    """Pairs on disk that wait for the last rule, to be read again in order."""

    def __init__(self, path: Path) -> None:
        self._path, self.count = path, 0

    def __enter__(self) -> _Waiting:
        self._file = self._path.open("w", encoding="utf-8", newline="\n")
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()
        self._path.unlink(missing_ok=True)

    def add(self, number: int, pair: Pair) -> None:
        self.count += 1
        self._file.write(f"{json.dumps([number, *pair.sides])}\n")

    def __iter__(self) -> Iterator[tuple[int, Pair]]:
        self._file.flush()
        with self._path.open(encoding="utf-8") as lines:
            for line in lines:
                number, source, target = json.loads(line)
                yield number, Pair(source, target)


def _judged(waiting: _Waiting, rules: Rules, made: Cleaned, rejected: TextIO, tell: Progress) -> Iterator[Pair]:
    """Those whose words go together better than by chance; all of them where too few are left to say so."""
    if "alignment" in rules.off or waiting.count < _LEAST_TO_JUDGE:
        yield from (pair for _, pair in waiting)
        return
    step = max(1, waiting.count // rules.learn_from)
    tell("pairs that teach which words go together", waiting.count // step)
    sample = [pair.words for index, (_, pair) in enumerate(waiting) if index // 2 % step == 0]
    halves = sample[::2], sample[1::2]
    dictionaries = [
        Dictionary(halves[1 - half], halves[half]) for half in (0, 1)
    ]  # each judges the half it has not seen
    least = [dictionary.by_chance(rules.worse) for dictionary in dictionaries]
    total, judged = 0.0, 0
    for index, (number, pair) in enumerate(waiting):
        found = dictionaries[index % 2].likeness(*pair.words)
        judged += found is not None
        total += found or 0.0
        if found is not None and found < least[index % 2]:
            _reject(made, rejected, "alignment", number, pair)
        else:
            yield pair
        if index % _BATCH == 0:
            tell("pairs judged by their words", index)
    by_chance = sum(dictionary.by_chance(0.5) for dictionary in dictionaries) / 2
    made.likeness = {"pairs": total / max(1, judged), "by_chance": by_chance, "least": sum(least) / 2}
