"""Exercise: beam search with length normalisation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.search.beam import beam_search as library
from regard.search.hypotheses import Problem
from regard.search.table import penalty_of

from ..exercise import Check, Exercise, Said, Source, Text, Wrong, doc

Model = dict[str, dict[str, float]]


def score(log_probability: float, length: int, alpha: float) -> float:
    """What a hypothesis of so many tokens, the end counted, is ranked by: log-probability / length^alpha."""
    return float(log_probability / length**alpha)


def beam_search(model: dict[str, dict[str, float]], width: int, most: int, alpha: float) -> list[str]:
    """The best hypothesis, "</s>" included where it ends with it; `model[last token][next token]` is a probability.

    The first last token is "<s>". Each step takes every open hypothesis on by every token; of these candidates, by
    log-probability, those among the best `width` that end with "</s>" are finished, and the best `width` of the others
    stay open. After `most` tokens the open ones are finished as they are. The finished one with the best score wins.
    """
    opened: list[tuple[float, list[str]]] = [(0.0, [])]
    finished: list[tuple[float, list[str]]] = []
    for _ in range(most):
        candidates = []
        for total, tokens in opened:
            for token, probability in model[tokens[-1] if tokens else "<s>"].items():
                if probability > 0:
                    candidates.append((total + math.log(probability), [*tokens, token]))
        candidates.sort(key=lambda candidate: -candidate[0])
        finished += [each for each in candidates[:width] if each[1][-1] == "</s>"]
        opened = [each for each in candidates if each[1][-1] != "</s>"][:width]
    finished += opened
    return max(finished, key=lambda each: score(each[0], len(each[1]), alpha))[1]


@dataclass(frozen=True)
class _Nothing:
    """The state of a model that knows the last token alone."""

    def select(self, rows: object) -> _Nothing:
        return self


def _library(model: Model, width: int, most: int, alpha: float) -> list[str]:
    words = ["<s>", "</s>", *sorted({t for row in model.values() for t in row} - {"</s>"})]
    rows = [[model.get(last, {}).get(token, 0.0) for token in words] for last in words]
    table = torch.tensor(rows, dtype=torch.float64).log()

    def step(tokens: Tensor, state: _Nothing) -> tuple[Tensor, _Nothing]:
        return table[tokens], state

    first, limits = torch.tensor([0]), torch.tensor([most])
    problem = Problem(step, _Nothing(), first, limits, end=1, penalty=penalty_of("power", alpha))
    (found,) = library(problem, width=width, stop="full")[0][:1]
    return [words[i] for i in found.ids] + ["</s>"] * found.ended


_SHORT: Model = {
    "<s>": {"A": 0.6, "B": 0.4},
    "A": {"A": 0.4, "B": 0.3, "</s>": 0.3},
    "B": {"A": 0.05, "B": 0.05, "</s>": 0.9},
}
_LONG: Model = {
    "<s>": {"A": 0.5, "</s>": 0.5},
    "A": {"B": 0.9, "</s>": 0.1},
    "B": {"C": 0.9, "</s>": 0.1},
    "C": {"A": 0.05, "</s>": 0.95},
}
_MIXED: Model = {
    "<s>": {"A": 0.84, "</s>": 0.16},
    "A": {"A": 0.05, "B": 0.52, "</s>": 0.43},
    "B": {"A": 0.81, "B": 0.01, "</s>": 0.18},
}
_WIDE: Model = {
    "<s>": {"A": 0.45, "B": 0.35, "C": 0.2},
    "A": {"A": 0.35, "B": 0.3, "C": 0.3, "</s>": 0.05},
    "B": {"A": 0.4, "B": 0.25, "C": 0.15, "</s>": 0.2},
    "C": {"A": 0.01, "B": 0.02, "C": 0.02, "</s>": 0.95},
}

EXERCISE = Exercise(
    number=12,
    name="beam",
    lectures=("greedy", "beams", "length"),
    sources=(Source(5, "贪婪搜索"), Source(5, "束搜索")),
    texts={
        "en": Text(
            "Beam search with length normalisation",
            """
Greedy search takes the likeliest token at each step and may miss the likeliest sequence. A beam keeps the best k. Since
each further token makes a sequence less probable, hypotheses of different lengths L are ranked by

    score = 1 / L^α · log P(y_1, …, y_L)       often α = 0.75

Here a model is a dictionary of dictionaries, in plain Python: model["A"]["B"] is the probability of B after A.
""",
            {"score": doc(score), "beam_search": doc(beam_search)},
        ),
        "zh": Text(
            "带长度归一化的束搜索",
            """
贪心搜索每一步取最可能的词元，可能错过最可能的序列。束搜索保留最好的 k 个假设。
每多一个词元，序列的概率就更小，所以长度 L 不同的假设按下面的分数排序：

    score = 1 / L^α · log P(y_1, …, y_L)       常取 α = 0.75

这里的模型是字典的字典，纯 Python：model["A"]["B"] 是 A 之后出现 B 的概率。
""",
            {
                "score": "给假设排序的分数：对数概率 / length^alpha，长度 length 把结束符也算在内。",
                "beam_search": """最好的假设（若以 "</s>" 结束则包括它）；`model[上一个词元][下一个词元]` 是概率。

