"""Measure a bundle's confidence on pairs that it was not trained on, and on words that people judged.

    python benchmarks/confidence.py --bundle runs/multi30k/bundle --source val.en --reference val.de

The calibration is that of `regard calibrate`, each half of the lines judged by what the other half gave. With `--judged
DIRECTORY` of word-level quality estimation (dev.src.gz, dev.mt.gz, dev.tags.gz: a source, another system's translation,
and OK or BAD for each gap and word of it) the model is made to write those translations, and the AUC says how well its
probabilities part OK from BAD: another system's words, of a domain that the model need not know.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import torch
from record import RESULTS, circumstances, write

import regard
from regard import pictures
from regard.linking.align import words
from regard.tasks.details import sums_of
from regard.tasks.forced import forced
from regard.text import read_lines
from regard.tuning.calibrate import calibrate
from regard.tuning.reliability import reliability


def judged(translator: regard.Translator, directory: Path, lines: int) -> dict[str, Any]:
    """The AUC of words of another system's translations, and what share of them people kept."""
    source, target, tags = (read_lines(directory / f"dev.{name}.gz")[:lines] for name in ("src", "mt", "tags"))
    ids = translator.encode(source)
    written = [translator.target.encode(line) for line in target]
    made = forced(translator.model, ids, written, temperature=translator.calibration.temperature)
    given: list[float] = []
    right: list[bool] = []
    for line, verdicts, one in zip(target, tags, made, strict=True):
        sums = sums_of(one.log_probabilities, translator.target.spans(line), words(line))
        of_words = verdicts.split()[1::2]  # every other tag is of a gap
        assert len(of_words) == len(sums), line
        given += [translator.calibration.word(value) for value in sums]
        right += [verdict == "OK" for verdict in of_words]
    found = reliability(given, right)
    return {"data": directory.name, "lines": len(source), "words": found.count, "right": found.right, "auc": found.auc}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--reference", type=Path, required=True)
    parser.add_argument("--judged", type=Path, help="a directory of word-level quality estimation")
    parser.add_argument("--lines", type=int, default=1000, help="how many of its lines")
    parser.add_argument("--results", type=Path, default=RESULTS / "confidence.json")
    arguments = parser.parse_args()
    translator = regard.load(arguments.bundle, device="cpu")
    found = calibrate(
        translator, read_lines(arguments.source), read_lines(arguments.reference), progress=lambda what: print(what)
    )
    translator.calibration = found
    for name in ("tokens", "words"):
        for step, one in found.report[name].items():
            print(f"{name}, {step}: calibration error {one['error']:.2%}, AUC {one['auc']:.3f}")
    result = {
        **circumstances(),
        "threads": torch.get_num_threads(),
        "bundle": translator.recipe.name,
        "calibration": found.model_dump(mode="json"),
    }
    if arguments.judged:
        result["judged"] = judged(translator, arguments.judged, arguments.lines)
        print(result["judged"])
    write(arguments.results, result)
    pictures.reliability(found.report).save(arguments.results.with_suffix(".svg"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
