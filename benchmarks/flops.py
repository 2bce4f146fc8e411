"""Floating-point operations that a training step needs, however it is computed."""

# s, t source and target tokens of a sentence, its end counted; D width, F feed-forward, V vocabulary, N layers a side

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["step_flops"]


def step_flops(shape: dict[str, Any], lengths: Iterable[tuple[int, int]]) -> float:
    """Operations of one step over sentences of these lengths (s, t), forward and backward.

    A multiply-add is two operations, and the backward pass has twice the forward's: so 6 for each multiply-add of a
    matrix that a token really passes through. Padding is not counted; attention's own products are, over all keys of
    the sentence (the causal mask's half too, as in Chowdhery et al. 2022, appendix B). Looking up an embedding, norms,
    activations and the optimiser are not.
    """
    d, f, n = shape["width"], shape["feedforward"], shape["layers"]
    source_token = n * (4 * d * d + 2 * d * f + 2 * d * d)  # the last: keys and values for the decoder's layers
    target_token = n * (4 * d * d + 2 * d * d + 2 * d * f) + d * shape["vocabulary"]
    total = 0
    for s, t in lengths:
        total += s * source_token + t * target_token
        total += n * 2 * d * (s * s + t * t + s * t)
    return 6.0 * total
