"""What a small reader learns from synthetic questions: its scores on names that training never had.

    python benchmarks/reading.py

Questions are made from templates (regard/reading/synthetic.py), which is no real text. Trained by
`recipes/reading/synthetic.toml` on 20,000 questions, its weights chosen on 500 dev questions; the 1,000 test questions
are scored once. Beside them 1,000 further ones with the names of training.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from record import RESULTS, circumstances, write

import regard
from regard.reading import Question, scores_of
from regard.reading.answer import answer
from regard.reading.learn import learn
from regard.reading.synthetic import synthesize

RECIPE = Path(__file__).resolve().parent.parent / "recipes" / "reading" / "synthetic.toml"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS / "reading.json")
    parser.add_argument("--out", type=Path, help="keep the run here; taken up if it is there")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        out = given.out or Path(place, "run")
        train, dev = synthesize(20_000), synthesize(500, part="valid")
        bundle = learn(RECIPE, out, train, dev, resume=True, report=told)
        sets = {"new names": synthesize(1000, part="test"), "names of training": synthesize(1000, seed=2)}
        scores = {name: scored(bundle, questions) for name, questions in sets.items()}
        run = json.loads((out / "results.json").read_text("utf-8"))
        digest = regard.inspect(bundle).digest
    recipe = "recipes/reading/synthetic.toml"
    told_of = {"dev": run["valid"], "training": run["training"], "bundle": digest}
    write(given.results, {**circumstances(), "recipe": recipe, "questions": 20_000, **told_of, "test": scores})


def scored(bundle: Path, questions: list[Question]) -> dict[str, Any]:
    """Exact match and F1 of a bundle's answers."""
    answers = answer(bundle, questions)
    return scores_of(questions, {q.id: a.text for q, a in zip(questions, answers, strict=True)}).to_dict()


def told(event: dict[str, Any]) -> None:
    """Shows how the dev questions are answered."""
    if event["event"] == "validate":
        print(event, flush=True)


if __name__ == "__main__":
    main()
