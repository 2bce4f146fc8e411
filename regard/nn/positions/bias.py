"""Positions that act on the scores: what is added for how far a key lies from a query.

Sizes: B batch, H heads, T queries, S keys, D key width, E value width of a head. A bias is of one attention layer,
whose queries and keys are of one sequence.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor, nn

__all__ = [
    "BIASES",
    "ALiBi",
    "Bias",
    "Kerple",
    "LayerBuckets",
    "RelativeBuckets",
    "Shaw",
    "ShawKeys",
    "biases",
    "shared_by_layers",
]


class Bias(Protocol):
    """Adds to scores by the places of query and key."""

    fixed: bool
    """It is a matter of places only: nothing in it is learnt, and the queries do not count."""
    mixes: bool
    """It adds to what is mixed as well, so that the weights are needed."""
    needs_dot: bool
    """It is for scores that are a dot product."""
    shared: bool
    """All layers of an encoder, or of a decoder, have one."""

    def scores(self, queries: Tensor, places: Tensor, key_places: Tensor) -> Tensor:
        """What is added to the scores of prepared queries (B, H, T, D) at places (T,) with keys at places (S,).

        It broadcasts with (B, H, T, S).
        """
        ...

    def mixed(self, weights: Tensor, places: Tensor, key_places: Tensor) -> Tensor:
        """What is added to the values that weights (B, H, T, S) have mixed, (B, H, T, E)."""
        ...


class _Bias(nn.Module):
    """A bias of the scores alone."""

    fixed = mixes = needs_dot = shared = False

    def __init__(self, heads: int, key_width: int, value_width: int, causal: bool) -> None:
        """`causal`: no key stands after its query."""
        super().__init__()
        self.heads, self.causal = heads, causal

    def mixed(self, weights: Tensor, places: Tensor, key_places: Tensor) -> Tensor:
        raise NotImplementedError

    def scores(self, queries: Tensor, places: Tensor, key_places: Tensor) -> Tensor:
        raise NotImplementedError


class RelativeBuckets(_Bias):
    """A learned number for each head and each of 32 buckets of distance, up to 128 places (Raffel et al. 2020, 2.1).

    Half of the buckets are single distances, the others grow by a factor; where keys stand on both sides, each side has
    half. All layers of an encoder share one table, and so do those of a decoder.
    """

    shared = True
    buckets, farthest = 32, 128

    def __init__(self, heads: int, key_width: int, value_width: int, causal: bool) -> None:
        super().__init__(heads, key_width, value_width, causal)
        self.table = nn.Parameter(torch.zeros(self.buckets * heads))  # (buckets · H): a vector, as it begins at zero

    def bucket(self, distance: Tensor) -> Tensor:
        """The bucket of a key `distance` places after its query."""
        side = self.buckets if self.causal else self.buckets // 2
        after = torch.zeros_like(distance) if self.causal else (distance > 0).long() * side
        far = -distance.clamp(max=0) if self.causal else distance.abs()
        exact = side // 2
        grown = (far.clamp(min=1).double() / exact).log() / math.log(self.farthest / exact) * (side - exact)
        return after + torch.where(far < exact, far, (exact + grown.long()).clamp(max=side - 1))

    def scores(self, queries: Tensor, places: Tensor, key_places: Tensor) -> Tensor:
        bucket = self.bucket(key_places - places[:, None])
        return self.table.view(self.buckets, self.heads)[bucket].permute(2, 0, 1)  # (T, S, H) -> (H, T, S)


class LayerBuckets(RelativeBuckets):
    """The same, but each layer has a table of its own."""

    shared = False


class ALiBi(_Bias):
    """−m |j − i| with a slope m = 2^(−8 h / H) for head h of 1 to H (Press et al. 2022, section 3); nothing is learnt.

    The paper's keys stand before their query; where they stand on both sides, both are alike.
    """

    fixed = True

    def scores(self, queries: Tensor, places: Tensor, key_places: Tensor) -> Tensor:
        exact = torch.promote_types(queries.dtype, torch.float32)
        heads = torch.arange(1, self.heads + 1, device=queries.device, dtype=exact)
        slopes = torch.exp2(-8 * heads / self.heads)
        return -slopes[:, None, None] * (key_places - places[:, None]).abs()  # (H, T, S)


class Kerple(_Bias):
    """−a log(1 + b |j − i|) with an a and a b for each head, both learned and positive (Chi et al. 2022).

    It falls ever more slowly, where ALiBi's line does not; the distances that it has not seen have a value too.
    """

    def __init__(self, heads: int, key_width: int, value_width: int, causal: bool) -> None:
        super().__init__(heads, key_width, value_width, causal)
        self.logs = nn.Parameter(torch.zeros(2 * heads))  # of a, then of b

    def scores(self, queries: Tensor, places: Tensor, key_places: Tensor) -> Tensor:
        a, b = self.logs.exp().view(2, self.heads, 1, 1).unbind()
        return -a * (b * (key_places - places[:, None]).abs()).log1p()  # (H, T, S)


class ShawKeys(_Bias):
    """q · a(j - i), a learned vector for each distance up to 16 places either way (Shaw et al. 2018, equation 4)."""

    needs_dot = True
    farthest = 16

    def __init__(self, heads: int, key_width: int, value_width: int, causal: bool) -> None:
        super().__init__(heads, key_width, value_width, causal)
        self.keys = nn.Parameter(torch.empty(2 * self.farthest + 1, key_width))
        nn.init.normal_(self.keys, std=key_width**-0.5)

    def _distance(self, places: Tensor, key_places: Tensor) -> Tensor:
        """(T, S): j - i, cut off and counted from 0."""
        return (key_places - places[:, None]).clamp(-self.farthest, self.farthest) + self.farthest

    def scores(self, queries: Tensor, places: Tensor, key_places: Tensor) -> Tensor:
        distance = self._distance(places, key_places)
        every = queries @ self.keys.T.to(queries.dtype)  # (B, H, T, 2 · farthest + 1)
        return every.gather(-1, distance.expand(*every.shape[:-1], -1))


class Shaw(ShawKeys):
    """The same, and b(j - i) is added to each value (Shaw et al. 2018, equation 3)."""

    mixes = True

    def __init__(self, heads: int, key_width: int, value_width: int, causal: bool) -> None:
        super().__init__(heads, key_width, value_width, causal)
        self.values = nn.Parameter(torch.empty(2 * self.farthest + 1, value_width))
        nn.init.normal_(self.values, std=value_width**-0.5)

    def mixed(self, weights: Tensor, places: Tensor, key_places: Tensor) -> Tensor:
        distance = self._distance(places, key_places).expand_as(weights)
        sums = weights.new_zeros(*weights.shape[:-1], len(self.values)).scatter_add(-1, distance, weights)
        return sums @ self.values.to(weights.dtype)


BIASES: dict[str, type[_Bias]] = {
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
) -> list[_Bias] | list[None]:
    """Each layer's bias of these positions, one for all where it is shared; None where positions act elsewhere."""
    if name not in BIASES:
        return [None] * layers
    made = [BIASES[name](heads, key_width, value_width, causal) for _ in range(layers)]
    return made[:1] * layers if BIASES[name].shared else made
