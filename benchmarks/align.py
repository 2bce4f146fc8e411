"""Alignment error rate of attention, and of a statistical aligner on the same text, against gold links.

    REGARD_DATA=… python benchmarks/align.py --text runs/align/text --bundle runs/align/run/bundle \\
        --eflomal .peers/eflomal/bin/eflomal-align

`--text` is what benchmarks/align_text.py wrote, and the bundle was trained on it (recipes/align): it writes English,
and English words are linked to those of the other side. Rule, layer and head are chosen on the Chinese-English gold set
alone; German-English and English-French are then scored as they were chosen. Beside it stand the naive reading (the
step that writes the token, all layers and heads averaged) and eflomal (Östling and Tiedemann 2016), trained for each
pair on the same lines, the gold set's sentences among them; Chinese it reads by characters, which are traced back to
their words. eflomal also has a second direction: the best way to join the two is chosen on Chinese-English, and all
ways are in the results. It is GPL, so it belongs in an environment of its own (`pip install eflomal`). What is not
given, bundle or eflomal, is left as it was measured before; `--linked` measures `regard link` on eflomal's lines, and
`--guided` the head that recipes/align/guided-de-en.toml taught, whose text has the gold set's sentences in it too.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from record import RESULTS, circumstances, write

import regard
from regard.errors import DataError
from regard.linking.aer import Gold, Link, alignment_error_rate
from regard.linking.align import SYMMETRIES, AlignmentChoice, Reading, align_lines, choose, read_gold
from regard.tasks.translate import Translator
from regard.text import read_lines, write_lines

CHOSEN_ON = "zh-en"
PAIRS = (CHOSEN_ON, "de-en", "en-fr")
NAIVE = AlignmentChoice(share=False, symmetry="target")
GUIDED = "de-en"  # what the taught model translates
TAUGHT = AlignmentChoice(readings=(Reading("input", layer=2, head=1),))
ONE = "one direction"
_CHINESE = re.compile(r"[\u3400-\u9fff]|[^\s\u3400-\u9fff]+")
_Links = list[frozenset[Link]]


def tokens(line: str, language: str) -> tuple[list[str], list[int]]:
    """What eflomal reads of a line, and the word that each token stands in."""
    cut = _CHINESE if language == "zh" else re.compile(r"\S+")
    found = [(token, place) for place, word in enumerate(line.split()) for token in cut.findall(word)]
    return [token for token, _ in found], [place for _, place in found]


def eflomal(program: Path, text: Path, pair: str, gold: tuple[list[str], list[str]]) -> tuple[_Links, _Links]:
    """Links of both directions between the words of the gold pairs, which are the last lines of the training text."""
    with tempfile.TemporaryDirectory() as place:
        names = {letter: str(Path(place) / letter) for letter in "stfr"}
        sides = []
        for letter, language, known in zip("st", pair.split("-"), gold, strict=True):
            lines = read_lines(text / pair / f"train.{language}")[: -len(known)]
            read = [tokens(line, language) for line in known]
            sides.append(read)
            write_lines(names[letter], [" ".join(words) for words, _ in [*(tokens(x, language) for x in lines), *read]])
        options = [word for letter, path in names.items() for word in (f"-{letter}", path)]
        subprocess.run([str(program), *options, "--overwrite"], check=True)
        found = []
        for letter in "fr":
            lines = read_lines(names[letter])[-len(gold[0]) :]
            each = [[tuple(map(int, link.split("-"))) for link in line.split()] for line in lines]
            found.append(
                [frozenset((s[1][i], t[1][j]) for i, j in e) for e, s, t in zip(each, sides[0], sides[1], strict=True)]
            )
    return found[0], found[1]


def linked(text: Path, pair: str, gold: tuple[list[str], list[str]]) -> _Links:
    """Links by `regard link` between the words of the gold pairs, learnt from the same lines as eflomal's."""
    sides = zip(pair.split("-"), gold, strict=True)
    learn = [read_lines(text / pair / f"train.{language}")[: -len(known)] for language, known in sides]
    return [frozenset(one.links) for one in regard.link_lines(*gold, learn=(learn[0], learn[1]))]


def figures(links: Sequence[Collection[Link]], gold: Sequence[Gold]) -> dict[str, Any]:
    """AER, precision and recall with their intervals."""
    return {name: score.to_dict() for name, score in alignment_error_rate(links, gold).items()}


