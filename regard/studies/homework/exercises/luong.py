"""Exercise: Luong's local attention and the attentional state."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.nn.attention.core import softmax
from regard.nn.attention.luong import LuongAttention
from regard.nn.attention.scores import Dot

from ..exercise import Case, Check, Exercise, Law, Said, Source, Text, Wrong, doc, drawn


def centre(state: Tensor, length: int, w: Tensor, v: Tensor) -> Tensor:
    """The position (one number) around which a decoder state (D,) looks; w is (D, D), v (D,)."""
    return length * torch.sigmoid(v @ torch.tanh(w @ state))


def local_weights(scores: Tensor, centre: float, window: int) -> Tensor:
    """The weights (S,) of scores (S,) around `centre`: 0 beyond `window`, a softmax inside, times the Gaussian."""
    distance = torch.arange(len(scores)) - centre
    inside = scores.masked_fill(distance.abs() > window, float("-inf"))
    return torch.softmax(inside, dim=-1) * torch.exp(-(distance**2) / (2 * (window / 2) ** 2))


def attentional(context: Tensor, state: Tensor, w: Tensor) -> Tensor:
    """The attentional state (D,) of a context (D,) and a decoder state (D,); w is (D, 2 D), the context first."""
    return torch.tanh(w @ torch.cat((context, state)))


def _attention(width: int, window: int = 1) -> LuongAttention:
    return LuongAttention(width, Dot(width), "local-p", window, softmax)


def _centre(state: Tensor, length: int, w: Tensor, v: Tensor) -> Tensor:
    made = _attention(len(state))
    assert made.place is not None
    assert made.share is not None
    with torch.no_grad():
        made.place.weight.copy_(w)
        made.share.weight.copy_(v[None])
        return made._centres(state[None, None], torch.tensor([length]), 0)[0, 0]


def _local(scores: Tensor, centre: float, window: int) -> Tensor:
    """The library's weights with these scores: states of one feature, and this centre instead of the learned one."""
    made, states = _attention(1, window), scores[None, :, None]
    made._centres = lambda *_: torch.tensor([[centre]])  # type: ignore[method-assign]  # the centre is given here
    lengths, inside = torch.tensor([len(scores)]), torch.ones(1, 1, dtype=torch.bool)
    with torch.no_grad():
        return made(torch.ones(1, 1, 1), made.prepare(states), lengths, 0, inside)[1][0, 0, 0]  # type: ignore[no-any-return]  # a module's call says nothing


def _attentional(context: Tensor, state: Tensor, w: Tensor) -> Tensor:
    made = _attention(len(state))
    with torch.no_grad():
        made.output.weight.copy_(w)
        return made.output(torch.cat((context, state), -1)).tanh()  # type: ignore[no-any-return]  # a module's call says nothing


def _window(case: Case, value: object) -> bool:
    scores, middle, window = case["scores"], case["centre"], case["window"]
    assert isinstance(scores, Tensor)
    assert isinstance(middle, float)
    assert isinstance(window, int)
    assert isinstance(value, Tensor)
    far = (torch.arange(len(scores)) - middle).abs() > window
    return bool((value[far].abs() < 1e-5).all())


_GAUSS = " * torch.exp(-(distance**2) / (2 * (window / 2) ** 2))"

