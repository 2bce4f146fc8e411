"""`regard.mix`: corpora of several domains or languages as one, the small ones repeated by a temperature.

With a temperature T a corpus of n pairs counts as n^(1/T) would (Arivazhagan et al. 2019, "Massively Multilingual
Neural Machine Translation in the Wild", section 4): at 1 each line stands there once, and the higher, the more alike
all count. The largest is never repeated, so that nothing is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from regard.errors import DataError, TextError
from regard.text import iter_lines, write_lines

Pair = tuple[str | Path, str | Path]
_NAME = re.compile(r"[\w.+-]{1,40}")


@dataclass(frozen=True)
class Mixed:
    """What a mixed corpus is made of."""

    pairs: dict[str, int]  # of each corpus, as it was read
    repeats: dict[str, float]  # how often each of its pairs stands in the mixture, on average
    written: dict[str, int]  # pairs of it in the mixture
    files: tuple[Path, Path]

    @property
    def symbols(self) -> list[str]:
        """What begins the sources of each corpus, where they are tagged."""
        return [f"<{name}>" for name in self.pairs]

    def to_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        return {**vars(self), "files": [str(file) for file in self.files]}


def mix(
    corpora: Mapping[str, Pair],
    out: Pair,
    *,
    temperature: float = 1.0,
    most: float = 20.0,
    tag: bool = False,
    seed: int = 1,
) -> Mixed:
    """Writes the pairs of all corpora, files of lines by a name each, into two files, corpus after corpus.

    temperature: 1 takes each pair once; at 5 a corpus with a hundredth of the largest one's pairs has each of its own
    40 times, if `most` allows it. Of a share of a repetition, lines are drawn by `seed`, corpus and number. tag: begin
    each source with `<NAME>`, which a recipe names in `text.symbols`; a name such as `2de` makes a language tag.

    Raises TextError for files with unequal numbers of lines, DataError for a name or a number that is not possible.
    """
    if not corpora or temperature < 1 or most < 1:
        raise DataError(
            f"{len(corpora)} corpora, temperature {temperature:g} and at most {most:g} repetitions: there must be a "
            "corpus, and both numbers must be at least 1."
        )
    for name in corpora:
        if not _NAME.fullmatch(name):
            raise DataError(f"{name!r}: a corpus has a name of letters, digits and . + - _, 40 at most; give it one.")
    files = Path(out[0]), Path(out[1])
    read = {Path(file).resolve() for pair in corpora.values() for file in pair}
    if len({*read, *(file.resolve() for file in files)}) < len(read) + 2:
        raise TextError(f"--out {files[0]} {files[1]}: must be two new files, and none that is read.")
    pairs = {name: _count(*map(Path, pair)) for name, pair in corpora.items()}
    largest = max(pairs.values())
    repeats = {name: min(most, (count / largest) ** (1 / temperature - 1)) for name, count in pairs.items()}
    written = dict.fromkeys(corpora, 0)

    def lines(side: int) -> Iterator[str]:
        for name, pair in corpora.items():
            mark = f"<{name}> " if tag and side == 0 else ""
            for number, line in enumerate(iter_lines(pair[side])):
                times = _times(repeats[name], f"{seed} {name} {number}")
                written[name] += times if side == 0 else 0
                for _ in range(times):
                    yield f"{mark}{line}"

    for side, file in enumerate(files):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_lines(file, lines(side))
    return Mixed(pairs, repeats, written, files)


def _count(source: Path, target: Path) -> int:
    """How many lines both files have."""
    ours, theirs = (sum(1 for _ in iter_lines(file)) for file in (source, target))
    if ours != theirs:
        raise TextError(
            f"{source} has {ours:,} lines and {target} {theirs:,}; line n of one must go with line n of the other."
        )
    return ours


def _times(repeats: float, drawn_by: str) -> int:
    """A whole number that is `repeats` on average."""
    whole = int(repeats)
    draw = int.from_bytes(blake2b(drawn_by.encode(), digest_size=8).digest()) / 2**64
    return whole + (draw < repeats - whole)
