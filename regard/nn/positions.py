"""How a token gets its vector and knows its position: embeddings, and position schemes by where they act.

They are added to the embeddings (POSITIONS), turn queries and keys (ROTARY) or are added to the scores (BIASES).
Sizes: V rows of a table, P positions, B batch, H heads, T queries, S keys, D width (of keys: in a head), E value width.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import ModelError

from .layers import Dropout, Saves, applied, stand_in

# -- added to the embeddings -------------------------------------------------------------------------------------------


def sinusoids(positions: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """sin and cos of pos / 10000^(2i/D) for i < D/2: two tensors (…, D/2), in float32."""
    i = torch.arange(0, width, 2, device=positions.device, dtype=torch.float64)
    angles = positions[..., None].double() / 10000.0 ** (i / width)
    return angles.sin().float(), angles.cos().float()


class Added(nn.Module):
    """A position scheme that is added to the embeddings, made with the width and the most positions of a config."""

    limited = False
    """There are no more positions than it was made with."""

    def __init__(self, width: int, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity if self.limited else None

    def forward(self, positions: Tensor, longest: int) -> Tensor:
        """Positions (…) with every entry < `longest` -> (…, D)."""
        raise NotImplementedError


class Sinusoidal(Added):
    """PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos(pos / 10000^(2i/D)) (section 3.5).

    The table grows when a longer sequence comes; it is no parameter and is not saved.
    """

    table: Tensor

    def __init__(self, width: int, capacity: int) -> None:
        super().__init__(width, capacity)
        self.width = width
        self.register_buffer("table", self.made(capacity), persistent=False)

    def made(self, capacity: int) -> Tensor:
        return torch.stack(sinusoids(torch.arange(capacity), self.width), dim=-1).flatten(-2)

    def forward(self, positions: Tensor, longest: int) -> Tensor:
        if longest > len(self.table):
            self.table = self.made(2 * longest).to(self.table)
        return self.table[positions]


class SinusoidalHalves(Sinusoidal):
    """The same sinusoids with all sines first and all cosines behind, as tensor2tensor and Marian lay them out."""

    def made(self, capacity: int) -> Tensor:
        return torch.cat(sinusoids(torch.arange(capacity), self.width), dim=-1)


class Learned(Added):
    """One trained vector a position (Table 3, row E); positions from `capacity` on do not exist."""

    limited = True

    def __init__(self, width: int, capacity: int) -> None:
        super().__init__(width, capacity)
        self.weight = nn.Parameter(torch.empty(capacity, width))
        nn.init.normal_(self.weight, std=width**-0.5)

    def forward(self, positions: Tensor, longest: int) -> Tensor:
        if longest > len(self.weight):
            raise ModelError(
                f"a sequence of {longest} tokens is longer than the {len(self.weight)} learned positions; "
                "split it, or train with a larger model.max_positions or with sinusoidal positions"
            )
        return self.weight[positions]


class NoPosition(Added):
    """No positions at all: the contrast."""

    def forward(self, positions: Tensor, longest: int) -> Tensor:
        return positions.new_zeros((), dtype=torch.float32)


POSITIONS: dict[str, type[Added]] = {
    "sinusoidal": Sinusoidal,
    "sinusoidal-halves": SinusoidalHalves,
    "learned": Learned,
    "none": NoPosition,
}


# -- turning queries and keys ------------------------------------------------------------------------------------------


class Rotary(nn.Module):
    """Turns features 2i and 2i + 1 by the angle position / 10000^(2i/D) (Su et al. 2021, equation 34).

    So the product of a query and a key knows how far apart they stand. The table grows as that of `Sinusoidal`.
    """

    table: Tensor

    def __init__(self, width: int, capacity: int) -> None:
        super().__init__()
        if width % 2:
            raise ModelError(f"rotary positions turn pairs: a key width of {width} must be even; try {width + 1}")
        self.width = width
        self.register_buffer("table", self.made(capacity), persistent=False)

    def made(self, capacity: int) -> Tensor:
        return torch.stack(sinusoids(torch.arange(capacity), self.width))  # sines, then cosines: (2, P, D / 2)

    def forward(self, x: Tensor, positions: Tensor, longest: int) -> Tensor:
        """x (B, H, T, D) at positions (T,), all < `longest`, turned; what it computes with is float32 at least."""
        if longest > self.table.shape[1]:
            self.table = self.made(2 * longest).to(self.table)
        if (fast := stand_in("rotary", x)) is not None:
            return fast(x, self.table, positions)
        sines, cosines = self.table[:, positions].to(torch.promote_types(x.dtype, torch.float32))
        even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
        return torch.stack((even * cosines - odd * sines, even * sines + odd * cosines), -1).flatten(-2).to(x.dtype)


ROTARY: dict[str, type[Rotary]] = {"rotary": Rotary}


# -- added to the scores -----------------------------------------------------------------------------------------------


class Bias(nn.Module):
    """Adds to the scores of one layer's attention of a sequence to itself, by the positions of query and key."""

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
        self.make(key_width, value_width)

    def make(self, key_width: int, value_width: int) -> None:
        """Make what is learnt, where anything is."""

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

    def make(self, key_width: int, value_width: int) -> None:
        # A vector, (buckets · H), since it begins at zero.
        self.table = nn.Parameter(torch.zeros(self.buckets * self.heads))

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

    def scores(self, queries: Tensor, positions: Tensor, key_positions: Tensor) -> Tensor:
        exact = torch.promote_types(queries.dtype, torch.float32)
        slopes = torch.tensor(alibi_slopes(self.heads), device=queries.device, dtype=exact)
        return -slopes[:, None, None] * (key_positions - positions[:, None]).abs()  # (H, T, S)


