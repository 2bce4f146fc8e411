"""Exercise: relative positions in buckets, as T5 has them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from regard.nn.positions import RelativeBuckets

from ..exercise import Case, Check, Exercise, Law, Said, Source, Text, Wrong, doc, drawn


def bucket(distance: Tensor, buckets: int, farthest: int) -> Tensor:
    """The bucket of each distance (key's position minus query's), whole numbers from 0 to buckets - 1."""
    side = buckets // 2
    after = (distance > 0).long() * side
    far = distance.abs()
    exact = side // 2
    grown = (far.clamp(min=1).double() / exact).log() / math.log(farthest / exact) * (side - exact)
    return after + torch.where(far < exact, far, (exact + grown.long()).clamp(max=side - 1))


def bias(table: Tensor, size: int, farthest: int) -> Tensor:
    """What is added to the scores of a sequence with itself: (H, size, size), [h, i, j] from the table (buckets, H)."""
    position = torch.arange(size)
    distance = position - position[:, None]
    return table[bucket(distance, len(table), farthest)].permute(2, 0, 1)


def _library(heads: int, buckets: int, farthest: int) -> RelativeBuckets:
    made = RelativeBuckets(heads, 1, 1, causal=False)
    made.buckets, made.farthest = buckets, farthest
    return made


def _bias(table: Tensor, size: int, farthest: int) -> Tensor:
    made = _library(table.shape[1], len(table), farthest)
    made.table = torch.nn.Parameter(table.flatten(), requires_grad=False)
    return made.scores(table, torch.arange(size), torch.arange(size))


def _in_range(case: Case, value: object) -> bool:
    buckets = case["buckets"]
    assert isinstance(buckets, int)
    assert isinstance(value, Tensor)
    return bool(((value >= 0) & (value < buckets)).all())


EXERCISE = Exercise(
    number=7,
    name="buckets",
    lectures=("buckets",),
    sources=(Source(1, "方法3：相对位置编码"),),
    texts={
        "en": Text(
            "Relative positions in buckets (T5)",
            """
T5 adds to each score a learned number that depends on the distance of key and query alone. Distances share buckets:

- Half of the buckets, 0 to B/2 - 1, are for keys at or before the query, the others, from B/2 on, for keys behind it.
- In a half of n = B/2 buckets the first e = n/2 are single distances: 0, 1, …, e - 1.
- The others grow: distance d ≥ e is in bucket e + floor(log(d / e) / log(farthest / e) · (n - e)), at most n - 1.

The score is then q·k + b[bucket(j - i)], for each head from its own column of the table.
""",
            {"bucket": doc(bucket), "bias": doc(bias)},
        ),
        "zh": Text(
            "分桶的相对位置（T5）",
            """
T5 在每个分数上加一个学到的数，它只取决于键与查询的距离。多个距离共用一个桶：

- 一半的桶（0 到 B/2 - 1）给不在查询之后的键，另一半（从 B/2 起）给在它之后的键。
- 每一半有 n = B/2 个桶，前 e = n/2 个各是一个距离：0, 1, …, e - 1。
- 其余的桶逐渐变宽：距离 d ≥ e 在桶 e + floor(log(d / e) / log(farthest / e) · (n - e)) 里，最大为 n - 1。

