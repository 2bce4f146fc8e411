"""What length penalty, beam and minimum Bayes risk do to score and length: everything that `regard tune` tries.

    REGARD_DATA=… regard train recipes/multi30k-en-de/transformer.toml --out runs/multi30k-en-de
    REGARD_DATA=… python benchmarks/tune.py --bundle runs/multi30k-en-de/bundle

On Multi30k's validation set; the test set is not touched, and the bundle is not changed.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from record import RESULTS, circumstances, write

import regard

ALPHAS = (0.0, 0.4, 0.8, 1.0, 1.2, 1.4, 1.6, 2.0)
BEAMS = (1, 2, 4, 5, 6, 8, 10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--results", type=Path, default=RESULTS / "tune.json")
    given = parser.parse_args()
    folder = Path(os.environ["REGARD_DATA"], "multi30k")
    lines = folder / "val.en.gz", folder / "val.de.gz"
    found = regard.tune(given.bundle, *lines, alphas=ALPHAS, beams=BEAMS, dry_run=True, progress=print).to_dict()
    digest = regard.inspect(given.bundle).digest
    write(given.results, {**circumstances(), "bundle": digest, "set": "Multi30k val, en-de", **found})


if __name__ == "__main__":
    main()