class Kerple(Bias):
    """−a log(1 + b |j − i|) with an a and a b for each head, both learned and positive (Chi et al. 2022).

    It falls ever more slowly, where ALiBi's line does not; the distances that it has not seen have a value too.
    """

    def make(self, key_width: int, value_width: int) -> None:
        self.logs = nn.Parameter(torch.zeros(2 * self.heads))  # of a, then of b

    def scores(self, queries: Tensor, positions: Tensor, key_positions: Tensor) -> Tensor:
        a, b = self.logs.exp().view(2, self.heads, 1, 1).unbind()
        return -a * (b * (key_positions - positions[:, None]).abs()).log1p()  # (H, T, S)


class ShawKeys(Bias):
    """q · a(j - i), a learned vector for each distance up to 16 positions either way (Shaw et al. 2018, equation 4)."""

    needs_dot = True
    farthest = 16

    def make(self, key_width: int, value_width: int) -> None:
        self.keys = self._vectors(key_width)

    def _vectors(self, width: int) -> nn.Parameter:
        return nn.Parameter(nn.init.normal_(torch.empty(2 * self.farthest + 1, width), std=width**-0.5))

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

    def make(self, key_width: int, value_width: int) -> None:
        super().make(key_width, value_width)
        self.values = self._vectors(value_width)

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


def biases(name: str, layers: int, heads: int, widths: tuple[int, int], causal: bool) -> list[Bias] | list[None]:
    """Each layer's bias of these positions, one for all where it is shared; None where positions act elsewhere.

    `widths` are those of a head's keys and values.
    """
    if name not in BIASES:
        return [None] * layers
    made = [BIASES[name](heads, *widths, causal) for _ in range(layers)]
    return made[:1] * layers if BIASES[name].shared else made


# -- embeddings --------------------------------------------------------------------------------------------------------


class _LookUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Saves, ids: Tensor, table: Tensor) -> Tensor:
        ctx.save_for_backward(ids, table)
        return F.embedding(ids, table)

    @staticmethod
    def backward(ctx: Saves, *gradients: Tensor) -> tuple[None, Tensor]:
        ids, table = ctx.saved_tensors
        g = gradients[0].flatten(0, -2)
        total = g.new_zeros(table.shape, dtype=torch.float32)
        return None, total.index_add_(0, ids.flatten(), g.float()).to(g.dtype)


def look_up(ids: Tensor, table: nn.Embedding) -> Tensor:
    """ids (…) and a table (V, D) -> vectors (…, D), times their tokens' scales where there are any: see `scale_rows`.

    On a CPU PyTorch sums a token's gradients in the table's own type; in bfloat16 the hundreds of a frequent token
    would lose most of what comes late. So they are summed in float32.
    """
    weight, scale = table.weight, getattr(table, "scale", None)
    ours = weight.dtype == torch.bfloat16 and weight.device.type == "cpu"
    vectors: Tensor = applied(_LookUp, ids, weight) if ours else F.embedding(ids, weight)
    return vectors if scale is None else vectors * scale[ids][..., None].to(vectors.dtype)


def scale_rows(model: nn.Module, scale: Tensor) -> None:
    """Have what the model reads by its first table, that of its source, times each token's scale (V,), until folded.

    Raises ModelError for a table that has another use too, which the scales would change as well.
    """
    table = next(part for part in model.modules() if isinstance(part, nn.Embedding))
    uses = [name for name, each in model.named_parameters(remove_duplicate=False) if each is table.weight]
    if len(uses) > 1:
        raise ModelError(
            f"what is read can have scales only by a table of its own, and {uses[0]} is {uses[1]} too; keep them apart "
            'where the family can (model.share = "target", model.tied = false), or leave input-weights out'
        )
    table.register_buffer("scale", scale, persistent=False)


@torch.no_grad()
def fold_scale(model: nn.Module) -> None:
    """Multiply the scales into their table, which is then like any other and gives the same vectors."""
    for table in model.modules():
        scale = getattr(table, "scale", None)
        if isinstance(table, nn.Embedding) and isinstance(scale, Tensor):
            table.weight.mul_(scale[:, None])
            del table.scale


class Embedding(nn.Module):
    """The token's vector, times sqrt(D) if it is scaled, and that of its position: ids (…) -> (…, D).

    `enter` says how positions come in: added to the vector, or beside it, (…, 2 D), which is then mapped to (…, D), or
    added before every layer (see `again`); Vaswani et al. 2017, sections 3.4 and 3.5.
    """

    def __init__(
        self, table: nn.Embedding, positions: Added, dropout: float, enter: str = "added", scaled: bool = False
    ) -> None:
        super().__init__()
        self.table, self.positions, self.dropout = table, positions, Dropout(dropout)
        self.scale = math.sqrt(table.embedding_dim) if scaled else 1.0
        self.enter = enter
        if enter == "concatenated":
            self.join = nn.Linear(2 * table.embedding_dim, table.embedding_dim)
            nn.init.xavier_uniform_(self.join.weight)

    def forward(self, ids: Tensor, positions: Tensor, longest: int) -> Tensor:
        """Ids at these positions, all < `longest`."""
        vectors = look_up(ids, self.table)
        if self.scale != 1.0:
            vectors = vectors * self.scale
        # The table of sinusoids stays exact whatever the weights' type.
        found = self.positions(positions, longest).to(vectors.dtype)
        if self.enter == "concatenated":
            return self.dropout(self.join(torch.cat((vectors, found.expand_as(vectors)), -1)))
        return self.dropout(vectors + found)

    def again(self, x: Tensor, positions: Tensor, longest: int) -> Tensor:
        """What enters a layer that is not the first, (…, D): with its positions, where they enter every layer."""
        return x + self.positions(positions, longest).to(x.dtype) if self.enter == "every-layer" else x
