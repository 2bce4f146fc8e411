"""Exercise: the cell of an LSTM."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.nn.layers import only_references
from regard.nn.recurrent import LSTM, lstm_cell

from ..exercise import Check, Exercise, Said, Source, Text, Wrong, doc, drawn


def step(x: Tensor, hidden: Tensor, cell: Tensor, w: Tensor, u: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The next hidden state and cell, (D,) each, of an input x (I,); w (4 D, I), u (4 D, D), b (4 D,): i, f, g, o."""
    i, f, g, o = (w @ x + u @ hidden + b).chunk(4)
    cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(cell), cell


def read(xs: Tensor, w: Tensor, u: Tensor, b: Tensor) -> Tensor:
    """The hidden states (T, D) after each of the inputs (T, I), from zeros on."""
    hidden = cell = xs.new_zeros(u.shape[1])
    found = []
    for x in xs:
        hidden, cell = step(x, hidden, cell, w, u, b)
        found.append(hidden)
    return torch.stack(found)


def _step(x: Tensor, hidden: Tensor, cell: Tensor, w: Tensor, u: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    with only_references():
        found, after = lstm_cell((w @ x + u @ hidden + b)[None], cell[None])
    return found[0], after[0]


def _read(xs: Tensor, w: Tensor, u: Tensor, b: Tensor) -> Tensor:
    layer = LSTM(xs.shape[1], u.shape[1])
    with torch.no_grad(), only_references():
        layer.input.weight.copy_(w)
        layer.input.bias.copy_(b)
        layer.hidden.weight.copy_(u)
        return layer(xs[:, None])[0][:, 0]  # type: ignore[no-any-return]  # a module's call says nothing


_ONE = {"w": torch.tensor([[1.0], [-1.0], [0.5], [2.0]]), "u": torch.tensor([[0.5], [1.0], [-1.0], [0.2]])}
_ONE["b"] = torch.tensor([0.1, 0.2, 0.3, 0.4])
_FOUR = {"w": drawn(12, 2), "u": drawn(12, 3), "b": drawn(12)}
_CELL = "torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)"
_OUT = "torch.sigmoid(o) * torch.tanh(cell), cell"

EXERCISE = Exercise(
    number=8,
    name="lstm",
    lectures=("recurrent-cells",),
    sources=(Source(1, "解决办法回顾"), Source(4, "传统序列建模方法")),
    texts={
        "en": Text(
            "The cell of an LSTM",
            """
Before attention, a recurrence carried everything that was read in two vectors, the hidden state h and the cell c:

    i, f, g, o = W x + U h + b           four parts of D numbers, in this order
    c' = σ(f) ⊙ c + σ(i) ⊙ tanh(g)       forget gate, input gate, candidate
    h' = σ(o) ⊙ tanh(c')                 output gate

σ is the sigmoid and ⊙ the product feature by feature. `read` goes through a sequence and hands both vectors on.
""",
            {"step": doc(step), "read": doc(read)},
        ),
        "zh": Text(
            "LSTM 单元",
            """
在注意力之前，循环网络用两个向量记住读过的一切：隐状态 h 与单元 c：

    i, f, g, o = W x + U h + b           四段，各 D 个数，按此次序
    c' = σ(f) ⊙ c + σ(i) ⊙ tanh(g)       遗忘门、输入门、候选值
    h' = σ(o) ⊙ tanh(c')                 输出门

σ 是 sigmoid，⊙ 是逐个特征相乘。`read` 依次读完一个序列，把两个向量都传下去。
""",
            {
                "step": "读入 x (I,) 之后的隐状态与单元，各 (D,)；w (4 D, I)，u (4 D, D)，b (4 D,)，次序 i, f, g, o。",
                "read": "从零开始，依次读入 (T, I) 之后各步的隐状态 (T, D)。",
            },
        ),
    },
    answers=(step, read),
    reference={"step": _step, "read": _read},
    checks=(
        Check(
            "step",
            7,
            Said("one step", "一步"),
            (
                {"x": torch.tensor([1.0]), "hidden": torch.tensor([0.5]), "cell": torch.tensor([2.0]), **_ONE},
                {"x": drawn(2), "hidden": drawn(3), "cell": drawn(3, seed=1) * 2, **_FOUR},
            ),
        ),
        Check(
            "read",
            3,
            Said("a sequence", "一个序列"),
            ({"xs": torch.tensor([[1.0], [-1.0]]), **_ONE}, {"xs": drawn(4, 2), **_FOUR}),
        ),
    ),
    wrong=(
        Wrong(
            "step",
            "forget-input",
            Said(
                "Input gate and forget gate are exchanged: the parts come in the order i, f, g, o.",
                "输入门与遗忘门弄反了：四段的次序是 i, f, g, o。",
            ),
            (("i, f, g, o =", "f, i, g, o ="),),
        ),
        Wrong(
            "step",
            "output-candidate",
            Said(
                "Output gate and candidate are exchanged: the parts come in the order i, f, g, o, not i, f, o, g.",
                "输出门与候选值弄反了：四段的次序是 i, f, g, o，而不是 i, f, o, g。",
            ),
            (("i, f, g, o =", "i, f, o, g ="),),
        ),
        Wrong(
            "step",
            "no-tanh",
            Said(
                "The tanh of the new cell is missing: h' = σ(o) ⊙ tanh(c').",
                "缺少新单元的 tanh：h' = σ(o) ⊙ tanh(c')。",
            ),
            ((_OUT, "torch.sigmoid(o) * cell, cell"),),
        ),
        Wrong(
            "step",
            "candidate-sigmoid",
            Said(
                "The candidate passes a sigmoid; it must pass tanh, so that a cell can fall too.",
                "候选值经过了 sigmoid；应经过 tanh，单元才可以变小。",
            ),
            ((_CELL, _CELL.replace("torch.tanh(g)", "torch.sigmoid(g)")),),
        ),
        Wrong(
            "step",
            "old-cell",
            Said(
                "The hidden state is made of the old cell; it must be made of the new one, c'.",
                "隐状态用了旧的单元；应当用新的单元 c'。",
            ),
            (
                ("    cell = torch.sigmoid(f)", "    new = torch.sigmoid(f)"),
                (_OUT, "torch.sigmoid(o) * torch.tanh(cell), new"),
            ),
        ),
        Wrong(
            "step",
            "no-recurrence",
            Said("The hidden state before is not used: U h is missing.", "没有用到之前的隐状态：缺少 U h。"),
            ((" + u @ hidden", ""),),
        ),
        Wrong("step", "no-bias", Said("The bias b is missing.", "缺少偏置 b。"), ((" + b)", ")"),)),
        Wrong(
            "step",
            "no-forget",
            Said("The old cell is kept whole: the forget gate is missing.", "旧的单元被完整保留：缺少遗忘门。"),
            ((_CELL, "cell + torch.sigmoid(i) * torch.tanh(g)"),),
        ),
        Wrong(
            "step",
            "exchanged",
            Said(
                "The results are exchanged: return the hidden state first, then the cell.",
                "返回值的次序反了：先返回隐状态，再返回单元。",
            ),
            ((_OUT, "cell, torch.sigmoid(o) * torch.tanh(cell)"),),
        ),
        Wrong(
            "read",
            "not-carried",
            Said(
                "Each step begins with zeros: the hidden state is not handed on.",
                "每一步都从零开始：隐状态没有传下去。",
            ),
            (
                (
                    "hidden, cell = step(x, hidden, cell, w, u, b)\n        found.append(hidden)",
                    "found.append(step(x, hidden, cell, w, u, b)[0])",
                ),
            ),
        ),
        Wrong(
            "read",
            "cell-not-carried",
            Said("The cell is not handed on from step to step.", "单元没有从一步传到下一步。"),
            (("hidden, cell = step(x, hidden, cell, w, u, b)", "hidden, _ = step(x, hidden, cell, w, u, b)"),),
        ),
        Wrong(
            "read",
            "last-only",
            Said(
                "Only the last hidden state is returned; wanted are those of all positions.",
                "只返回了最后一个隐状态；应返回所有位置的。",
            ),
            (("return torch.stack(found)", "return hidden"),),
        ),
        Wrong(
            "read",
            "backwards",
            Said("The sequence is read from its end.", "序列是从末尾读起的。"),
            (("for x in xs:", "for x in xs.flip(0):"),),
        ),
    ),
)
