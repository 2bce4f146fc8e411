"""Labelled bracket F1 of a parser and of a probabilistic grammar read off the same trees.

    REGARD_DATA=… python benchmarks/parsing.py treebank_craft --part test [--found FILE] [--most 40] [--out FILE]

REGARD_DATA is the folder that holds the treebank's, with train.mrg.gz and test.mrg.gz in it. The grammar (pcfg.py)
parses the sentences of at most `--most` words, and is the measure; `--found` are trees that a parser made of all of
them, hypotheses/test.txt of a run, say.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import pcfg
from record import RESULTS, circumstances, write

from regard.errors import DataError
from regard.metrics import Score
from regard.parsing.brackets import score_trees
from regard.parsing.trees import Tree, iter_trees

__all__ = ["baseline", "main"]


def baseline(train: Path, gold: list[Tree]) -> dict[str, Any]:
    """The grammar of a treebank, and the scores of its trees; a sentence that it cannot parse is one flat bracket."""
    began = time.process_time()
    grammar = pcfg.read_off(iter_trees(train))
    learnt = time.process_time() - began
    began = time.process_time()
    found, none = [], 0
    for tree in gold:
        best = grammar.parse([word.text for word in tree.words()])
        none += best is None
        found.append(Tree("S", tuple(tree.words())) if best is None else best[0])
    return {
        "symbols": len(grammar.symbols),
        "binary rules": len(grammar.binary.values),
        "unary rules": len(grammar.unary.values),
        "words rarer than this are classes": pcfg.RARE,
        "without a tree": none,
        "learning, seconds of processor": round(learnt, 1),
        "parsing, seconds of processor": round(time.process_time() - began, 1),
        "scores": _plain(score_trees(found, gold)),
    }


def _plain(scores: dict[str, Score]) -> dict[str, Any]:
    return {name: score.to_dict() for name, score in scores.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description="Bracket F1 of a parser and of a grammar read off the same trees.")
    parser.add_argument("treebank", help="a folder in REGARD_DATA")
    parser.add_argument("--part", default="test", help="which of the treebank's files: dev, test")
    parser.add_argument("--found", type=Path, help="a parser's trees of all sentences")
    parser.add_argument("--most", type=int, default=40, help="words of a sentence that the grammar parses")
    parser.add_argument("--out", type=Path, help="by default benchmarks/results/parsing_NAME_PART.json")
    given = parser.parse_args()

    if not os.environ.get("REGARD_DATA"):
        raise DataError("REGARD_DATA is not set; set it to the folder that holds treebank_craft/ and the others.")
    place = Path(os.environ["REGARD_DATA"]) / given.treebank
    gold = list(iter_trees(place / f"{given.part}.mrg.gz"))
    short = [i for i, tree in enumerate(gold) if len(tree.words()) <= given.most]
    result: dict[str, Any] = {**circumstances(), "treebank": given.treebank, "part": given.part, "sentences": len(gold)}
    result |= {"most words": given.most, "short sentences": len(short)}
    result["grammar"] = baseline(place / "train.mrg.gz", [gold[i] for i in short])
    sys.stdout.write(f"grammar, {len(short)} sentences: {result['grammar']['scores']['f1']['value']:.2f}\n")
    if given.found:
        found = list(iter_trees(given.found))
        same, all_of_them = score_trees([found[i] for i in short], [gold[i] for i in short]), score_trees(found, gold)
        result["parser"] = {"same sentences": _plain(same), "all sentences": _plain(all_of_them)}
        sys.stdout.write(f"parser, the same: {same['f1'].value:.2f}; all: {all_of_them['f1'].value:.2f}\n")
    write(given.out or RESULTS / f"parsing_{given.treebank.removeprefix('treebank_')}_{given.part}.json", result)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
