"""Exercise: Bahdanau's attention over a bidirectional encoder."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.nn.attention.core import attend
from regard.nn.attention.scores import Additive

from ..exercise import Case, Check, Exercise, Law, Said, Source, Text, Wrong, doc, drawn


def annotate(forwards: Tensor, backwards: Tensor) -> Tensor:
    """The annotation of each word (S, 2 D): the forward state at it, then the backward state at it.

    Both are (S, D) in the order in which they were computed: the backward encoder began at the last word.
    """
    return torch.cat((forwards, backwards.flip(0)), dim=-1)


def align(state: Tensor, annotations: Tensor, length: int, w: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """The weights (S,) of the annotations (S, E) for a decoder state (D,); those from `length` on are padding: 0."""
    scores = torch.tanh(w @ state + annotations @ u.T) @ v
    scores[length:] = float("-inf")
    return torch.softmax(scores, dim=-1)


def context(state: Tensor, annotations: Tensor, length: int, w: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """The context vector (E,): the sum of the annotations, each times its weight."""
    return align(state, annotations, length, w, u, v) @ annotations


def _library(state: Tensor, annotations: Tensor, length: int, w: Tensor, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    score = Additive(annotations.shape[1], len(state), len(v))
    with torch.no_grad():
        score.query.weight.copy_(w)
        score.key.weight.copy_(u)
        score.v.copy_(v)
        query, keys = score.queries(state[None]), score.keys(annotations)
        mixed, weights = attend(query, keys, annotations, score.compare, torch.arange(len(annotations)) < length)
    return mixed[0], weights[0]


def _no_padding(case: Case, value: object) -> bool:
    length = case["length"]
    assert isinstance(length, int)
    assert isinstance(value, Tensor)
    return bool((value[length:].abs() < 1e-5).all())


_SMALL = {
    "state": torch.tensor([1.0, -1.0]),
    "annotations": torch.tensor([[1.0, 0.0], [0.0, 2.0]]),
    "w": torch.tensor([[0.5, 0.0], [1.0, 0.5]]),
    "u": torch.tensor([[1.0, 0.5], [-0.5, 0.2]]),
    "v": torch.tensor([2.0, 1.0]),
}
_LARGE = {"state": drawn(3), "annotations": drawn(5, 4), "w": drawn(6, 3), "u": drawn(6, 4), "v": drawn(6)}
_CASES = ({**_SMALL, "length": 2}, {**_LARGE, "length": 5})
_SHORT = ({**_SMALL, "length": 1}, {**_LARGE, "length": 3})

EXERCISE = Exercise(
    number=9,
    name="bahdanau",
    lectures=("context-vector",),
    sources=(
        Source(1, "C_i 如何计算"),
        Source(1, "基于Attention+双向RNN的机器翻译"),
        Source(5, "编码器 - 解码器上的注意力机制"),
    ),
    texts={
        "en": Text(
            "Bahdanau's attention",
            """
The first attention: for each target word i the decoder looks at the annotations h_j of all source words.

    w_ij = vᵀ tanh(W s + U h_j)             s: the decoder's state before word i
    a_ij = exp(w_ij) / Σ_k exp(w_ik)
    c_i  = Σ_j a_ij h_j

An annotation is two states side by side: that of an encoder that reads forwards, and that of one that reads backwards.
The latter's first state is at the last word, so its states must be turned round before they are joined.
""",
            {"annotate": doc(annotate), "align": doc(align), "context": doc(context)},
        ),
        "zh": Text(
            "Bahdanau 注意力",
            """
最早的注意力：写每个目标词 i 时，解码器都看一遍所有源词的标注 h_j。

    w_ij = vᵀ tanh(W s + U h_j)             s：写词 i 之前解码器的状态
    a_ij = exp(w_ij) / Σ_k exp(w_ik)
    c_i  = Σ_j a_ij h_j