EXERCISE = Exercise(
    number=10,
    name="luong",
    lectures=("local-window",),
    sources=(Source(1, "Global Attention v.s. Local Attention"), Source(1, "如何使用所注意词的信息")),
    texts={
        "en": Text(
            "Luong's local attention",
            """
Global attention looks at all source words; local attention (Luong, Pham and Manning 2015) at a window around a position
p that the decoder predicts, S being the number of source words and D the window:

    p    = S · sigmoid(vᵀ tanh(W h))
    a_j  = softmax over the j with |j - p| ≤ D, times exp(-(j - p)² / (2 σ²)), σ = D / 2
    h̃    = tanh(W_c [c; h])

The weights after the Gaussian are not made to sum to 1 again. Context and state are concatenated, the context first.
""",
            {"centre": doc(centre), "local_weights": doc(local_weights), "attentional": doc(attentional)},
        ),
        "zh": Text(
            "Luong 的局部注意力",
            """
全局注意力看所有源词；局部注意力（Luong, Pham, Manning 2015）只看解码器所预测的位置 p 附近的窗口。
S 是源词的个数，D 是窗口：

    p    = S · sigmoid(vᵀ tanh(W h))
    a_j  = 对满足 |j - p| ≤ D 的 j 做 softmax，再乘以 exp(-(j - p)² / (2 σ²))，σ = D / 2
    h̃    = tanh(W_c [c; h])

乘以高斯之后，权重不再归一。上下文与状态拼接，上下文在前。
""",
            {
                "centre": "解码器状态 (D,) 所看窗口的中心位置（一个数）；w 为 (D, D)，v 为 (D,)。",
                "local_weights": "分数 (S,) 在 centre 附近的权重 (S,)：超出 window 为 0，其内做 softmax，再乘以高斯。",
                "attentional": "上下文 (D,) 与解码器状态 (D,) 合成的注意力状态 (D,)；w 为 (D, 2 D)，上下文在前。",
            },
        ),
    },
    answers=(centre, local_weights, attentional),
    reference={"centre": _centre, "local_weights": _local, "attentional": _attentional},
    checks=(
        Check(
            "centre",
            3,
            Said("the predicted position", "预测的位置"),
            (
                {"state": torch.tensor([1.0]), "length": 4, "w": torch.tensor([[0.5]]), "v": torch.tensor([2.0])},
                {"state": drawn(3), "length": 7, "w": drawn(3, 3), "v": drawn(3, seed=1)},
            ),
        ),
        Check(
            "local_weights",
            4,
            Said("weights within the window", "窗口内的权重"),
            (
                {"scores": torch.tensor([1.0, 2.0, 0.0, 1.0]), "centre": 1.0, "window": 1},
                {"scores": drawn(6), "centre": 3.3, "window": 2},
                {"scores": drawn(5) * 2, "centre": 0.4, "window": 3},
            ),
        ),
        Check(
            "attentional",
            3,
            Said("the attentional state", "注意力状态"),
            (
                {"context": torch.tensor([1.0]), "state": torch.tensor([-0.5]), "w": torch.tensor([[0.5, 1.0]])},
                {"context": drawn(3), "state": drawn(3, seed=1), "w": drawn(3, 6)},
            ),
        ),
    ),
    laws=(
        Law(
            "local_weights",
            "window",
            _window,
            Said("A position outside the window gets weight.", "窗口之外的位置得到了权重。"),
        ),
    ),
    wrong=(
        Wrong(
            "centre",
            "no-length",
            Said(
                "The factor S is missing: the position is always between 0 and 1.", "缺少因子 S：位置总在 0 与 1 之间。"
            ),
            (("length * torch.sigmoid", "torch.sigmoid"),),
        ),
        Wrong(
            "centre",
            "no-tanh",
            Said("The tanh is missing.", "缺少 tanh。"),
            (("torch.tanh(w @ state)", "(w @ state)"),),
        ),
        Wrong(
            "centre",
            "last-position",
            Said("The factor is S, not S - 1.", "因子是 S，不是 S - 1。"),
            (("length *", "(length - 1) *"),),
        ),
        Wrong("centre", "no-weight", Said("W is not used.", "没有用到 W。"), (("w @ state", "state"),)),
        Wrong(
            "local_weights",
            "no-gauss",
            Said(
                "The Gaussian is missing: positions near the centre count no more than those at the edge.",
                "缺少高斯：靠近中心的位置应比边缘更重。",
            ),
            ((_GAUSS, ""),),
        ),
        Wrong(
            "local_weights",
            "wide-gauss",
            Said("Your Gaussian is too wide: σ is half of the window, D / 2.", "你的高斯太宽：σ 是窗口的一半，D / 2。"),
            (("(window / 2) ** 2", "window**2"),),
        ),
        Wrong(
            "local_weights",
            "edge",
            Said(
                "Positions exactly at distance D belong to the window (≤, not <).",
                "距离恰为 D 的位置也在窗口内（≤，而不是 <）。",
            ),
            (("distance.abs() > window", "distance.abs() >= window"),),
        ),
        Wrong(
            "local_weights",
            "no-window",
            Said("The window is missing: the softmax runs over all words.", "缺少窗口：softmax 对所有词做了。"),
            (('scores.masked_fill(distance.abs() > window, float("-inf"))', "scores"),),
        ),
        Wrong(
            "local_weights",
            "cut-after",
            Said(
                "The window is cut out after the softmax; the softmax must run over the window alone.",
                "窗口是在 softmax 之后截取的；softmax 应只对窗口内做。",
            ),
            (
                ('scores.masked_fill(distance.abs() > window, float("-inf"))', "scores"),
                (
                    "return torch.softmax(inside, dim=-1)",
                    "return (distance.abs() <= window) * torch.softmax(inside, dim=-1)",
                ),
            ),
        ),
        Wrong(
            "local_weights",
            "normalised-again",
            Said(
                "The weights are made to sum to 1 again after the Gaussian; the paper leaves them.",
                "乘以高斯之后又归一了一次；论文并不这样做。",
            ),
            (
                ("return torch.softmax(inside, dim=-1)", "found = torch.softmax(inside, dim=-1)"),
                (_GAUSS, _GAUSS + "\n    return found / found.sum()"),
            ),
        ),
        Wrong(
            "attentional",
            "exchanged",
            Said(
                "Context and state are exchanged: [c; h], the context first.",
                "上下文与状态的次序反了：[c; h]，上下文在前。",
            ),
            (("(context, state)", "(state, context)"),),
        ),
        Wrong(
            "attentional",
            "no-tanh",
            Said("The tanh is missing.", "缺少 tanh。"),
            (("torch.tanh(w @ torch.cat((context, state)))", "w @ torch.cat((context, state))"),),
        ),
        Wrong(
            "attentional",
            "added",
            Said("Context and state are added; they must be concatenated.", "上下文与状态被相加了；应当拼接。"),
            (("w @ torch.cat((context, state))", "w[:, : len(state)] @ (context + state)"),),
        ),
    ),
)
