"""Regard with and without what translations must keep, line by line: seconds of each turn, and how often it was kept.

A job holds `bundle`, `lines`, `kinds` (a name, and options of `translate` for each line: `constraints`, or keys of the
search), `batch`, `beam`, `precision` and `turns`.
"""

from __future__ import annotations

import json
import os
import sys
import time

from regard.search.table import Constraints
from regard.tasks.translate import load


def main() -> None:
    job = json.loads(sys.stdin.read())
    translator = load(job["bundle"], device="cpu")
    common = {"beam": job["beam"], "batch_size": job["batch"], "precision": job["precision"]}
    common |= {"penalty": "power", "alpha": 1.0, "stop": "beam"}
    found = {}
    for name, options in job["kinds"].items():
        given = dict(options)
        if "constraints" in given:
            given["constraints"] = tuple(Constraints(**each) for each in given["constraints"])
        translator.translate(job["lines"], **common, **given)
        seconds = []
        for _ in range(job["turns"]):
            began = time.perf_counter()
            made = translator.translate(job["lines"], **common, **given)
            seconds.append(time.perf_counter() - began)
        tokens = sum(len(translator.target.encode(each.text)) + 1 for each in made)
        found[name] = {"seconds": seconds, "tokens": tokens, "texts": [each.text for each in made]}
    print(json.dumps({"kinds": found, "threads": int(os.environ["OMP_NUM_THREADS"])}))


if __name__ == "__main__":
    main()
