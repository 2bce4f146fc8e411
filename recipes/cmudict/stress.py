"""Two metrics that leave out the stress of vowels, as most published figures do: AH0 and AH1 are AH.

regard --import recipes/cmudict/stress.py train recipes/cmudict/transformer.toml --out runs/cmudict
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from regard.metrics import METRICS, Metric
from regard.metrics.result import Counts

WITHOUT = str.maketrans("", "", "0123456789")


def unstressed(name: str) -> Metric:
    """The metric of this name, of phonemes without their stress."""
    metric = METRICS[name]
    assert metric.count is not None

    def count(hypotheses: Sequence[str], references: list[list[str]], language: str) -> Counts:
        bare = [[line.translate(WITHOUT) for line in lines] for lines in (hypotheses, *references)]
        counted = metric.count(bare[0], bare[1:], language)
        return replace(counted, signature=f"{counted.signature}|stress:no")

    return replace(metric, name=f"{metric.name} without stress", count=count)


METRICS["per-unstressed"] = unstressed("per")
METRICS["wer-unstressed"] = unstressed("wer")
