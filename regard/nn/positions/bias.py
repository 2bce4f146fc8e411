"""Positions that act on the scores: what is added for how far a key lies from a query.

Sizes: B batch, H heads, T queries, S keys, D key width, E value width of a head. A bias is of one attention layer,
whose queries and keys are of one sequence.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class Bias(nn.Module):
    """Adds to scores by the positions of query and key."""

    fixed = False
    """It is a matter of positions only: nothing in it is learnt, and the queries do not count."""
    mixes = False
    """It adds to what is mixed as well, so that the weights are needed."""
    needs_dot = False
    """It is for scores that are a dot product."""
    shared = False
    """All layers of an encoder, or of a decoder, have one."""

    def __init__(self, heads: int, key_width: int, value_width: int, causal: bool) -> None:
        """`causal`: no key stands after its query."""
        super().__init__()
        self.heads, self.causal = heads, causal

    def scores(self, queries: Tensor, positions: Tensor, key_positions: Tensor) -> Tensor:
        """What is added to the scores of prepared queries (B, H, T, D) at positions (T,) with keys at positions (S,).

        It broadcasts with (B, H, T, S).
        """
        raise NotImplementedError

    def mixed(self, weights: Tensor, positions: Tensor, key_positions: Tensor) -> Tensor:
        """What is added to the values that weights (B, H, T, S) have mixed, (B, H, T, E)."""
        raise NotImplementedError


class RelativeBuckets(Bias):
    """A learned number for each head and each of 32 buckets of distance, up to 128 positions (Raffel et al. 2020, 2.1).

    Half of the buckets are single distances, the others grow by a factor; where keys stand on both sides, each side has
    half. All layers of an encoder share one table, and so do those of a decoder.
    """

    shared = True
    buckets, farthest = 32, 128

    def __init__(self, heads: int, key_width: int, value_width: int, causal: bool) -> None:
        super().__init__(heads, key_width, value_width, causal)
        self.table = nn.Parameter(torch.zeros(self.buckets * heads))  # (buckets · H): a vector, as it begins at zero

    def bucket(self, distance: Tensor) -> Tensor:
        """The bucket of a key `distance` positions after its query."""
        side = self.buckets if self.causal else self.buckets // 2
        after = torch.zeros_like(distance) if self.causal else (distance > 0).long() * side
        far = -distance.clamp(max=0) if self.causal else distance.abs()
        exact = side // 2
        grown = (far.clamp(min=1).double() / exact).log() / math.log(self.farthest / exact) * (side - exact)
        return after + torch.where(far < exact, far, (exact + grown.long()).clamp(max=side - 1))

    def scores(self, queries: Tensor, positions: Tensor, key_positions: Tensor) -> Tensor:
        bucket = self.bucket(key_positions - positions[:, None])
        return self.table.view(self.buckets, self.heads)[bucket].permute(2, 0, 1)  # (T, S, H) -> (H, T, S)


class LayerBuckets(RelativeBuckets):
    """The same, but each layer has a table of its own."""

    shared = False


def alibi_slopes(heads: int) -> list[float]:
    """The slope of each head: 2^(−8 h / H) for head h of 1 to H, if H is a power of two (Press et al. 2022, section 3).

    For any other H the authors' program takes the slopes of the power of two below, and between them every other slope
    of the power of two above, from the first on, until there are H.
    """
    below = 1 << (heads.bit_length() - 1)
    slopes = [2.0 ** (-8 * h / below) for h in range(1, below + 1)]
    return slopes + [2.0 ** (-4 * h / below) for h in range(1, 2 * (heads - below), 2)]


class ALiBi(Bias):
    """−m |j − i| with a slope m for each head (Press et al. 2022, section 3), see `alibi_slopes`; nothing is learnt.

    The paper's keys stand before their query; where they stand on both sides, both are alike.
    """

    fixed = True

    def scores(self, queries: Tensor, positions: Tensor, key_positions: Tensor) -> Tensor:
        exact = torch.promote_types(queries.dtype, torch.float32)
        slopes = torch.tensor(alibi_slopes(self.heads), device=queries.device, dtype=exact)
        return -slopes[:, None, None] * (key_positions - positions[:, None]).abs()  # (H, T, S)


class Kerple(Bias):
    """−a log(1 + b |j − i|) with an a and a b for each head, both learned and positive (Chi et al. 2022).

    It falls ever more slowly, where ALiBi's line does not; the distances that it has not seen have a value too.
    """

    def __init__(self, heads: int, key_width: int, value_width: int, causal: bool) -> None:
        super().__init__(heads, key_width, value_width, causal)
        self.logs = nn.Parameter(torch.zeros(2 * heads))  # of a, then of b

    def scores(self, queries: Tensor, positions: Tensor, key_positions: Tensor) -> Tensor:
        a, b = self.logs.exp().view(2, self.heads, 1, 1).unbind()
        return -a * (b * (key_positions - positions[:, None]).abs()).log1p()  # (H, T, S)


class ShawKeys(Bias):
    """q · a(j - i), a learned vector for each distance up to 16 positions either way (Shaw et al. 2018, equation 4)."""

    needs_dot = True
    farthest = 16

    def __init__(self, heads: int, key_width: int, value_width: int, causal: bool) -> None:
        super().__init__(heads, key_width, value_width, causal)
        self.keys = nn.Parameter(torch.empty(2 * self.farthest + 1, key_width))
        nn.init.normal_(self.keys, std=key_width**-0.5)

    def _distance(self, positions: Tensor, key_positions: Tensor) -> Tensor:
        """(T, S): j - i, cut off and counted from 0."""
        return (key_positions - positions[:, None]).clamp(-self.farthest, self.farthest) + self.farthest

    def scores(self, queries: Tensor, positions: Tensor, key_positions: Tensor) -> Tensor:
        distance = self._distance(positions, key_positions)
        every = queries @ self.keys.T.to(queries.dtype)  # (B, H, T, 2 · farthest + 1)
        return every.gather(-1, distance.expand(*every.shape[:-1], -1))


class Shaw(ShawKeys):
    """The same, and b(j - i) is added to each value (Shaw et al. 2018, equation 3)."""

    mixes = True

    def __init__(self, heads: int, key_width: int, value_width: int, causal: bool) -> None:
        super().__init__(heads, key_width, value_width, causal)
        self.values = nn.Parameter(torch.empty(2 * self.farthest + 1, value_width))
        nn.init.normal_(self.values, std=value_width**-0.5)

    def mixed(self, weights: Tensor, positions: Tensor, key_positions: Tensor) -> Tensor:
        distance = self._distance(positions, key_positions).expand_as(weights)
        sums = weights.new_zeros(*weights.shape[:-1], len(self.values)).scatter_add(-1, distance, weights)
        return sums @ self.values.to(weights.dtype)


BIASES: dict[str, type[Bias]] = {
    "t5": RelativeBuckets,
    "t5-layers": LayerBuckets,
    "shaw": Shaw,
    "shaw-keys": ShawKeys,
    "alibi": ALiBi,
    "kerple": Kerple,
}


def shared_by_layers(name: str) -> bool:
    """Whether all layers have one bias together, with positions of this name."""
    return name in BIASES and BIASES[name].shared


def biases(
    name: str, layers: int, heads: int, key_width: int, value_width: int, causal: bool
) -> list[Bias] | list[None]:
    """Each layer's bias of these positions, one for all where it is shared; None where positions act elsewhere."""
    if name not in BIASES:
        return [None] * layers
    made = [BIASES[name](heads, key_width, value_width, causal) for _ in range(layers)]
    return made[:1] * layers if BIASES[name].shared else made