分数于是为 q·k + b[bucket(j - i)]，每个头用表中自己的一列。
""",
            {
                "bucket": "每个距离（键的位置减查询的位置）所在的桶：0 到 buckets - 1 的整数。",
                "bias": "一个序列对自己的注意力中加在分数上的偏置：(H, size, size)，[h, i, j] 取自表 (buckets, H)。",
            },
        ),
    },
    answers=(bucket, bias),
    reference={
        "bucket": lambda distance, buckets, farthest: _library(1, buckets, farthest).bucket(distance),
        "bias": _bias,
    },
    checks=(
        Check(
            "bucket",
            4,
            Said("near distances, to both sides", "两侧的近距离"),
            (
                {"distance": torch.tensor([-1, 0, 1]), "buckets": 8, "farthest": 16},
                {"distance": torch.arange(-7, 8), "buckets": 32, "farthest": 128},
            ),
        ),
        Check(
            "bucket",
            3,
            Said("far distances share buckets", "远距离共用桶"),
            (
                {"distance": torch.tensor([-5, 3, 5, 15]), "buckets": 8, "farthest": 16},
                {"distance": torch.tensor([-1000, -100, -20, -8, 8, 11, 30, 90, 500]), "buckets": 32, "farthest": 128},
            ),
        ),
        Check(
            "bias",
            3,
            Said("the bias of all pairs", "所有位置对的偏置"),
            (
                {"table": torch.arange(8.0)[:, None], "size": 2, "farthest": 16},
                {"table": drawn(8, 2), "size": 5, "farthest": 16},
            ),
        ),
    ),
    laws=(
        Law(
            "bucket",
            "out-of-range",
            _in_range,
            Said(
                "A bucket must lie between 0 and buckets - 1; one of yours does not, so the table has no such row.",
                "桶必须在 0 到 buckets - 1 之间；你有一个不在其中，表里没有这一行。",
            ),
        ),
    ),
    wrong=(
        Wrong(
            "bucket",
            "sides-exchanged",
            Said(
                "The two sides are exchanged: the second half is for keys behind the query (distance > 0).",
                "两侧弄反了：后一半的桶给在查询之后的键（distance > 0）。",
            ),
            (("(distance > 0)", "(distance < 0)"),),
        ),
        Wrong(
            "bucket",
            "one-side",
            Said(
                "Both sides share the same buckets: before and behind cannot be told apart.",
                "两侧共用了同样的桶：分不清在前还是在后。",
            ),
            (("(distance > 0).long() * side", "0 * distance"),),
        ),
        Wrong(
            "bucket",
            "linear",
            Said(
                "Far distances are cut off instead of sharing buckets that grow with the logarithm.",
                "远距离被直接截断了，而没有按对数共用越来越宽的桶。",
            ),
            (("(exact + grown.long()).clamp(max=side - 1)", "far.clamp(max=side - 1)"),),
        ),
        Wrong(
            "bucket",
            "not-clamped",
            Said(
                "Distances beyond the farthest fall out of their half; they belong to its last bucket.",
                "超过 farthest 的距离落到了自己那一半之外；它们应在最后一个桶里。",
            ),
            (("(exact + grown.long()).clamp(max=side - 1)", "exact + grown.long()"),),
        ),
        Wrong(
            "bucket",
            "no-exact",
            Said(
                "The first half of the near buckets are single distances; yours use the logarithm from distance 1 on.",
                "近处的前一半桶各对应一个距离；你从距离 1 起就用了对数。",
            ),
            (
                (
                    "far.clamp(min=1).double() / exact).log() / math.log(farthest / exact) * (side - exact)",
                    "far.clamp(min=1).double()).log() / math.log(farthest) * side",
                ),
                ("torch.where(far < exact, far, (exact + grown.long())", "torch.where(far < 1, far, grown.long()"),
            ),
        ),
        Wrong(
            "bucket",
            "rounded",
            Said(
                "The logarithm is rounded; it must be cut off to a whole number (floor).",
                "对数被四舍五入了；应当向下取整。",
            ),
            (("grown.long()", "grown.round().long()"),),
        ),
        Wrong(
            "bias",
            "transposed",
            Said(
                "Query and key are exchanged: the distance is the key's position minus the query's, j - i.",
                "查询与键弄反了：距离是键的位置减去查询的位置，即 j - i。",
            ),
            (("position - position[:, None]", "position[:, None] - position"),),
        ),
        Wrong(
            "bias",
            "heads-last",
            Said(
                "The heads are the last axis; they must be the first: (H, size, size).",
                "头在最后一维；应在第一维：(H, size, size)。",
            ),
            ((".permute(2, 0, 1)", ""),),
        ),
        Wrong(
            "bias",
            "absolute",
            Said(
                "Your bias depends on the key's position alone, not on the distance to the query.",
                "你的偏置只取决于键的位置，而不是它与查询的距离。",
            ),
            (("position - position[:, None]", "position + 0 * position[:, None]"),),
        ),
    ),
)
