"""Exercise: scaled dot-product attention."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from regard.nn.attention.core import attend as library
from regard.nn.attention.scores import ScaledDot

from ..exercise import Case, Check, Exercise, Law, Said, Source, Text, Wrong, doc, drawn


def weigh(queries: Tensor, keys: Tensor) -> Tensor:
    """The attention weights (T, S) of queries (T, D) over keys (S, D): each query's weights sum to 1."""
    scores = queries @ keys.T / math.sqrt(queries.shape[-1])
    return torch.softmax(scores, dim=-1)


def attend(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """For each query (T, D) the sum of the values (S, E), each times its weight: (T, E)."""
    return weigh(queries, keys) @ values


def _library(queries: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    score = ScaledDot(queries.shape[-1])
    return library(score.queries(queries), keys, values, score.compare)


def _sums(case: Case, value: object) -> bool:
    assert isinstance(value, Tensor)
    return torch.allclose(value.sum(-1), torch.ones(len(value)), atol=1e-3)


_SMALL = {"queries": torch.tensor([[1.0, 2.0]]), "keys": torch.tensor([[1.0, 0.0], [0.0, 1.0]])}
_SLIDE = {  # q1 · k1 = 112 and q1 · k2 = 96 of 64 features, as on the slide
    "queries": torch.ones(1, 64),
    "keys": torch.tensor([[1.75], [1.5]]).expand(2, 64).contiguous(),
}
_LARGE = {"queries": drawn(3, 4), "keys": drawn(3, 4, seed=1) * 2}
_VALUES = torch.tensor([[1.0, 0.0, 2.0], [0.0, 4.0, -1.0]])

EXERCISE = Exercise(
    number=2,
    name="scaling",
    lectures=("by-hand", "scaling"),
    sources=(Source(1, "Self-Attention的数学表示"), Source(1, "Trick: 缩放"), Source(2, "降尺度的点乘注意力机制")),
    texts={
        "en": Text(
            "Scaled dot-product attention",
            """
    Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V

The variance of a dot product grows with the number of features d_k. Without the division, scores get so large that the
softmax gives nearly all weight to one key. The worked example on the slides: q·k is 112 and 96 with d_k = 64, so the
scores are 14 and 12, and the weights 0.88 and 0.12.

Write `weigh`, which gives the weights, and `attend`, which mixes the values with them. d_k is the last size of Q.
""",
            {"weigh": doc(weigh), "attend": doc(attend)},
        ),
        "zh": Text(
            "缩放点积注意力",
            """
    Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V

点积的方差与特征数 d_k 成正比。如果不缩放，分数会过大，softmax 几乎把全部权重给了一个键。
幻灯片上的手算例：d_k = 64 时 q·k 为 112 与 96，于是分数是 14 与 12，权重是 0.88 与 0.12。

请写出 `weigh`（给出注意力权重）和 `attend`（用这些权重混合各个值）。d_k 是 Q 的最后一维的大小。
""",
            {
                "weigh": "查询 (T, D) 对键 (S, D) 的注意力权重 (T, S)：每个查询的权重总和为 1。",
                "attend": "对每个查询 (T, D)，把各个值 (S, E) 乘以权重后相加：(T, E)。",
            },
        ),
    },
    answers=(weigh, attend),
    reference={
        "weigh": lambda queries, keys: _library(queries, keys, keys)[1],
        "attend": lambda queries, keys, values: _library(queries, keys, values)[0],
    },
    checks=(
        Check("weigh", 4, Said("weights of a few keys", "少数几个键的权重"), (_SMALL, _LARGE)),
        Check("weigh", 2, Said("the slides' 112 and 96", "幻灯片上的 112 与 96"), (_SLIDE,)),
        Check(
            "attend",
            4,
            Said("values mixed by their weights", "按权重混合各个值"),
            ({**_SMALL, "values": _VALUES}, {**_LARGE, "values": drawn(3, 2, seed=2)}),
        ),
    ),
    laws=(
        Law(
            "weigh",
            "sums",
            _sums,
            Said("The weights of a query must sum to 1; yours do not.", "每个查询的权重总和必须为 1，而你的不是。"),
        ),
    ),
    wrong=(
        *(
            Wrong("weigh", name, said, edits)
            for name, said, edits in (
                (
                    "not-summed",
                    Said(
                        "The features are multiplied but not summed: q · k is one number for each pair of a query and "
                        "a key, which Q @ K.T gives for all of them.",
                        "各特征相乘之后没有求和：每对查询与键的 q · k 是一个数，Q @ K.T 一次给出全部。",
                    ),
                    (("queries @ keys.T", "queries * keys"),),
                ),
                (
                    "no-scale",
                    Said(
                        "Your result is what one gets without the division by √d_k.",
                        "你的结果正是没有除以 √d_k 时的结果。",
                    ),
                    ((" / math.sqrt(queries.shape[-1])", ""),),
                ),
                (
                    "scale-d",
                    Said("You divide by d_k instead of by its square root.", "你除以了 d_k，而不是它的平方根。"),
                    (("math.sqrt(queries.shape[-1])", "queries.shape[-1]"),),
                ),
                (
                    "scale-up",
                    Said(
                        "You multiply with √d_k; the scores are to be divided by it.", "你乘以了 √d_k；分数应当除以它。"
                    ),
                    (("/ math.sqrt(", "* math.sqrt("),),
                ),
                (
                    "scale-keys",
                    Said(
                        "You divide by the root of the number of keys, not by that of the number of features d_k.",
                        "你除以的是键的个数的平方根，而不是特征数 d_k 的平方根。",
                    ),
                    (("math.sqrt(queries.shape[-1])", "math.sqrt(len(keys))"),),
                ),
                (
                    "wrong-axis",
                    Said(
                        "The softmax runs over the queries; it must run over the keys, the last axis (dim=-1).",
                        "softmax 沿查询的方向做了；它应沿键的方向，即最后一维（dim=-1）。",
                    ),
                    (("dim=-1", "dim=0"),),
                ),
                (
                    "no-softmax",
                    Said("The softmax is missing: these are the scores.", "缺少 softmax：这只是分数。"),
                    (("return torch.softmax(scores, dim=-1)", "return scores"),),
                ),
                (
                    "scale-after",
                    Said(
                        "You divide the weights, after the softmax; the scores are to be divided before it.",
                        "你在 softmax 之后除了权重；应在它之前除分数。",
                    ),
                    (
                        (" / math.sqrt(queries.shape[-1])", ""),
                        ("scores, dim=-1)", "scores, dim=-1) / math.sqrt(queries.shape[-1])"),
                    ),
                ),
            )
        ),
        Wrong(
            "attend",
            "values-averaged",
            Said("All values are mixed alike: the weights are not used.", "各个值被同等混合：没有用到权重。"),
            (("return weigh(queries, keys) @ values", "return values.mean(0, keepdim=True).expand(len(queries), -1)"),),
        ),
        Wrong(
            "attend",
            "weights-transposed",
            Said(
                "The weights are transposed before they are multiplied with the values.", "权重在与值相乘之前被转置了。"
            ),
            (("return weigh(queries, keys) @ values", "return weigh(queries, keys).T @ values"),),
        ),
    ),
)
