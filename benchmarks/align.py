"""Alignment error rate of attention and of a statistical aligner on the same gold links.

    REGARD_DATA=… python benchmarks/align.py --pair de-en --forward runs/align-de-en/forward/bundle \\
        --reverse runs/align-de-en/reverse/bundle --eflomal PATH/TO/eflomal-align

Of the gold set's pairs the even ones choose layer and rule, the odd ones are scored: one direction and both, with what
was chosen, with the naive reading (the step that writes the piece, all layers and heads averaged), and by eflomal
(Östling and Tiedemann 2016), run on the text that the forward model was trained on and the gold set's sentences after
it. eflomal is GPL, so it belongs in an environment of its own (`pip install eflomal`); without --eflomal it is left
out.
It needs words: its text is in lower case, and cut at punctuation and around each Chinese character.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from record import RESULTS, circumstances, write

import regard
from regard.errors import DataError
from regard.metrics.aer import Gold, Link, alignment_error_rate
from regard.tasks.align import SYMMETRIES, Choice, Reading, align_lines, choose, read_gold, read_lines_of
from regard.text import read_lines, write_lines

NAIVE = Reading("output", 0)
_TOKEN = re.compile(r"[\u3400-\u9fff]|[^\W\u3400-\u9fff]+|[^\w\s]")


def tokens(line: str) -> tuple[list[str], list[int]]:
    """What eflomal reads of a line, and the word that each token stands in."""
    found = [
        (token.lower(), place) for place, word in enumerate(line.split()) for token in _TOKEN.findall(word) or ["_"]
    ]
    return [token for token, _ in found], [place for _, place in found]


def training_text(recipe: Any) -> tuple[list[str], list[str]]:
    """The pairs that the recipe trains on; its paths are as the bundle keeps them."""
    sides = []
    for files in (recipe.data.sources, recipe.data.targets):
        sides.append([line for file in files for line in read_lines(file)])
    return sides[0], sides[1]


def eflomal(
    program: Path, text: tuple[list[str], list[str]], sources: Sequence[str], targets: Sequence[str]
) -> tuple[list[set[Link]], list[set[Link]]]:
    """Links of both directions between the words of the last pairs, by eflomal on the whole text."""
    read, written = [[tokens(line) for line in side] for side in (sources, targets)]
    pairs = [(s, t) for s, t in zip(*text, strict=True) if s.strip() and t.strip()]
    with tempfile.TemporaryDirectory() as place:
        names = {letter: Path(place) / letter for letter in "stfr"}
        for letter, side, gold in (("s", [s for s, _ in pairs], read), ("t", [t for _, t in pairs], written)):
            write_lines(
                names[letter], [" ".join(words) for words in [tokens(x)[0] for x in side] + [w for w, _ in gold]]
            )
        options = [word for letter, path in names.items() for word in (f"-{letter}", str(path))]
        subprocess.run([str(program), *options, "--overwrite"], check=True)
        found = []
        for letter in "fr":
            lines = read_lines(names[letter])[-len(sources) :]
            each = [[tuple(map(int, link.split("-"))) for link in line.split()] for line in lines]
            found.append([{(r[1][i], w[1][j]) for i, j in e} for e, r, w in zip(each, read, written, strict=True)])
    return found[0], found[1]


def figures(links: Sequence[Collection[Link]], gold: Sequence[Gold]) -> dict[str, Any]:
    """AER, precision and recall with their intervals."""
    return {name: score.to_dict() for name, score in alignment_error_rate(links, gold).items()}


def measure(arguments: argparse.Namespace, data: Path) -> dict[str, Any]:
    place = data / "word_alignment"
    sources, targets = read_lines_of(place / f"{arguments.pair}.dev.txt.gz", None)
    gold = read_gold(place / f"{arguments.pair}.dev.gold.gz", len(sources))
    forward, reverse = regard.load(arguments.forward), regard.load(arguments.reverse)
    choice = choose(forward, reverse, sources[::2], targets[::2], gold[::2])
    read, written, known = sources[1::2], targets[1::2], gold[1::2]
    systems: dict[str, Any] = {}
    for name, how in (("chosen", choice), ("naive", Choice(reading=NAIVE, reverse=NAIVE))):
        one = align_lines(forward, read, written, reading=how.reading)
        systems[f"{name}, one direction"] = figures([a.links for a in one], known)
        for symmetry in SYMMETRIES:
            both = align_lines(
                forward,
                read,
                written,
                reading=how.reading,
                reverse=reverse,
                reverse_reading=how.reverse,
                symmetry=symmetry,
            )
            systems[f"{name}, {symmetry}"] = figures([a.links for a in both], known)
    seconds = None
    if arguments.eflomal:
        began = time.perf_counter()
        there, back = eflomal(arguments.eflomal, training_text(forward.recipe), sources, targets)
        seconds = round(time.perf_counter() - began, 1)
        pairs = [(frozenset(f), frozenset(b)) for f, b in zip(there, back, strict=True)][1::2]
        systems["eflomal, one direction"] = figures([f for f, _ in pairs], known)
        for symmetry, joined in SYMMETRIES.items():
            systems[f"eflomal, {symmetry}"] = figures([joined(f, b) for f, b in pairs], known)
    return {
        "choice": choice.model_dump(),
        "pairs": {"chosen on": len(sources[::2]), "scored on": len(known)},
        "systems": systems,
        "eflomal_seconds": seconds,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pair", required=True, help="de-en, en-fr or zh-en")
    parser.add_argument("--forward", required=True, type=Path, help="bundle from the first language to the second")
    parser.add_argument("--reverse", required=True, type=Path, help="bundle of the other direction")
    parser.add_argument("--eflomal", type=Path, help="the program eflomal-align")
    parser.add_argument("--out", type=Path, default=RESULTS / "align.json", help="pairs in it already are kept")
    arguments = parser.parse_args()
    if not os.environ.get("REGARD_DATA"):
        raise DataError("REGARD_DATA is not set; set it to the folder that holds word_alignment/.")
    found = json.loads(arguments.out.read_text("utf-8")) if arguments.out.exists() else {}
    found[arguments.pair] = {**circumstances(), **measure(arguments, Path(os.environ["REGARD_DATA"]))}
    write(arguments.out, found)
    for name, scores in found[arguments.pair]["systems"].items():
        aer = scores["aer"]
        sys.stdout.write(f"{name:28s} AER {aer['value']:.2f} [{aer['interval'][0]:.2f}, {aer['interval'][1]:.2f}]\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
