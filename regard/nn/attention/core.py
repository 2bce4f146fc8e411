"""Attention is three verbs: compare queries with keys, weigh the positions, mix the values.

Sizes: B batch, H heads, T queries, S keys, D key width, E value width. This is the reference; kernels may stand in for
`attend`, none may differ.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def softmax(scores: Tensor) -> Tensor:
    """Softmax over the last axis."""
    return torch.softmax(scores, dim=-1)


def weigh(
    scores: Tensor,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    normalize: Callable[[Tensor], Tensor] = softmax,
) -> Tensor:
    """Turn scores (…, T, S) into weights (…, T, S) that sum to 1 over S.

    `mask` is true where a query may look. A row with nothing to look at gives zeros, never NaN.
    `bias` is added to the scores (relative positions).
    """
    if bias is not None:
        scores = scores + bias
    if mask is None:
        return normalize(scores)
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return normalize(scores).masked_fill(~mask, 0.0)


def mix(weights: Tensor, values: Tensor) -> Tensor:
    """(…, T, S) weights and (…, S, E) values -> (…, T, E)."""
    return weights @ values


def attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    compare: Callable[[Tensor, Tensor], Tensor],
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    normalize: Callable[[Tensor], Tensor] = softmax,
    drop: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention as the papers write it: queries (…, T, D), keys (…, S, D), values (…, S, E) -> (…, T, E) and weights.

    Vaswani et al. 2017, equation 1, when `compare` is the scaled dot product. `drop` drops weights out.
    """
    weights = weigh(compare(queries, keys), mask, bias, normalize)
    return mix(weights if drop is None else drop(weights), values), weights
