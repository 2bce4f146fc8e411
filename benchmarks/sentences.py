"""How often sentences that stood on lines of their own are found again when eight lines are put together.

    REGARD_DATA=… python benchmarks/sentences.py

A boundary counts if its line ends in a stop. Splits inside a line are counted beside it: most are right, for lines may
hold several sentences, so that number is only to be compared. sentencex and pySBD are measured too where installed.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from itertools import accumulate
from pathlib import Path
from typing import Any

from record import RESULTS, circumstances, write

from regard.errors import DataError
from regard.text import read_lines
from regard.text.sentences import split_sentences

SETS = {
    "English news": ("wmt_newstest/newstest2012.en.gz", "en", " "),
    "German news": ("wmt_newstest/newstest2012.de.gz", "de", " "),
    "French news": ("wmt_newstest/newstest2012.fr.gz", "fr", " "),
    "Chinese news": ("wmt_newstest/newstest2017.zh-en.zh.gz", "zh", ""),
    "English talks": ("iwslt14_de-en/ted.tst2012.raw.en.gz", "en", " "),
    "German talks": ("iwslt14_de-en/ted.tst2012.raw.de.gz", "de", " "),
    "German parliament": ("europarl_de-en_20k/valid.de.gz", "de", " "),
    "German everyday": ("tatoeba_en-de/test.de.gz", "de", " "),
    "English manuals": ("softdocs_en-de/valid.en.gz", "en", " "),
}
LINES, TOGETHER = 2000, 8
_CLOSING = "\"”’»)'」』）"
Split = Callable[[str, str], list[str]]


def splitters() -> Iterator[tuple[str, Split]]:
    """Ours, and each library that is installed."""
    yield "regard", split_sentences
    for name in ("sentencex", "pysbd"):
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        yield f"{name} {version(name)}", _of(name, module)


def _of(name: str, module: Any) -> Split:
    if name == "sentencex":
        return lambda text, language: list(module.segment(language, text))
    made: dict[str, Any] = {}

    def split(text: str, language: str) -> list[str]:
        if language not in made:
            made[language] = module.Segmenter(language=language, clean=False)
        return list(made[language].segment(text))

    return split


def measure(split: Split, lines: list[str], language: str, joiner: str) -> dict[str, Any]:
    found = expected = inner = 0
    began = time.perf_counter()
    for start in range(0, len(lines) - TOGETHER + 1, TOGETHER):
        group = lines[start : start + TOGETHER]
        text = joiner.join(group)
        starts = set(accumulate(len(line) + len(joiner) for line in group[:-1]))
        due = {place for place in starts if text[:place].rstrip().rstrip(_CLOSING).endswith(tuple(".!?。！？…"))}
        made = set()
        place = 0
        for sentence in split(text, language)[:-1]:
            place += len(sentence)
            while place < len(text) and text[place] == " ":
                place += 1
            made.add(place)
        found, expected, inner = found + len(made & due), expected + len(due), inner + len(made - starts)
    seconds = time.perf_counter() - began
    return {
        "found": round(100 * found / expected, 2),
        "boundaries": expected,
        "inside lines": inner,
        "seconds": round(seconds, 2),
    }


def main() -> int:
    if not os.environ.get("REGARD_DATA"):
        raise DataError("REGARD_DATA is not set; set it to the folder that holds wmt_newstest/ and the others.")
    data = Path(os.environ["REGARD_DATA"])
    results: dict[str, Any] = {}
    for name, split in splitters():
        for set_, (path, language, joiner) in SETS.items():
            lines = [line.strip() for line in read_lines(data / path) if line.strip()][:LINES]
            row = measure(split, lines, language, joiner)
            results.setdefault(set_, {})[name] = row
            sys.stdout.write(
                f"{name:18s} {set_:18s} {row['found']:6.2f} % of {row['boundaries']}, {row['inside lines']} inside\n"
            )
    write(RESULTS / "sentences.json", {**circumstances(), "sets": results})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
