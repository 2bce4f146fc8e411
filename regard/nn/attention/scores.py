"""Score functions: how a query is compared with a key.

Sizes: T queries, S keys, D key width, Q query width, A the score's own size. A score splits into what is done to
queries (every step), to keys (once, kept in the state) and the comparison itself; one whose comparison is a plain dot
product may be taken over by a fused kernel. Leading axes broadcast: heads, if there are any, share a score's weights.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from regard.errors import ModelError

from ..layers import Map

_CELLS = 1 << 24
"""Numbers of the (…, T, S, A) tensor of an additive score that may stand at once; beyond, it is made in parts."""


class Score(nn.Module):
    """Compares queries (…, T, Q) with keys (…, S, D); here both are left as they are, and multiplied."""

    is_dot = True
    """Comparing is a plain dot product of what `queries` and `keys` give."""

    def __init__(self, width: int, query_width: int = 0, size: int = 0) -> None:
        """`width` of the keys, `query_width` of the queries (0: the same), `size` of the score itself (0: its own)."""
        super().__init__()
        self.width, self.query_width, self.size = width, query_width or width, size
        self.capacity = self.most_keys(size)
        self.prepared = width
        """Of what `queries` gives, where it is compared by a dot product."""
        self.make()

    def make(self) -> None:
        """Make what the score needs, of these widths."""

    @classmethod
    def most_keys(cls, size: int) -> int | None:
        """The most keys that a score of this size has weights for; None: any number."""
        return None

    def queries(self, q: Tensor) -> Tensor:
        """What is done to queries, at every step."""
        return q

    def keys(self, k: Tensor) -> Tensor:
        """What is done to keys, once; a state keeps it."""
        return k

    def compare(self, q: Tensor, k: Tensor) -> Tensor:
        """(…, T, D) prepared queries and (…, S, D) prepared keys -> (…, T, S)."""
        return q @ k.transpose(-2, -1)


class Dot(Score):
    """q · k (Luong et al. 2015, section 3.1, "dot")."""

    def make(self) -> None:
        if self.query_width != self.width:
            raise ModelError(
                f"queries of width {self.query_width} and keys of width {self.width} have no dot product; make them "
                "equal, or take a score with weights of its own, such as bilinear or additive"
            )


class ScaledDot(Dot):
    """q · k / sqrt(D) (Vaswani et al. 2017, equation 1); the queries are scaled, being the fewer."""

    def make(self) -> None:
        super().make()
        self.scale = 1.0 / math.sqrt(self.width)

    def queries(self, q: Tensor) -> Tensor:
        return q * self.scale


class Bilinear(Score):
    """qᵀ W k, or multiplicative (Luong et al. 2015, section 3.1, "general"); W stands with the queries."""

    def make(self) -> None:
        self.query = Map(self.query_width, self.width, bias=False)

    def queries(self, q: Tensor) -> Tensor:
        return self.query(q)


class ReducedRank(Bilinear):
    """(U q) · (V k): a bilinear score whose W = Uᵀ V has the rank A, a quarter of the keys' width unless given."""

    def make(self) -> None:
        self.size = self.prepared = self.size or max(1, self.width // 4)
        self._project()

    def _project(self) -> None:
        self.query = Map(self.query_width, self.size, bias=False)
        self.key = Map(self.width, self.size, bias=False)

    def keys(self, k: Tensor) -> Tensor:
        return self.key(k)


class Additive(ReducedRank):
    """v · tanh(W q + U k) (Bahdanau et al. 2015, appendix A.1.2); A inner features, the keys' width unless given.

    Tensors of all pairs (…, T, S, A) that are too large are made in parts, which are made again for the gradient.
    """

    is_dot = False

    def make(self) -> None:
        self.size = self.size or self.width
        self._project()
        self.v = nn.Parameter(torch.empty(self.size))
        nn.init.uniform_(self.v, -1 / math.sqrt(self.size), 1 / math.sqrt(self.size))

    def compare(self, q: Tensor, k: Tensor) -> Tensor:
        rows = max(1, _CELLS // max(1, k.numel()))
        if rows >= q.shape[-2]:
            return self._all_pairs(q, k)
        made = [
            checkpoint(self._all_pairs, part, k, use_reentrant=False, preserve_rng_state=False)
            for part in q.split(rows, -2)
        ]
        return torch.cat(made, -2)

    def _all_pairs(self, q: Tensor, k: Tensor) -> Tensor:
        pairs = q[..., :, None, :] + k[..., None, :, :]  # (…, T, S, A)
        return pairs.tanh_() @ self.v.to(pairs.dtype)


class Concat(Additive):
    """v · tanh(W [q; k]) (Luong et al. 2015, section 3.1, "concat"), one matrix (A, Q + D).

    The product with a concatenation is the sum of two products, so each half is done once, as the additive score does.
    """

    def _project(self) -> None:
        self.both = nn.Linear(self.query_width + self.width, self.size, bias=False)

    def queries(self, q: Tensor) -> Tensor:
        return F.linear(q, self.both.weight[:, : self.query_width])

    def keys(self, k: Tensor) -> Tensor:
        return F.linear(k, self.both.weight[:, self.query_width :])


class FixedCosine(Dot):
    """cos(q, k) sqrt(D): as wide a spread as the scaled dot product of random vectors."""

    def queries(self, q: Tensor) -> Tensor:
        return F.normalize(q, dim=-1) * self.temperature()

    def keys(self, k: Tensor) -> Tensor:
        return F.normalize(k, dim=-1)

    def temperature(self) -> Tensor | float:
        """What the cosine is multiplied with."""
        return math.sqrt(self.width)


class Cosine(FixedCosine):
    """cos(q, k) exp(τ) with one learned τ (Henry et al. 2020), which begins at sqrt(D)."""

    def make(self) -> None:
        super().make()
        self.log_temperature = nn.Parameter(torch.tensor(math.log(self.width) / 2))

    def temperature(self) -> Tensor | float:
        return self.log_temperature.exp()


class Location(Score):
    """W q: a score for each of A positions (1,024 unless given) without their keys (Luong et al. 2015, equation 8)."""

    is_dot = False

    def make(self) -> None:
        self.size = self.size or 1024
        # The name stays, because bundles hold the weight under it.
        self.places = Map(self.query_width, self.size, bias=False)

    @classmethod
    def most_keys(cls, size: int) -> int | None:
        return size or 1024

    def queries(self, q: Tensor) -> Tensor:
        return self.places(q)

    def keys(self, k: Tensor) -> Tensor:
        return k[..., :0]  # only the number of keys matters

    def compare(self, q: Tensor, k: Tensor) -> Tensor:
        if (count := k.shape[-2]) > self.size:
            raise ModelError(
                f"{count} positions to look at are more than the {self.size} that the location score has weights for; "
                "split the line, or train with a larger model.score_width (model.score_width in recurrent families)"
            )
        return q[..., :count]


class Mean(Score):
    """0, whatever the query and the key: attention becomes mean pooling. The contrast."""

    def make(self) -> None:
        self.prepared = 1

    def queries(self, q: Tensor) -> Tensor:
        return q[..., :1] * 0.0

    def keys(self, k: Tensor) -> Tensor:
        return k[..., :1]


SCORES: dict[str, type[Score]] = {
    "scaled_dot": ScaledDot,
    "dot": Dot,
    "bilinear": Bilinear,
    "reduced_rank": ReducedRank,
    "additive": Additive,
    "concat": Concat,
    "cosine": Cosine,
    "fixed_cosine": FixedCosine,
    "location": Location,
    "mean": Mean,
}