def joined(there: _Links, back: _Links, gold: Sequence[Gold]) -> dict[str, Any]:
    """Figures of one direction, and of both by every way to join them."""
    found = {ONE: figures(there, gold)}
    for name, join in SYMMETRIES.items():
        found[name] = figures([join(f, b) for f, b in zip(there, back, strict=True)], gold)
    return found


def attention(model: Translator, pair: str, lines: tuple[list[str], list[str]], how: AlignmentChoice) -> _Links:
    """Links by the attention of a model that writes English."""
    if pair.endswith("-en"):
        return [frozenset(a.links) for a in align_lines(model, *lines, choice=how)]
    return [frozenset((i, j) for j, i in a.links) for a in align_lines(model, *lines[::-1], choice=how)]


def measure(arguments: argparse.Namespace, data: Path, found: dict[str, Any]) -> None:
    """Put the figures of what was asked for into `found`, pair by pair, the one that is chosen on first."""
    model = arguments.bundle and regard.load(arguments.bundle)
    if model:
        found["training"] = model.bundle.provenance.training
    ways: dict[str, AlignmentChoice] = {}
    for pair in PAIRS:
        lines = tuple(read_lines(arguments.text / pair / f"gold.{language}") for language in pair.split("-"))
        gold = read_gold(data / "word_alignment" / f"{pair}.dev.gold.gz", len(lines[0]))
        if model and not ways:
            choice = choose(model, None, *lines, gold)
            alone = choose(model, None, *lines, gold, how=AlignmentChoice(share=False, symmetry="target"))
            best = AlignmentChoice(readings=alone.readings[:1], share=False, symmetry="target")
            found["choice"] = choice.model_dump(exclude={"reverse"})
            ways = {"attention": choice, "one reading": best, "naive shared out": AlignmentChoice(), "naive": NAIVE}
        systems = found.setdefault("pairs", {}).setdefault(pair, {"lines": len(gold), "systems": {}})["systems"]
        for name, how in ways.items():
            systems[name] = {ONE: figures(attention(model, pair, lines, how), gold)}
        if arguments.guided and pair == GUIDED:
            systems["guided"] = {ONE: figures(attention(regard.load(arguments.guided), pair, lines, TAUGHT), gold)}
        if arguments.linked:
            systems["regard link"] = {ONE: figures(linked(arguments.text, pair, lines), gold)}
        if arguments.eflomal:
            systems["eflomal"] = joined(*eflomal(arguments.eflomal, arguments.text, pair, lines), gold)
    known = found["pairs"][CHOSEN_ON]["systems"]
    found["joined"] = {name: min(scores, key=lambda way: scores[way]["aer"]["value"]) for name, scores in known.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", required=True, type=Path, help="the folder that align_text.py filled")
    parser.add_argument("--bundle", type=Path, help="trained on it, for all directions")
    parser.add_argument("--eflomal", type=Path, help="the program eflomal-align")
    parser.add_argument("--guided", type=Path, help="a bundle of recipes/align/guided-de-en.toml")
    parser.add_argument("--linked", action="store_true", help="measure `regard link`")
    parser.add_argument("--out", type=Path, default=RESULTS / "align.json", help="what is in it already is kept")
    arguments = parser.parse_args()
    if not os.environ.get("REGARD_DATA"):
        raise DataError("REGARD_DATA is not set; set it to the folder that holds word_alignment/.")
    found = json.loads(arguments.out.read_text("utf-8")) if arguments.out.exists() else {}
    measure(arguments, Path(os.environ["REGARD_DATA"]), found)
    now = circumstances()
    asked = {"guided": arguments.guided, "regard link": arguments.linked, "eflomal": arguments.eflomal}
    how = {key: now[key] for key in ("date", "command", "commit", "machine")}
    found["measured"] = found.get("measured", {}) | {name: how for name, given in asked.items() if given}
    write(arguments.out, found | now)
    if "choice" in found:
        sys.stdout.write(json.dumps(found["choice"]["readings"]) + "\n")
    for pair, held in found["pairs"].items():
        for name, scores in held["systems"].items():
            for way in dict.fromkeys((ONE, found["joined"].get(name, ONE))):
                aer = scores[way]["aer"]
                low, high = aer["interval"]
                sys.stdout.write(f"{pair} {name:16s} {way:18s} AER {aer['value']:.2f} [{low:.2f}, {high:.2f}]\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
