"""Where the families look: the same sentences under each of them, and how far its attention agrees with gold links."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.errors import DataError, ModelError
from regard.explore.look import look
from regard.language.open import open_bundle
from regard.linking.aer import alignment_error_rate
from regard.linking.align import align_lines, read_gold, read_lines_of
from regard.models import FAMILIES
from regard.tasks.translate import load

from .table import Result

_WORDS = (7, 11, 16)
"""Words of the source lines that are shown."""


def shown_lines(sources: Sequence[str]) -> list[int]:
    """The first line of each of a few lengths, or of the nearest there is; always the same for the same lines."""
    lengths = [len(line.split()) for line in sources]
    return list(dict.fromkeys(min(range(len(lengths)), key=lambda i: abs(lengths[i] - n)) for n in _WORDS))


def pictures(run: Result, sources: Sequence[str], references: Sequence[str]) -> list[dict[str, Any]]:
    """The run's attention, between words, while it is made to write each reference; none for a model without.

    Of several layers the one in the middle, heads averaged.
    """
    bundle = open_bundle(run.path / "bundle", ["encoder-decoder", "mask-predictor"])
    layers, _ = FAMILIES[run.recipe.model.family].cross_attention(run.recipe.model)
    layer = (layers + 1) // 2
    found = []
    for source, reference in zip(sources, references, strict=True):
        try:
            part = look(bundle, source, target=reference).words().part("cross")
        except (ModelError, DataError):  # it has no attention, or none between the sides
            return []
        weights = part.matrix(layer).astype(float).round(3).tolist()
        found.append({"rows": part.rows.names, "columns": part.columns.names, "weights": weights})
    return found


def error_rate(run: Result, text: Path, gold: Path) -> dict[str, Any] | None:
    """AER of the run's links against gold ones, of pairs in a file of `source ||| target`; None without attention."""
    sources, targets = read_lines_of(text, None)
    links = read_gold(gold, len(sources))
    translator = load(run.path / "bundle")
    try:
        found = align_lines(translator, sources, targets)
    except ModelError:
        return None
    score = alignment_error_rate([each.links for each in found], links)["aer"]
    return {**score.to_dict(), "pairs": len(sources)}
