"""How often a beam misses the likeliest translation, and how often that is a worse one: search errors, model errors.

    regard demo --out demo
    python benchmarks/search_errors.py --bundle demo/bundle --source demo/heldout.source \
        --reference demo/heldout.reference

Exact search is the judge (Stahlberg and Byrne 2019). A beam's hypothesis is a search error where the exact one has a
higher score by more than rounding; lines on which exact search gave up are counted apart.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

from record import RESULTS, circumstances, write

import regard
import regard.studies.exact  # adds the search
from regard.errors import RegardWarning
from regard.metrics import bleu
from regard.text import read_lines

_ROUNDING = 1e-4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--reference", type=Path, required=True)
    parser.add_argument("--lines", type=int, default=400, help="so many of the file, from its beginning")
    parser.add_argument("--most-steps", type=int, default=3000)
    parser.add_argument("--penalties", default="none,gnmt")
    parser.add_argument("--results", type=Path, default=RESULTS / "search_errors.json")
    given = parser.parse_args()
    lines, references = (list(read_lines(file))[: given.lines] for file in (given.source, given.reference))
    translator = regard.load(given.bundle)
    penalties = given.penalties.split(",")
    tables = [measured(translator, lines, references, penalty, given.most_steps) for penalty in penalties]
    digest = regard.inspect(given.bundle).digest
    told = {"bundle": digest, "lines": len(lines), "most_steps": given.most_steps, "penalties": tables}
    write(given.results, {**circumstances(), **told})


def measured(translator: Any, lines: list[str], references: list[str], penalty: str, most_steps: int) -> dict[str, Any]:
    """Of one penalty: what each beam misses of what exact search finds, and how many lines each has right."""
    exact, unfinished = [], []
    for number, line in enumerate(lines):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", RegardWarning)
            found = translator.translate([line], method="exact", beam=4, penalty=penalty, most_steps=most_steps)
        exact.append(found[0].hypotheses[0])
        unfinished += [number] if said else []
    rows = []
    for beam in (1, 2, 4, 8):
        given = [each.hypotheses[0] for each in translator.translate(lines, beam=beam, penalty=penalty)]
        missed = [i for i, h in enumerate(given) if exact[i].score > h.score + _ROUNDING]
        rows.append({"beam": beam, "search_errors": len(missed), **judged(given, references)})
    empty = sum(not each.text for each in exact)
    of_exact = {"unfinished": len(unfinished), "empty": empty, **judged(exact, references)}
    print(penalty, rows, of_exact, flush=True)
    return {"penalty": penalty, "beams": rows, "exact": of_exact}


def judged(hypotheses: list[Any], references: list[str]) -> dict[str, Any]:
    """How many are the reference, character by character, and BLEU with its signature."""
    texts = [each.text for each in hypotheses]
    score = bleu(texts, references, resamples=0)
    right = sum(text == reference for text, reference in zip(texts, references, strict=True))
    return {"right": right, "bleu": score.value, "signature": score.signature}


if __name__ == "__main__":
    main()
