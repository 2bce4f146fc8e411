"""SciTLDR's lead baseline: the abstract's first sentence as its summary, which is what a model has to beat.

    REGARD_DATA=… ./run bench scitldr_lead

Scored as `recipes/scitldr/transformer.toml` is on its dev set: ROUGE F1 of the best of several references.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from record import RESULTS, circumstances, write
from workers import exit_code

from regard.errors import DataError
from regard.metrics import score
from regard.text import iter_lines
from regard.text.lines import references_of


def first_sentences(file: Path) -> tuple[list[str], list[list[str]]]:
    """Of each abstract its first sentence, as the file cuts it; and the sets of references, see `references_of`."""
    records = [json.loads(line) for line in iter_lines(file)]
    pairs = ((str(number), right) for number, record in enumerate(records) for right in record["target"])
    return [record["source"][0] for record in records], references_of(pairs)[1]


def main() -> int:
    if "REGARD_DATA" not in os.environ:
        raise DataError("REGARD_DATA must name the folder that holds scitldr/; set it.")
    hypotheses, references = first_sentences(Path(os.environ["REGARD_DATA"]) / "scitldr" / "dev.jsonl.gz")
    found = {name: each.to_dict() for name, each in score(hypotheses, references, ["rouge"], language="en").items()}
    for each in found.values():
        print(f"{each['name']} {each['value']:.2f} {each['signature']}")
    scores = [{"set": "dev", "lines": len(hypotheses), "scores": found}]
    write(RESULTS / "scitldr_lead.json", {**circumstances(), "scores": scores})
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
