"""Count the sentences that CTranslate2 translates exactly as we do, in float32, by the same search.

    python benchmarks/identity.py --bundle runs/multi30k/bundle --source test.en --lines 1000

The bundle goes through `regard export --to ctranslate2`. Both sides then search with the same beam, the same penalty
(a power of the length, the end counted) and the same rule for stopping (`stop = "beam"`: when as many have finished as
the beam holds). Outputs are compared token by token. Where they differ, both are scored by the model in float64: a gap
of the size of float32's rounding says that the two were a tie. Exit code 1 if fewer than `--floor` percent are equal.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from record import RESULTS, circumstances, write

import regard
from regard.exchange.ctranslate2 import CTranslate2
from regard.exchange.export import export
from regard.search.table import SearchConfig, penalty_of
from regard.tasks.decode import decode
from regard.tasks.engine import backend_of, exact_copy
from regard.tasks.forced import forced
from regard.text import read_lines

SEARCHES = {
    "beam": {"beam": 4, "alpha": 0.6, "stop": "beam"},
    "greedy": {"beam": 1, "alpha": 0.0, "stop": "beam"},
    "beam, our own rule for stopping": {"beam": 4, "alpha": 0.6, "stop": "bound"},
}
"""The last is not the same search: it says what the rule changes."""
PRECISIONS = {"float32": "float32", "float64": "exact"}
"""Of ours: as the results call them, and as they are asked for."""


def compared(
    model: Any, lines: Sequence[str], sources: Sequence[list[int]], ours: Any, theirs: Sequence[list[int]], power: Any
) -> list[dict[str, Any]]:
    """Each sentence that differs: both outputs and their scores in float64."""

    def score(source: list[int], ids: list[int], ended: bool) -> float:
        return sum(forced(model, [source], [ids])[0].log_probabilities) / power(len(ids) + ended)

    found = []
    for number, (line, source, (best, *_), other) in enumerate(zip(lines, sources, ours, theirs, strict=True), start=1):
        if best.ids == other:
            continue
        scores = {"ours": score(source, best.ids, True), "theirs": score(source, other, True)}
        gap = scores["ours"] - scores["theirs"]
        found.append(
            {
                "line": number,
                "source": line,
                "scores": scores,
                "gap": gap,
                "better": "ours" if gap > 0 else "theirs",
                "ended": best.ended,
                "ids": {"ours": best.ids, "theirs": other},
            }
        )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--source", type=Path, required=True, help="source lines")
    parser.add_argument("--lines", type=int, default=1000, help="how many of them")
    parser.add_argument("--floor", type=float, default=99.0, help="percent that must be equal, by the same search")
    parser.add_argument("--results", type=Path, default=RESULTS / "identity.json")
    arguments = parser.parse_args()
    translator = regard.load(arguments.bundle, device="cpu")
    assert translator.bundle is not None
    lines = [line for line in read_lines(arguments.source) if line.strip()][: arguments.lines]
    sources = translator.encode(lines)
    exact = exact_copy(translator.model)
    runs = []
    with tempfile.TemporaryDirectory() as place:
        there = Path(place) / "there"
        verified = export(arguments.bundle, "ctranslate2", there)
        print(verified)
        other = CTranslate2(there, translator.bundle)
        theirs: dict[tuple[int, float], list[list[int]]] = {}
        for name, settings in SEARCHES.items():
            search = SearchConfig.model_validate({**settings, "penalty": "power", "extra_length": 50})
            key = (search.beam, search.alpha)
            if key not in theirs:
                began = time.perf_counter()
                theirs[key] = [other.translate(ids, search, len(ids) + search.extra_length) for ids in sources]
                print(f"{other.name}, beam {search.beam}: {time.perf_counter() - began:.0f} s", flush=True)
            for precision, asked in PRECISIONS.items():
                ours = decode(backend_of(translator.model, asked), sources, search)
                differing = compared(exact, lines, sources, ours, theirs[key], penalty_of(search.penalty, search.alpha))
                percent = 100 * (1 - len(differing) / len(lines))
                print(f"{name}, ours in {precision}: {percent:.1f} % equal", flush=True)
                for each in differing:
                    print(f"  line {each['line']}: {each['better']} by {abs(each['gap']):.2e}", flush=True)
                runs.append(
                    {
                        "search": name,
                        "settings": search.model_dump(include={"beam", "penalty", "alpha", "stop", "extra_length"}),
                        "precision": precision,
                        "equal_percent": percent,
                        "differing": [
                            {
                                **{key: value for key, value in each.items() if key != "ids"},
                                "outputs": {k: translator.target.decode(v) for k, v in each["ids"].items()},
                            }
                            for each in differing
                        ],
                    }
                )
    write(
        arguments.results,
        {
            **circumstances(),
            "other": other.name,
            "threads": torch.get_num_threads(),
            "bundle": translator.recipe.name,
            "parameters": translator.bundle.parameters,
            "lines": len(lines),
            "largest_difference_of_a_golden_token": verified.largest if verified else None,
            "runs": runs,
        },
    )
    same = [run for run in runs if run["settings"]["stop"] == "beam" and run["precision"] == "float32"]
    return 1 if min(run["equal_percent"] for run in same) < arguments.floor else 0


if __name__ == "__main__":
    sys.exit(main())
