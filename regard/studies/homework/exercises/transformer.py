"""Exercise: a whole small Transformer that learns with the student's own attention."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from regard.nn.attention.core import attend as library
from regard.nn.attention.scores import ScaledDot
from regard.nn.layers import FeedForward, only_references

from ..exercise import Case, Check, Exercise, Law, Said, Source, Text, Trained, Wrong, doc, drawn


def attend(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Scaled dot-product attention of all sequences and heads at once: (B, H, T, E).

    Queries are (B, H, T, D), keys (B, H, S, D), values (B, H, S, E). The mask is True where a query may look; it
    broadcasts with the scores (B, H, T, S), and None hides nothing. A row with nothing to look at gives zeros.
    """
    scores = queries @ keys.transpose(-2, -1) / math.sqrt(queries.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    weights = torch.softmax(scores, dim=-1)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)
    return weights @ values


def feed_forward(x: Tensor, inner: Tensor, inner_bias: Tensor, outer: Tensor, outer_bias: Tensor) -> Tensor:
    """The feed-forward network max(0, x W_1 + b_1) W_2 + b_2 of x (…, D): W_1 is (D, F), W_2 is (F, D)."""
    return torch.relu(x @ inner + inner_bias) @ outer + outer_bias


def _attend(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    score = ScaledDot(queries.shape[-1])
    return library(score.queries(queries), keys, values, score.compare, mask)[0]


def _feed_forward(x: Tensor, inner: Tensor, inner_bias: Tensor, outer: Tensor, outer_bias: Tensor) -> Tensor:
    made = FeedForward(inner.shape[0], inner.shape[1], "relu", 0.0)
    with torch.no_grad(), only_references():
        for layer, weight, bias in ((made.inner, inner, inner_bias), (made.outer, outer, outer_bias)):
            layer.weight.copy_(weight.T)
            layer.bias.copy_(bias)
        return made(x)  # type: ignore[no-any-return]  # a module's call says nothing


def _no_nan(case: Case, value: object) -> bool:
    return isinstance(value, Tensor) and not bool(value.isnan().any())


def _heads(*shape: int, seed: int = 0) -> dict[str, Tensor]:
    return {name: drawn(*shape, seed=seed + i) for i, name in enumerate(("queries", "keys", "values"))}


_SMALL = {
    "queries": torch.tensor([[[[1.0, 0.0], [0.0, 2.0]]]]),
    "keys": torch.tensor([[[[1.0, 1.0], [-1.0, 0.5]]]]),
    "values": torch.tensor([[[[1.0], [3.0]]]]),
}
_CAUSAL = torch.ones(2, 2, dtype=torch.bool).tril()
_PADDING = torch.tensor([[True, True, True, False], [False] * 4])[:, None, None]
_NETWORK = {"inner_bias": torch.tensor([0.5, -1.0]), "outer_bias": torch.tensor([0.25])}
_FULL = "torch.relu(x @ inner + inner_bias) @ outer + outer_bias"

EXERCISE = Exercise(
    number=15,
    name="transformer",
    lectures=("architecture", "feed-forward"),
    sources=(
        Source(1, "标准模型架构"),
        Source(1, "Feed Forward层"),
        Source(2, "多头注意力机制"),
        Source(4, "Transformer架构概述"),
        Source(5, "Transformer模型架构"),
    ),
    texts={
        "en": Text(
            "A whole Transformer, with your attention",
            """
In this last exercise your attention and your feed-forward network are put into a real Transformer of Regard (encoder,
decoder, two heads), which is then trained to write sequences of letters backwards. It takes well under a minute.

    Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V        with a mask, as in exercises 2 and 3
    FFN(x) = max(0, x W_1 + b_1) W_2 + b_2

The encoder calls `attend` with the mask of padding, the decoder with the causal one, and once more to look at the
source. If the mask leaks, training looks splendid and translating fails: the decoder has learnt to copy what it should
predict. That is why the points are given for fresh sequences, written by greedy search.
""",
            {"attend": doc(attend), "feed_forward": doc(feed_forward)},
        ),
        "zh": Text(
            "完整的 Transformer，用你自己的注意力",
            """
最后一题把你写的注意力和前馈网络装进 Regard 的一个真正的 Transformer（编码器、解码器、两个头），
训练它把字母序列倒着写出来。全程远不到一分钟。

    Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V        带掩码，如第 2、3 题
    FFN(x) = max(0, x W_1 + b_1) W_2 + b_2

编码器调用 `attend` 时给填充掩码，解码器给因果掩码，看源序列时再调用一次。
如果掩码泄露了未来，训练时看起来好极了，真正去写却会失败：解码器学会的是抄写本该预测的词元。
所以得分看的是新的序列，由贪心搜索写出。
""",
            {
                "attend": (
                    "所有序列、所有头一起算的缩放点积注意力：(B, H, T, E)。\n\n"
                    "查询 (B, H, T, D)，键 (B, H, S, D)，值 (B, H, S, E)。掩码为 True 处可以看，它与分数 (B, H, T, S)\n"
                    "按广播对齐；None 表示什么都不遮。什么都不可以看的一行为零。\n"
                ),
                "feed_forward": "x (…, D) 的前馈网络 max(0, x W_1 + b_1) W_2 + b_2：W_1 为 (D, F)，W_2 为 (F, D)。",
            },
        ),
    },
    answers=(attend, feed_forward),
    reference={"attend": _attend, "feed_forward": _feed_forward},
    checks=(
        Check(
            "attend",
            4,
            Said("attention with masks", "带掩码的注意力"),
            (
                {**_SMALL, "mask": None},
                {**_SMALL, "mask": _CAUSAL},
                {**_heads(2, 2, 4, 3), "mask": torch.ones(4, 4, dtype=torch.bool).tril()},
                {**_heads(2, 2, 4, 3, seed=5), "mask": _PADDING},
            ),
        ),
        Check(
            "feed_forward",
            2,
            Said("the feed-forward network", "前馈网络"),
            (
                {
                    "x": torch.tensor([[1.0], [-2.0]]),
                    "inner": torch.tensor([[1.0, 2.0]]),
                    "outer": torch.tensor([[1.0], [-3.0]]),
                    **_NETWORK,
                },
                {
                    "x": drawn(2, 3, 4),
                    "inner": drawn(4, 6),
                    "inner_bias": drawn(6),
                    "outer": drawn(6, 4),
                    "outer_bias": drawn(4),
                },
            ),
        ),
    ),
    trained=Trained(
        "regard.studies.homework.learning:learn",
        4,
        Said("a Transformer learns to reverse with them", "用它们训练的 Transformer 学会倒着写"),
        0.8,
        Said(
            "The Transformer wrote {share:.0%} of the fresh sequences rightly; {least:.0%} is wanted. With the right "
            "functions it learns this, so mend the other checks first.",
            "Transformer 把 {share:.0%} 的新序列写对了，要求是 {least:.0%}。函数正确时它能学会，请先改好前面的检查。",
        ),
    ),
    seconds=150.0,
    laws=(
        Law(
            "attend",
            "nan",
            _no_nan,
            Said(
                "Your result holds NaN, which would spoil all weights of the model.",
                "你的结果里有 NaN，它会毁掉模型的所有权重。",
            ),
        ),
    ),
    wrong=(
        Wrong(
            "attend",
            "mask-ignored",
            Said("The mask is not used: the decoder sees the future.", "没有用到掩码：解码器看到了未来。"),
            (
                ('scores = scores.masked_fill(~mask, float("-inf"))', "pass"),
                ("weights = weights.masked_fill(~mask, 0.0)", "pass"),
            ),
        ),
        Wrong(
            "attend",
            "inverted",
            Said("The mask is the wrong way round: True means “may look”.", "掩码用反了：True 表示“可以看”。"),
            (("masked_fill(~mask,", "masked_fill(mask,"),),
        ),
        Wrong(
            "attend",
            "nan-row",
            Said(
                "A row with nothing to look at gives NaN, which would spoil all weights; it must give zeros.",
                "什么都不可以看的一行得到了 NaN，它会毁掉模型的所有权重；应当为零。",
            ),
            (("weights = weights.masked_fill(~mask, 0.0)", "pass"),),
        ),
        Wrong(
            "attend",
            "uniform-row",
            Said(
                "A row with nothing to look at mixes all values evenly (a large negative number instead of -∞ does "
                "that); it must give zeros.",
                "什么都不可以看的一行均匀混合了所有的值（用很大的负数代替 -∞ 就会这样）；应当为零。",
            ),
            (('float("-inf")', "-1e9"), ("weights = weights.masked_fill(~mask, 0.0)", "pass")),
        ),
        Wrong(
            "attend",
            "zero-score",
            Said(
                "Hidden scores become 0, and a score of 0 still gets weight; they must become -∞.",
                "看不到的分数变成了 0，而 0 分仍会得到权重；应当变成 -∞。",
            ),
            (('float("-inf")', "0.0"), ("weights = weights.masked_fill(~mask, 0.0)", "pass")),
        ),
        Wrong(
            "attend",
            "after-softmax",
            Said(
                "The mask is applied after the softmax, so that rows no longer sum to 1; apply it to the scores.",
                "掩码用在了 softmax 之后，每行总和不再是 1；应当用在分数上。",
            ),
            (('scores = scores.masked_fill(~mask, float("-inf"))', "pass"),),
        ),
        Wrong(
            "attend",
            "no-scale",
            Said("Your result is what one gets without the division by √d_k.", "你的结果正是没有除以 √d_k 时的结果。"),
            ((" / math.sqrt(queries.shape[-1])", ""),),
        ),
        Wrong(
            "attend",
            "wrong-axis",
            Said(
                "The softmax runs over the queries; it must run over the keys, the last axis (dim=-1).",
                "softmax 沿查询的方向做了；它应沿键的方向，即最后一维（dim=-1）。",
            ),
            (("dim=-1", "dim=-2"),),
        ),
        Wrong(
            "feed_forward",
            "no-relu",
            Said(
                "The max(0, …) is missing, so that two layers are no more than one.",
                "缺少 max(0, …)，这样两层与一层没有区别。",
            ),
            ((_FULL, "(x @ inner + inner_bias) @ outer + outer_bias"),),
        ),
        Wrong(
            "feed_forward",
            "relu-last",
            Said(
                "The max(0, …) stands at the end; it belongs between the two products.",
                "max(0, …) 放在了最后；应放在两次相乘之间。",
            ),
            ((_FULL, "torch.relu((x @ inner + inner_bias) @ outer + outer_bias)"),),
        ),
        Wrong(
            "feed_forward",
            "no-inner-bias",
            Said("The bias b_1 is missing.", "缺少偏置 b_1。"),
            ((" + inner_bias", ""),),
        ),
        Wrong(
            "feed_forward",
            "no-outer-bias",
            Said("The bias b_2 is missing.", "缺少偏置 b_2。"),
            ((" + outer_bias", ""),),
        ),
        Wrong(
            "feed_forward",
            "residual",
            Said(
                "x is added to the result; the residual is added outside, by Add & Norm.",
                "结果里加上了 x；残差由外面的“相加与归一化”来加。",
            ),
            ((_FULL, "x + " + _FULL),),
        ),
    ),
)
