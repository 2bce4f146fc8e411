"""Lines made shard by shard in a folder beside the output, so that an interrupted job does only what is missing.

Each shard is given its name when it is whole. Shards of another text or of other settings are thrown away.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from regard.errors import ModelError, TextError
from regard.machine import locked, write_atomically
from regard.text.lines import iter_lines, write_lines


class Shards:
    """The shards of one job: `count` lines, `size` of them in each but the last."""

    def __init__(self, folder: Path, count: int, size: int) -> None:
        self.folder, self.count, self.size = folder, count, size
        self.number = -(-count // size)

    @property
    def missing(self) -> list[int]:
        """Numbers of the shards that are not there yet."""
        return [number for number in range(self.number) if not self._path(number).exists()]

    def put(self, number: int, lines: Sequence[str]) -> None:
        """A shard that is whole; raises TextError for another number of lines than it must have."""
        wanted = min(self.size, self.count - number * self.size)
        if len(lines) != wanted:
            raise TextError(f"shard {number} has {len(lines):,} lines and must have {wanted:,}; run the same again.")
        write_lines(self._path(number), lines)

    def lines(self) -> Iterator[str]:
        """The lines of all shards in order. Raises TextError if there are not as many as there must be."""
        count = 0
        for number in range(self.number):
            for line in iter_lines(self._path(number)):
                count += 1
                yield line
        if count != self.count:
            raise TextError(f"{count:,} lines are there for {self.count:,}; remove {self.folder} and run it again.")

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:08}.txt"


@contextmanager
def shards_beside(output: Path, wanted: Mapping[str, object], count: int, size: int) -> Iterator[Shards]:
    """The shards of an output, which go when all is done well; `wanted` is all that they depend on.

    Raises ModelError where another job writes the same output, TextError where a directory stands in its place.
    """
    if output.is_dir():
        raise TextError(f"{output}: is a directory; name another file.")
    folder = output.with_name(f"{output.name}.shards")
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / "lock") as alone:
        if not alone:
            raise ModelError(f"{output}: another job is translating into this file; wait for it, or name another.")
        job, text = folder / "job.json", json.dumps(wanted, indent=1)
        if not job.exists() or job.read_text(encoding="utf-8") != text:
            for old in folder.glob("*.txt"):
                old.unlink()
            write_atomically(job, text)
        yield Shards(folder, count, size)
    shutil.rmtree(folder)


def measured(file: Path) -> tuple[int, str]:
    """How many lines a file has, and the digest of its text."""
    digest, count = hashlib.sha256(), 0
    for line in iter_lines(file):
        digest.update(line.encode() + b"\n")
        count += 1
    return count, digest.hexdigest()


def parts_of(file: Path, size: int, missing: list[int]) -> Iterator[tuple[int, int, list[str]]]:
    """Of each missing shard its number, the number of its first line, and its lines; one is in memory at a time."""
    lines, wanted = iter_lines(file), set(missing)
    for number in range(max(missing) + 1):
        part = list(islice(lines, size))
        if number in wanted:
            yield number, number * size + 1, part
