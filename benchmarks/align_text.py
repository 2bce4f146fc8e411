"""The text that the aligner of recipes/align learns from, in the form of the gold sets: words, in lower case.

    REGARD_DATA=… python benchmarks/align_text.py runs/align/text

For each pair of languages it writes train, valid and gold, one file a language; and, of all pairs together, the other
language to English, train.source and train.target, valid.source and valid.target. Gold sets
come as words; text as people write it would leave a model to guess at their tokens. So here all is folded (NFKC, lower
case, plain quotes), words are cut from punctuation, English 's and n't from what they follow; French is spelt out as
the gold set does (l' is le, du is de le); Chinese is left in one token. Lines with markup are left out. The sentences
of the gold set, never its links, are the last lines of train, as is usual for aligners, which are asked about the text
that they learn from.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import unicodedata
from itertools import pairwise
from pathlib import Path

from regard.errors import DataError
from regard.linking.align import read_lines_of
from regard.text import read_lines, write_lines
from regard.text.sentences import unspaced

_NEWS = [f"wmt_newstest/{name}" for name in ("news-test2008", *(f"newstest{year}" for year in range(2009, 2014)))]
TRAIN = {
    "zh-en": [
        "wmt_newstest/newstest2017.zh-en",
        *(f"mlqe_pe_en-zh/{part}" for part in ("train", "dev")),
        *(f"msctd_en-zh/train.{part}" for part in ("enzh", "zhen")),
        *(f"{name}/train" for name in ("tatoeba_en-zh", "captions3am_en-zh")),
        *(f"softdocs_en-zh/train.{part}" for part in ("python", "django")),
    ],
    "de-en": [
        "europarl_de-en_20k/train",
        *_NEWS,
        *(f"mlqe_pe_en-de/{part}" for part in ("train", "dev")),
        *(f"{name}/train" for name in ("tatoeba_en-de", "multi30k")),
    ],
    "en-fr": [
        *_NEWS,
        *(f"{name}/train" for name in ("tatoeba_en-fr", "multi30k")),
        *(f"softdocs_en-fr/train.{part}" for part in ("python", "django")),
    ],
}
VALID = {"zh-en": "tatoeba_en-zh/valid", "de-en": "europarl_de-en_20k/valid", "en-fr": "tatoeba_en-fr/valid"}
_VALID = 200
"""Pairs of lines of each language that the joint model is watched on."""
_MOST = 160_000
"""Pairs of lines of one file, evenly spread. Short everyday sentences teach a model fastest what translates what."""
_MARKUP = re.compile(r"[`*<>|\\_{}=]|::|&\w+;")
_QUOTES = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "„": '"', "«": '"', "»": '"', "–": "-", "—": "-"})
_ELIDED = re.compile(r"\b(l|d|j|n|s|c|m|t|(?:lors|puis|jus|quoi)?qu)'(?=\w)")
_FRENCH = {"au": "à le", "aux": "à les", "du": "de le", "des": "de les"}
_WORD = re.compile(r"n't\b|'(?:s|re|ve|ll|d|m)\b|(?:mr|mrs|ms|dr|st|hon|m)\.|\d+(?:[.,:]\d+)*%?|\w+(?:-\w+)*'?|[^\w\s]")


def words(line: str, language: str, pair: str) -> str:
    """A line of running text in the form of the pair's gold set."""
    line = unicodedata.normalize("NFKC", line).translate(_QUOTES).lower()
    if language == "zh":
        parts = line.split()
        spaces = ["" if unspaced(a[-1]) or unspaced(b[0]) else " " for a, b in pairwise(parts)]
        return "".join(part + space for part, space in zip(parts, [*spaces, ""], strict=True))
    if pair == "en-fr":
        line = line.replace("-", " - ")
    if language == "fr":
        line = _ELIDED.sub(lambda found: f"{found[1]}e ", line)
    if language == "en":
        line = re.sub(r"n ?'t\b", " n't", line)
        line = re.sub(r" ?'(s|re|ve|ll|d|m)\b", r" '\1", line)
    found = _WORD.findall(line)
    return " ".join(_FRENCH.get(word, word) for word in found) if language == "fr" else " ".join(found)


def _files(data: Path, stem: str, pair: str) -> list[Path]:
    """Source and target file; mlqe_pe names them by what they are, source and post-edited translation."""
    if stem.startswith("mlqe_pe"):
        sides = {"en": "src"}
        return [data / f"{stem}.{sides.get(language, 'pe')}.gz" for language in pair.split("-")]
    return [data / f"{stem}.{language}.gz" for language in pair.split("-")]


def text(data: Path, pair: str, stems: list[str]) -> list[tuple[str, str]]:
    """The pairs of lines of these files that hold no markup and have words on both sides."""
    first, second = pair.split("-")
    found = []
    for stem in stems:
        sides = [read_lines(file) for file in _files(data, stem, pair)]
        every = -(-len(sides[0]) // _MOST)
        for source, target in list(zip(*sides, strict=True))[::every]:
            if _MARKUP.search(source) or _MARKUP.search(target):
                continue
            made = words(source, first, pair), words(target, second, pair)
            if all(made):
                found.append(made)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder to write to: PAIR/train.LANGUAGE and so on")
    arguments = parser.parse_args()
    if not os.environ.get("REGARD_DATA"):
        raise DataError("REGARD_DATA is not set; set it to the folder that holds word_alignment/.")
    data = Path(os.environ["REGARD_DATA"])
    joint: dict[str, list[tuple[str, str]]] = {"train": [], "valid": []}
    for pair, stems in TRAIN.items():
        sources, targets = read_lines_of(data / f"word_alignment/{pair}.dev.txt.gz", None)
        # The gold set is in words already: only letters change, or its links would point elsewhere.
        gold = [(source.lower(), target.lower()) for source, target in zip(sources, targets, strict=True)]
        joined = [(words(s, "zh", pair) if pair == "zh-en" else s, t) for s, t in gold]
        folder = arguments.out / pair
        folder.mkdir(parents=True, exist_ok=True)
        train = text(data, pair, stems) + joined
        valid = text(data, pair, [VALID[pair]])
        second = pair.split("-")[1]
        for name, pairs in (("train", train), ("valid", valid[:_VALID])):
            joint[name] += [(s, t) if second == "en" else (t, s) for s, t in pairs]
        for name, pairs in (("train", train), ("valid", valid), ("gold", gold)):
            for language, lines in zip(pair.split("-"), zip(*pairs, strict=True), strict=True):
                write_lines(folder / f"{name}.{language}", list(lines))
            sys.stdout.write(f"{folder / name}: {len(pairs):,} pairs\n")
    for name, pairs in joint.items():
        for side, lines in zip(("source", "target"), zip(*pairs, strict=True), strict=True):
            write_lines(arguments.out / f"{name}.{side}", list(lines))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