标注由两个状态并排而成：一个编码器从前往后读，另一个从后往前读。
后者的第一个状态在最后一个词上，所以拼接之前要把它的状态倒过来。
""",
            {
                "annotate": (
                    "每个词的标注 (S, 2 D)：先是该词处的前向状态，再是该词处的后向状态。\n\n"
                    "两者都是 (S, D)，按计算的次序给出：后向编码器从最后一个词开始。\n"
                ),
                "align": "解码器状态 (D,) 对各标注 (S, E) 的权重 (S,)；从 length 起是填充，权重为 0。",
                "context": "上下文向量 (E,)：各标注乘以权重之和。",
            },
        ),
    },
    answers=(annotate, align, context),
    reference={
        "annotate": lambda forwards, backwards: torch.stack(
            [torch.cat((forwards[j], backwards[len(backwards) - 1 - j])) for j in range(len(forwards))]
        ),
        "align": lambda **case: _library(**case)[1],
        "context": lambda **case: _library(**case)[0],
    },
    checks=(
        Check(
            "annotate",
            2,
            Said("annotations of both directions", "两个方向合成的标注"),
            (
                {"forwards": torch.tensor([[1.0], [2.0]]), "backwards": torch.tensor([[3.0], [4.0]])},
                {"forwards": drawn(3, 2), "backwards": drawn(3, 2, seed=1)},
            ),
        ),
        Check("align", 3, Said("weights of all words", "所有词的权重"), _CASES),
        Check("align", 2, Said("padding gets no weight", "填充没有权重"), _SHORT),
        Check("context", 3, Said("the context vector", "上下文向量"), (*_CASES, *_SHORT)),
    ),
    laws=(
        Law("align", "padding-weight", _no_padding, Said("Padding gets weight.", "填充得到了权重。")),
        Law(
            "align",
            "sums",
            lambda case, value: isinstance(value, Tensor) and abs(float(value.sum()) - 1) < 1e-3,
            Said("The weights must sum to 1; yours do not.", "权重总和必须为 1，而你的不是。"),
        ),
    ),
    wrong=(
        Wrong(
            "annotate",
            "not-turned",
            Said(
                "The backward states are not turned round: the first of them belongs to the last word.",
                "后向状态没有倒过来：其中第一个属于最后一个词。",
            ),
            (("backwards.flip(0)", "backwards"),),
        ),
        Wrong(
            "annotate",
            "exchanged",
            Said("The halves are exchanged: the forward state comes first.", "两半的次序反了：前向状态在前。"),
            (("(forwards, backwards.flip(0))", "(backwards.flip(0), forwards)"),),
        ),
        Wrong(
            "annotate",
            "features-turned",
            Said(
                "You turn the features round (the last axis); turn the words round (dim 0).",
                "你把特征（最后一维）倒了过来；应把词（第 0 维）倒过来。",
            ),
            (("backwards.flip(0)", "backwards.flip(-1)"),),
        ),
        Wrong(
            "annotate",
            "added",
            Said("The two states are added; they must stand side by side.", "两个状态被相加了；应当并排拼接。"),
            (("torch.cat((forwards, backwards.flip(0)), dim=-1)", "forwards + backwards.flip(0)"),),
        ),
        Wrong(
            "align",
            "padding-weight",
            Said(
                "Padding gets weight: scores from `length` on must become -∞ before the softmax.",
                "填充得到了权重：从 length 起的分数在 softmax 之前应变成 -∞。",
            ),
            (('    scores[length:] = float("-inf")\n', ""),),
        ),
        Wrong(
            "align",
            "padding-zero",
            Said(
                "Scores of padding become 0, and a score of 0 still gets weight; they must become -∞.",
                "填充的分数变成了 0，而 0 分仍会得到权重；应当变成 -∞。",
            ),
            (('float("-inf")', "0.0"),),
        ),
        Wrong(
            "align",
            "no-tanh",
            Said("The tanh is missing.", "缺少 tanh。"),
            (("torch.tanh(w @ state + annotations @ u.T) @ v", "(w @ state + annotations @ u.T) @ v"),),
        ),
        Wrong(
            "align",
            "no-state",
            Said(
                "The decoder's state is not used: every target word would look alike.",
                "没有用到解码器的状态：每个目标词都会看同样的地方。",
            ),
            (("w @ state + annotations @ u.T", "annotations @ u.T"),),
        ),
        Wrong(
            "align",
            "no-softmax",
            Said("The softmax is missing: these are scores.", "缺少 softmax：这只是分数。"),
            (("torch.softmax(scores, dim=-1)", "scores"),),
        ),
        Wrong(
            "context",
            "unweighted",
            Said("All annotations count alike: the weights are not used.", "所有标注同等计入：没有用到权重。"),
            (("align(state, annotations, length, w, u, v) @ annotations", "annotations.mean(0)"),),
        ),
        Wrong(
            "context",
            "keys-mixed",
            Said(
                "You mix U h_j; the annotations h_j themselves are mixed.", "你混合的是 U h_j；应当混合标注 h_j 本身。"
            ),
            (("length, w, u, v) @ annotations", "length, w, u, v) @ (annotations @ u.T)"),),
        ),
        Wrong(
            "context",
            "not-summed",
            Said(
                "The weighted annotations are not summed: the context is one vector.",
                "加权后的标注没有相加：上下文是一个向量。",
            ),
            (
                (
                    "align(state, annotations, length, w, u, v) @ annotations",
                    "align(state, annotations, length, w, u, v)[:, None] * annotations",
                ),
            ),
        ),
    ),
)
