"""Exercise: label smoothing and the learning rate's warm-up."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.train.objectives import label_smoothed
from regard.train.step import Schedule, paper

from ..exercise import Check, Exercise, Said, Source, Text, Wrong, doc, drawn


def smoothed_loss(logits: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """The summed loss of logits (N, V) at targets (N,), `smoothing` of each spread over V; below 0 is padding."""
    log_probabilities = torch.log_softmax(logits, dim=-1)
    right = log_probabilities.gather(-1, targets.clamp(min=0)[:, None])[:, 0]
    losses = -(1 - smoothing) * right - smoothing * log_probabilities.mean(-1)
    return losses[targets >= 0].sum()


def learning_rate(update: int, width: int, warmup: int) -> float:
    """The learning rate at an update, counted from 1, of a model of this width: a warm-up, then a decay."""
    return float(width**-0.5 * min(update**-0.5, update * warmup**-1.5))


_ONE = {"logits": torch.tensor([[2.0, 0.0, -1.0]]), "targets": torch.tensor([0])}
_MORE = {"logits": drawn(4, 5) * 2, "targets": torch.tensor([3, 0, 4, 1])}
_RATE = "width**-0.5 * min(update**-0.5, update * warmup**-1.5)"


def _schedule(update: int, width: int, warmup: int) -> float:
    return paper(Schedule(peak=1.0, warmup=warmup, total=100_000, width=width), update)


EXERCISE = Exercise(
    number=11,
    name="teaching",
    lectures=("smoothing", "warm-up"),
    sources=(Source(4, "正则化技术"), Source(4, "优化器与学习率调度")),
    texts={
        "en": Text(
            "Label smoothing and the warm-up",
            """
Label smoothing keeps a model from being too sure: of each target's probability a share ε is spread evenly over the V
words of the vocabulary, the right one included. The loss of one word, with log p from a log-softmax:

    loss = -(1 - ε) log p(right) - ε · (1 / V) Σ_v log p(v)

The learning rate of the Transformer rises for `warmup` updates and then falls with the root of their number n:

    rate(n) = d_model^(-0.5) · min(n^(-0.5), n · warmup^(-1.5))
""",
            {"smoothed_loss": doc(smoothed_loss), "learning_rate": doc(learning_rate)},
        ),
        "zh": Text(
            "标签平滑与预热",
            """
标签平滑使模型不至于过度自信：每个目标的概率中有 ε 的份额平均分散到词表的 V 个词上（正确的词也分到一份）。
一个词的损失如下，log p 由 log-softmax 得到：

    loss = -(1 - ε) log p(正确) - ε · (1 / V) Σ_v log p(v)

Transformer 的学习率先用 warmup 次更新上升（预热），然后随更新次数 n 的平方根下降：

    rate(n) = d_model^(-0.5) · min(n^(-0.5), n · warmup^(-1.5))