最初的“上一个词元”是 "<s>"。每一步把每个未结束的假设接上每个词元，得到候选；按对数概率，
最好的 `width` 个候选中以 "</s>" 结束的算完成，其余未结束的候选中最好的 `width` 个继续。
到 `most` 个词元时，未结束的也按原样算完成。完成的假设中分数最高的就是结果。
""",
            },
        ),
    },
    answers=(score, beam_search),
    reference={
        "score": lambda log_probability, length, alpha: log_probability / penalty_of("power", alpha)(length),
        "beam_search": _library,
    },
    imports="import math\n",
    checks=(
        Check(
            "score",
            3,
            Said("the score", "分数"),
            (
                {"log_probability": -2.0, "length": 4, "alpha": 1.0},
                {"log_probability": -3.0, "length": 5, "alpha": 0.75},
                {"log_probability": -3.0, "length": 5, "alpha": 0.0},
            ),
        ),
        Check(
            "beam_search",
            4,
            Said("what greedy search misses", "贪心搜索错过的"),
            (
                {"model": _SHORT, "width": 1, "most": 2, "alpha": 0.0},
                {"model": _SHORT, "width": 2, "most": 3, "alpha": 0.0},
                {"model": _WIDE, "width": 3, "most": 5, "alpha": 0.0},
            ),
        ),
        Check(
            "beam_search",
            3,
            Said("long hypotheses by length normalisation", "按长度归一化的长假设"),
            (
                {"model": _MIXED, "width": 2, "most": 4, "alpha": 0.0},
                {"model": _MIXED, "width": 2, "most": 4, "alpha": 1.0},
                {"model": _LONG, "width": 2, "most": 5, "alpha": 0.0},
                {"model": _LONG, "width": 2, "most": 5, "alpha": 1.0},
                {"model": _WIDE, "width": 2, "most": 6, "alpha": 0.75},
            ),
        ),
    ),
    wrong=(
        Wrong(
            "score",
            "wrong-way",
            Said(
                "The length penalty is the wrong way round: you multiply with L^α. Log-probabilities are negative, so "
                "long hypotheses get even worse.",
                "长度惩罚方向反了：你乘以了 L^α。对数概率是负数，长的假设反而更差。",
            ),
            (("log_probability / length**alpha", "log_probability * length**alpha"),),
        ),
        Wrong(
            "score",
            "no-penalty",
            Said("The length is not used: there is no normalisation.", "没有用到长度：没有归一化。"),
            (("log_probability / length**alpha", "log_probability"),),
        ),
        Wrong(
            "score",
            "no-alpha",
            Said("α is not used: you divide by L, not by L^α.", "没有用到 α：你除以了 L，而不是 L^α。"),
            (("log_probability / length**alpha", "log_probability / length"),),
        ),
        Wrong(
            "score",
            "alpha-factor",
            Said("You divide by α L; α is the exponent.", "你除以了 α L；α 应当是指数。"),
            (("length**alpha", "(length * alpha or 1)"),),
        ),
        Wrong(
            "score",
            "gnmt",
            Said(
                "That is the penalty of Wu et al., ((5 + L) / 6)^α; the lecture divides by L^α.",
                "这是 Wu 等人的惩罚 ((5 + L) / 6)^α；讲义除以的是 L^α。",
            ),
            (("length**alpha", "((5 + length) / 6) ** alpha"),),
        ),
        Wrong(
            "beam_search",
            "greedy",
            Said(
                "Your search is greedy: only one hypothesis stays open, whatever the width.",
                "你的搜索是贪心的：无论宽度多大，只保留一个假设。",
            ),
            (("candidates[:width]", "candidates[:1]"), ('!= "</s>"][:width]', '!= "</s>"][:1]')),
        ),
        Wrong(
            "beam_search",
            "no-normalisation",
            Said(
                "The result is chosen by the bare log-probability: α has no effect.",
                "结果是按未归一化的对数概率选出的：α 不起作用。",
            ),
            (("score(each[0], len(each[1]), alpha)", "each[0]"),),
        ),
        Wrong(
            "beam_search",
            "wrong-way",
            Said(
                "The length penalty is the wrong way round: short hypotheses win ever more.",
                "长度惩罚方向反了：短的假设更占便宜。",
            ),
            (("score(each[0], len(each[1]), alpha)", "each[0] * len(each[1]) ** alpha"),),
        ),
        Wrong(
            "beam_search",
            "first-finished",
            Said(
                "The search stops at the first hypothesis that ends; a later one may have a better score.",
                "遇到第一个结束的假设就停止了；后面的假设可能分数更高。",
            ),
            (
                (
                    "[:width]\n    finished += opened",
                    "[:width]\n        if finished:\n            break\n    finished = finished or opened",
                ),
            ),
        ),
        Wrong(
            "beam_search",
            "worst",
            Said(
                "The candidates are sorted the wrong way: you keep the least likely.",
                "候选的排序反了：你保留了最不可能的。",
            ),
            (("key=lambda candidate: -candidate[0]", "key=lambda candidate: candidate[0]"),),
        ),
        Wrong(
            "beam_search",
            "no-end",
            Said(
                '"</s>" belongs to the result where the hypothesis ends with it.',
                '假设以 "</s>" 结束时，结果应包含它。',
            ),
            (
                ("    return max(finished", "    found = max(finished"),
                ("alpha))[1]", 'alpha))[1]\n    return [token for token in found if token != "</s>"]'),
            ),
        ),
        Wrong(
            "beam_search",
            "never-ends",
            Said(
                'Hypotheses that end are dropped: your result never ends with "</s>".',
                '结束的假设被丢掉了：你的结果从不以 "</s>" 结束。',
            ),
            (("    finished += opened\n", "    finished = opened\n"),),
        ),
    ),
)
