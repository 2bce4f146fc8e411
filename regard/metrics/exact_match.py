"""Exact match: the share of lines equal to a reference, character for character (no trimming, no folding)."""

from __future__ import annotations

from collections.abc import Sequence

from .lines import LineMetric

__all__ = ["exact_match"]


def _lines(
    hypotheses: Sequence[str], references: list[list[str]], language: str
) -> tuple[list[float], list[float], str]:
    values = [float(h in right) for h, right in zip(hypotheses, zip(*references, strict=True), strict=True)]
    return values, [1.0] * len(values), "case:mixed|norm:no|space:kept"


exact_match = LineMetric("exact match", _lines)
