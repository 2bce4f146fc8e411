"""The sentences that each checkpoint of a run translates: chosen once, and kept beside the results."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from regard.data.store import Store
from regard.errors import DataError
from regard.machine import write_atomically
from regard.text.lines import read_lines

from .runs import Run, read_json

MOST = 20
LONGEST = 1000  # characters
_COUNT = 6
_LONG = 40  # tokens: of those that are chosen, none is longer, so that its attention fits on a page


@dataclass(frozen=True)
class Sentence:
    """A source line, and what a human made of it, if that is known."""

    source: str
    reference: str = ""


def from_file(path: Path) -> tuple[Sentence, ...]:
    """A file's lines: a source, or a source and its reference with a tab between. Raises DataError for too many."""
    found = []
    for number, line in enumerate(read_lines(path), start=1):
        source, _, reference = line.partition("\t")
        if not source.strip():
            continue
        if max(len(source), len(reference)) > LONGEST:
            raise DataError(f"{path}: line {number} has more than {LONGEST:,} characters; give sentences.")
        found.append(Sentence(source, reference))
    if not 0 < len(found) <= MOST:
        raise DataError(f"{path}: has {len(found):,} sentences; give 1 to {MOST}, which every checkpoint translates.")
    return tuple(found)


def chosen(valid: Store) -> tuple[Sentence, ...]:
    """A few pairs that training does not see, from short to long, the same ones whenever they are chosen."""
    lengths = valid.source.lengths
    fits = [i for i in range(len(valid)) if 1 < lengths[i] <= _LONG and len(valid.source.text(i)) <= LONGEST]
    order = sorted(fits, key=lambda i: int(lengths[i]))
    at = [order[(2 * i + 1) * len(order) // (2 * _COUNT)] for i in range(_COUNT)] if order else []
    pairs = {pair[0]: pair for pair in map(valid.pair, at)}  # a corpus may say the same twice
    return tuple(Sentence(*pair) for pair in pairs.values())


def keep(run: Run, sentences: tuple[Sentence, ...]) -> None:
    """Write down which sentences the run's checkpoints translate; those of other sentences count no more."""
    run.cache.mkdir(parents=True, exist_ok=True)
    text = json.dumps([asdict(each) for each in sentences], ensure_ascii=False, indent=1)
    write_atomically(run.cache / "sentences.json", text + "\n")


def kept(run: Run) -> tuple[Sentence, ...]:
    """The sentences that were chosen for the run; none where that was not yet done."""
    found = read_json(run.cache / "sentences.json")
    if not isinstance(found, list):
        return ()
    try:
        return tuple(Sentence(str(each["source"]), str(each["reference"])) for each in found)[:MOST]
    except (TypeError, KeyError):
        return ()


def digest_of(sentences: tuple[Sentence, ...]) -> str:
    """What tells these sentences from others."""
    return hashlib.sha256(json.dumps([asdict(each) for each in sentences]).encode()).hexdigest()[:16]
