"""Exercise: three scores, dot, bilinear and additive."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.nn.attention.scores import Additive, Bilinear, Dot

from ..exercise import Check, Exercise, Said, Source, Text, Wrong, doc, drawn


def dot(query: Tensor, keys: Tensor) -> Tensor:
    """The dot product of a query (D,) with each key (S, D): scores (S,)."""
    return keys @ query


def bilinear(query: Tensor, keys: Tensor, weight: Tensor) -> Tensor:
    """The product qᵀ W k of a query (Q,), a weight (Q, D) and each key (S, D): scores (S,)."""
    return keys @ (query @ weight)


def additive(query: Tensor, keys: Tensor, for_query: Tensor, for_keys: Tensor, v: Tensor) -> Tensor:
    """The score v · tanh(U q + W k) of a query (Q,) with each key (S, D): (S,); U is (A, Q), W (A, D), v (A,)."""
    both = keys @ for_keys.T + for_query @ query
    return torch.tanh(both) @ v


def _bilinear(query: Tensor, keys: Tensor, weight: Tensor) -> Tensor:
    score = Bilinear(keys.shape[-1], len(query))
    with torch.no_grad():
        score.query.weight.copy_(weight.T)
        return score.compare(score.queries(query[None]), score.keys(keys))[0]


def _additive(query: Tensor, keys: Tensor, for_query: Tensor, for_keys: Tensor, v: Tensor) -> Tensor:
    score = Additive(keys.shape[-1], len(query), len(v))
    with torch.no_grad():
        score.query.weight.copy_(for_query)
        score.key.weight.copy_(for_keys)
        score.v.copy_(v)
        return score.compare(score.queries(query[None]), score.keys(keys))[0]


_SMALL = {"query": torch.tensor([1.0, 2.0]), "keys": torch.tensor([[3.0, 1.0], [0.0, -1.0]])}
_LARGE = {"query": drawn(4), "keys": drawn(3, 4)}
_HALF = {"for_query": torch.tensor([[0.1, 0.2], [0.3, 0.0]]), "for_keys": torch.tensor([[0.5, 0.0], [0.2, 0.4]])}

EXERCISE = Exercise(
    number=1,
    name="scores",
    lectures=("scores",),
    sources=(Source(3, "2.1 基本注意力计算过程"), Source(5, "注意力打分函数")),
    texts={
        "en": Text(
            "Scores: how a query is compared with keys",
            """
Attention begins with a score for each key, the number that says how well it goes with the query:

    dot        s(q, k) = qᵀ k
    bilinear   s(q, k) = qᵀ W k
    additive   s(q, k) = vᵀ tanh(U q + W k)

Write the three functions. Each compares one query with S keys at once, and needs no loop. Scores come before the
softmax: return them as they are.
""",
            {"dot": doc(dot), "bilinear": doc(bilinear), "additive": doc(additive)},
        ),
        "zh": Text(
            "打分：把查询与键比较",
            """
注意力的第一步，是为每个键算一个分数，它说明这个键与查询有多相配：

    点积      s(q, k) = qᵀ k
    双线性    s(q, k) = qᵀ W k
    加性      s(q, k) = vᵀ tanh(U q + W k)

请写出这三个函数。每个函数一次把一个查询与 S 个键比较，不需要循环。分数在 softmax 之前，原样返回即可。
""",
            {
                "dot": "查询 (D,) 与每个键 (S, D) 的点积：分数 (S,)。",
                "bilinear": "查询 (Q,)、权重 (Q, D) 与每个键 (S, D) 的乘积 qᵀ W k：分数 (S,)。",
                "additive": "查询 (Q,) 与各键 (S, D) 的分数 v · tanh(U q + W k)：(S,)；U (A, Q)，W (A, D)，v (A,)。",
            },
        ),
    },
    answers=(dot, bilinear, additive),
    reference={
        "dot": lambda query, keys: Dot(len(query)).compare(query[None], keys)[0],
        "bilinear": _bilinear,
        "additive": _additive,
    },
    checks=(
        Check("dot", 3, Said("the dot product", "点积"), (_SMALL, _LARGE)),
        Check(
            "bilinear",
            3,
            Said("the bilinear score", "双线性分数"),
            ({**_SMALL, "weight": torch.tensor([[1.0, 2.0], [0.0, 1.0]])}, {**_LARGE, "weight": drawn(4, 4)}),
        ),
        Check(
            "additive",
            4,
            Said("the additive score", "加性分数"),
            (
                {**_SMALL, **_HALF, "v": torch.tensor([1.0, -2.0])},
                {**_LARGE, "for_query": drawn(5, 4), "for_keys": drawn(5, 4, seed=1), "v": drawn(5)},
            ),
        ),
    ),
    wrong=(
        Wrong(
            "dot",
            "products-not-summed",
            Said(
                "The products of the features are not summed: a score is one number for each key.",
                "各特征的乘积没有求和：每个键的分数应是一个数。",
            ),
            (("return keys @ query", "return keys * query"),),
        ),
        Wrong(
            "dot",
            "softmax-already",
            Said(
                "These are weights: the softmax comes later, not in the score.", "这已是权重：softmax 在打分之后才做。"
            ),
            (("return keys @ query", "return torch.softmax(keys @ query, -1)"),),
        ),
        Wrong(
            "dot",
            "cosine",
            Said(
                "Your result is the cosine: the lengths of query and keys are divided out.",
                "你的结果是余弦：查询与键的长度被除掉了。",
            ),
            (("return keys @ query", "return torch.cosine_similarity(keys, query[None], -1)"),),
        ),
        Wrong(
            "dot",
            "scaled",
            Said("The plain dot product is not divided by the square root of D.", "点积打分不除以 D 的平方根。"),
            (("return keys @ query", "return keys @ query / len(query) ** 0.5"),),
        ),
        Wrong(
            "bilinear",
            "weight-transposed",
            Said(
                "W is transposed: your result is kᵀ W q instead of qᵀ W k.",
                "W 被转置了：你算的是 kᵀ W q，而不是 qᵀ W k。",
            ),
            (("keys @ (query @ weight)", "keys @ (weight @ query)"),),
        ),
        Wrong(
            "bilinear",
            "no-weight",
            Said("W is not used: your result is the dot product.", "没有用到 W：你的结果就是点积。"),
            (("keys @ (query @ weight)", "keys @ query"),),
        ),
        Wrong(
            "additive",
            "no-tanh",
            Said("The tanh is missing, so that the score is only linear.", "缺少 tanh，打分就只是线性的。"),
            (("torch.tanh(both) @ v", "both @ v"),),
        ),
        Wrong(
            "additive",
            "tanh-outside",
            Said(
                "The tanh stands outside: it acts on U q + W k, before the product with v.",
                "tanh 放在了外面：它应作用于 U q + W k，然后再与 v 相乘。",
            ),
            (("torch.tanh(both) @ v", "torch.tanh(both @ v)"),),
        ),
        Wrong(
            "additive",
            "no-v",
            Said("v is not used: the hidden features are only summed.", "没有用到 v：隐藏特征只是被直接相加。"),
            (("torch.tanh(both) @ v", "torch.tanh(both).sum(-1)"),),
        ),
        Wrong(
            "additive",
            "weights-exchanged",
            Said(
                "The two weights are exchanged: U is for the query, W for the keys.",
                "两个权重用反了：U 用于查询，W 用于键。",
            ),
            (("keys @ for_keys.T + for_query @ query", "keys @ for_query.T + for_keys @ query"),),
        ),
    ),
)
