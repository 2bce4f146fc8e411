"""Exercise: multi-head attention."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from regard.nn.attention import Heads, MultiHead, ScaledDot
from regard.nn.layers import only_references
from regard.nn.state import Padded

from ..exercise import Check, Exercise, Said, Source, Text, Wrong, doc, drawn


def split(x: Tensor, heads: int) -> Tensor:
    """Features (T, D) as heads (H, T, D / H): head h has the h-th run of D / H neighbouring features."""
    return x.view(len(x), heads, -1).transpose(0, 1)


def join(x: Tensor) -> Tensor:
    """Heads (H, T, E) side by side: (T, H · E), the first head's features first."""
    return x.transpose(0, 1).flatten(1)


def multi_head(x: Tensor, query: Tensor, key: Tensor, value: Tensor, output: Tensor, heads: int) -> Tensor:
    """Self-attention of x (T, D) with H heads: (T, D). The weights are (D, D) and stand right of x: q = x W."""
    queries, keys, values = split(x @ query, heads), split(x @ key, heads), split(x @ value, heads)
    scores = queries @ keys.transpose(-2, -1) / math.sqrt(queries.shape[-1])
    mixed = torch.softmax(scores, dim=-1) @ values
    return join(mixed) @ output


def _library(x: Tensor, query: Tensor, key: Tensor, value: Tensor, output: Tensor, heads: int) -> Tensor:
    length, width = x.shape
    attention = MultiHead(Heads(width, heads, width // heads, width // heads), ScaledDot(width // heads))
    with torch.no_grad(), only_references():
        for layer, weight in (
            (attention.query, query),
            (attention.key_value, torch.cat((key, value), -1)),
            (attention.output, output),
        ):
            assert isinstance(layer.weight, Tensor)
            layer.weight.copy_(weight.T)
            if isinstance(layer.bias, Tensor):
                layer.bias.zero_()
        return attention.of_itself(x[None], Padded(torch.tensor([length]), length), None)[0][0]


_TWO = {"x": torch.arange(1.0, 9.0).view(2, 4), "heads": 2}
_SIX = {"x": drawn(2, 6), "heads": 3}


def _weights(width: int, seed: int) -> dict[str, Tensor]:
    names = ("query", "key", "value", "output")
    return {name: drawn(width, width, seed=seed + number) for number, name in enumerate(names)}


EXERCISE = Exercise(
    number=4,
    name="heads",
    lectures=("heads",),
    sources=(Source(1, "Multi-Head Attention"), Source(2, "多头注意力机制"), Source(5, "多头 (multi-head) 自注意力")),
    texts={
        "en": Text(
            "Multi-head attention",
            """
    MultiHead(Q, K, V) = Concat(head_1, …, head_H) W^O
    head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V)

The matrices of all heads stand side by side in one: one product gives the queries of all heads, and `split` cuts it
into runs of D / H features. Each head divides its scores by the root of its own width, D / H.
""",
            {"split": doc(split), "join": doc(join), "multi_head": doc(multi_head)},
        ),
        "zh": Text(
            "多头注意力",
            """
    MultiHead(Q, K, V) = Concat(head_1, …, head_H) W^O
    head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V)

所有头的矩阵并排放在一个矩阵里：一次乘法得到所有头的查询，再由 `split` 按每段 D / H 个特征切开。
每个头的分数除以它自己的宽度 D / H 的平方根。
""",
            {
                "split": "把特征 (T, D) 分成各个头 (H, T, D / H)：头 h 取第 h 段相邻的 D / H 个特征。",
                "join": "把各个头 (H, T, E) 并排放好：(T, H · E)，第一个头的特征在前。",
                "multi_head": "x (T, D) 的 H 头自注意力：(T, D)。权重都是 (D, D)，放在 x 的右边：q = x W。",
            },
        ),
    },
    answers=(split, join, multi_head),
    reference={
        "split": lambda x, heads: torch.stack(x.chunk(heads, -1)),
        "join": lambda x: torch.cat(list(x), -1),
        "multi_head": _library,
    },
    checks=(
        Check("split", 3, Said("features split into heads", "把特征分成各个头"), (_TWO, _SIX)),
        Check(
            "join",
            2,
            Said("heads joined", "把各个头拼接起来"),
            ({"x": torch.arange(1.0, 9.0).view(2, 2, 2)}, {"x": drawn(3, 2, 2)}, {"x": drawn(2, 3, 4)}),
        ),
        Check(
            "multi_head",
            5,
            Said("multi-head self-attention", "多头自注意力"),
            ({**_TWO, "x": drawn(2, 4), **_weights(4, 1)}, {**_SIX, **_weights(6, 5)}),
        ),
    ),
    wrong=(
        Wrong(
            "split",
            "no-transpose",
            Said(
                "The positions are torn apart: `view(H, T, …)` without a transpose cuts the rows, not the features; "
                "view as (T, H, …) first and then transpose.",
                "位置被打散了：不转置就 `view(H, T, …)` 切开的是行而不是特征；应先 view 成 (T, H, …) 再转置。",
            ),
            (("x.view(len(x), heads, -1).transpose(0, 1)", "x.reshape(heads, len(x), -1)"),),
        ),
        Wrong(
            "split",
            "interleaved",
            Said(
                "The heads take features in turns (0, H, 2H, …); each head has a run of neighbouring features.",
                "各个头轮流取特征（0, H, 2H, …）；每个头应取一段相邻的特征。",
            ),
            (("x.view(len(x), heads, -1).transpose(0, 1)", "x.view(len(x), -1, heads).permute(2, 0, 1)"),),
        ),
        Wrong(
            "split",
            "heads-second",
            Said(
                "The heads are the second axis; they must be the first: (H, T, D / H).",
                "头在第二维；应在第一维：(H, T, D / H)。",
            ),
            (("x.view(len(x), heads, -1).transpose(0, 1)", "x.view(len(x), heads, -1)"),),
        ),
        Wrong(
            "join",
            "no-transpose",
            Said(
                "The heads are reshaped without a transpose, so that rows mix several positions.",
                "没有转置就改变了形状，一行里混进了不同位置的特征。",
            ),
            (("x.transpose(0, 1).flatten(1)", "x.reshape(x.shape[1], -1)"),),
        ),
        Wrong(
            "join",
            "interleaved",
            Said(
                "The heads' features are interleaved; the first head's all come first, then the second's.",
                "各个头的特征交错排列了；应先放第一个头的全部特征，再放第二个头的。",
            ),
            (("x.transpose(0, 1).flatten(1)", "x.permute(1, 2, 0).flatten(1)"),),
        ),
        Wrong(
            "join",
            "summed",
            Said("The heads are added; they must be concatenated.", "各个头被相加了；应当拼接。"),
            (("x.transpose(0, 1).flatten(1)", "x.sum(0)"),),
        ),
        Wrong(
            "multi_head",
            "scale-model",
            Said(
                "The scores are divided by the root of the model's width D; a head divides by that of its own, D / H.",
                "分数除以了模型宽度 D 的平方根；每个头应除以自己的宽度 D / H 的平方根。",
            ),
            (("math.sqrt(queries.shape[-1])", "math.sqrt(x.shape[-1])"),),
        ),
        Wrong(
            "multi_head",
            "no-scale",
            Said("The division by the root of the head's width is missing.", "缺少除以头的宽度的平方根。"),
            ((" / math.sqrt(queries.shape[-1])", ""),),
        ),
        Wrong(
            "multi_head",
            "no-output",
            Said("The product with the output weight W^O is missing.", "缺少与输出权重 W^O 的乘积。"),
            (("return join(mixed) @ output", "return join(mixed)"),),
        ),
        Wrong(
            "multi_head",
            "transposed",
            Said(
                "The weights are used transposed: here q = x W, not x Wᵀ.",
                "权重被转置使用了：这里 q = x W，而不是 x Wᵀ。",
            ),
            (
                ("x @ query", "x @ query.T"),
                ("x @ key", "x @ key.T"),
                ("x @ value", "x @ value.T"),
                ("@ output", "@ output.T"),
            ),
        ),
        Wrong(
            "multi_head",
            "one-head",
            Said("Your result is that of a single head.", "你的结果是单头注意力的结果。"),
            (("@ query, heads)", "@ query, 1)"), ("@ key, heads)", "@ key, 1)"), ("@ value, heads)", "@ value, 1)")),
        ),
        Wrong(
            "multi_head",
            "wrong-axis",
            Said(
                "The softmax runs over the queries; it must run over the keys (dim=-1).",
                "softmax 沿查询的方向做了；应沿键的方向（dim=-1）。",
            ),
            (("dim=-1)", "dim=-2)"),),
        ),
    ),
)