""",
            {
                "smoothed_loss": "logits (N, V) 对目标 (N,) 的损失之和，smoothing 分散到 V 个词；小于 0 的目标是填充。",
                "learning_rate": "宽度为 width 的模型在某次更新（从 1 数起）的学习率：先预热，再下降。",
            },
        ),
    },
    answers=(smoothed_loss, learning_rate),
    reference={"smoothed_loss": label_smoothed, "learning_rate": _schedule},
    checks=(
        Check(
            "smoothed_loss",
            4,
            Said("the loss with label smoothing", "带标签平滑的损失"),
            ({**_ONE, "smoothing": 0.1}, {**_MORE, "smoothing": 0.0}, {**_MORE, "smoothing": 0.3}),
        ),
        Check(
            "smoothed_loss",
            2,
            Said("padding does not count", "填充不计入损失"),
            (
                {"logits": drawn(2, 3), "targets": torch.tensor([1, -1]), "smoothing": 0.1},
                {**_MORE, "targets": torch.tensor([-1, 2, -1, -1]), "smoothing": 0.2},
            ),
        ),
        Check(
            "learning_rate",
            4,
            Said("the learning rate", "学习率"),
            (
                *({"update": n, "width": 512, "warmup": 4000} for n in (1, 100, 4000, 16000)),
                {"update": 9, "width": 16, "warmup": 4},
            ),
        ),
    ),
    wrong=(
        Wrong(
            "smoothed_loss",
            "no-smoothing",
            Said(
                "Your loss is the plain cross-entropy: the smoothing is missing.", "你的损失是普通的交叉熵：缺少平滑。"
            ),
            (("-(1 - smoothing) * right - smoothing * log_probabilities.mean(-1)", "-right"),),
        ),
        Wrong(
            "smoothed_loss",
            "shares-exchanged",
            Said(
                "The shares are exchanged: the right word gets 1 - ε, all words together ε.",
                "份额弄反了：正确的词得 1 - ε，所有词合得 ε。",
            ),
            (("-(1 - smoothing) * right - smoothing *", "-smoothing * right - (1 - smoothing) *"),),
        ),
        Wrong(
            "smoothed_loss",
            "others-only",
            Said(
                "ε is spread over the V - 1 other words; here it is spread over all V, the right one included.",
                "你把 ε 分给了其余 V - 1 个词；这里分给全部 V 个词，包括正确的词。",
            ),
            (("log_probabilities.mean(-1)", "(log_probabilities.sum(-1) - right) / (logits.shape[-1] - 1)"),),
        ),
        Wrong(
            "smoothed_loss",
            "summed-vocabulary",
            Said(
                "ε is not divided among the V words: take the mean of log p, not the sum.",
                "ε 没有平分给 V 个词：应取 log p 的平均，而不是总和。",
            ),
            (("log_probabilities.mean(-1)", "log_probabilities.sum(-1)"),),
        ),
        Wrong(
            "smoothed_loss",
            "padding-counts",
            Said(
                "Padding counts: targets below 0 must add nothing to the loss.",
                "填充也计入了：小于 0 的目标不应增加损失。",
            ),
            (("losses[targets >= 0].sum()", "losses.sum()"),),
        ),
        Wrong(
            "smoothed_loss",
            "mean",
            Said("Your loss is the mean over the words; wanted is the sum.", "你的损失是各词的平均；应为总和。"),
            (("losses[targets >= 0].sum()", "losses[targets >= 0].mean()"),),
        ),
        Wrong(
            "smoothed_loss",
            "sign",
            Said("The sign is wrong: a loss is the negative log-probability.", "符号反了：损失是负的对数概率。"),
            (("losses[targets >= 0].sum()", "-losses[targets >= 0].sum()"),),
        ),
        Wrong(
            "smoothed_loss",
            "no-log-softmax",
            Said(
                "The logits are used as if they were log-probabilities: the log-softmax is missing.",
                "把 logits 当成了对数概率：缺少 log-softmax。",
            ),
            (("torch.log_softmax(logits, dim=-1)", "logits"),),
        ),
        Wrong(
            "learning_rate",
            "max",
            Said("It is the smaller of the two that counts (min, not max).", "应取两者中较小的（min，而不是 max）。"),
            ((_RATE, _RATE.replace("min", "max")),),
        ),
        Wrong(
            "learning_rate",
            "no-warm-up",
            Said(
                "The warm-up is missing: your rate falls from the first update on.",
                "缺少预热：你的学习率从第一次更新起就在下降。",
            ),
            ((_RATE, "width**-0.5 * update**-0.5"),),
        ),
        Wrong(
            "learning_rate",
            "no-decay",
            Said("The decay is missing: your rate rises for ever.", "缺少下降：你的学习率一直上升。"),
            ((_RATE, "width**-0.5 * update * warmup**-1.5"),),
        ),
        Wrong(
            "learning_rate",
            "no-width",
            Said("The factor d_model^(-0.5) is missing.", "缺少因子 d_model^(-0.5)。"),
            ((_RATE, "min(update**-0.5, update * warmup**-1.5)"),),
        ),
        Wrong(
            "learning_rate",
            "width-up",
            Said(
                "The root of the width multiplies; it must divide (d_model^(-0.5)).",
                "宽度的平方根被乘上了；应当除以它（d_model^(-0.5)）。",
            ),
            (("width**-0.5", "width**0.5"),),
        ),
        Wrong(
            "learning_rate",
            "warm-up-exponent",
            Said("The exponent of warmup is -1.5, not -0.5.", "warmup 的指数是 -1.5，不是 -0.5。"),
            (("warmup**-1.5", "warmup**-0.5"),),
        ),
        Wrong(
            "learning_rate",
            "linear-decay",
            Said(
                "After the warm-up the rate falls with the root of the number of updates, not with the number itself.",
                "预热之后学习率随更新次数的平方根下降，而不是随次数本身。",
            ),
            (("update**-0.5,", "update**-1.0,"),),
        ),
    ),
)
