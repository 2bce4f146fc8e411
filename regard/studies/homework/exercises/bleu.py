"""Exercise: BLEU, as the lecture defines it."""

from __future__ import annotations

import math
from collections import Counter

from regard.studies.lectures import measures

from ..exercise import Check, Exercise, Said, Source, Text, Wrong, doc


def grams(words: list[str], n: int) -> Counter[tuple[str, ...]]:
    """How often each n-gram occurs."""
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def precision(candidate: list[str], references: list[list[str]], n: int) -> float:
    """The share of the candidate's n-grams that count, each at most as often as one reference has it; 0 without any."""
    found, held = grams(candidate, n), [grams(reference, n) for reference in references]
    right = sum(min(count, max(each[gram] for each in held)) for gram, count in found.items())
    return right / max(1, sum(found.values()))


def brevity(candidate: list[str], references: list[list[str]]) -> float:
    """The brevity penalty: 1 for a candidate longer than the shortest reference, else exp(1 - l_s / l_x)."""
    shortest = min(len(reference) for reference in references)
    return 1.0 if len(candidate) > shortest else math.exp(1 - shortest / len(candidate))


def bleu(candidate: list[str], references: list[list[str]], longest: int) -> float:
    """BLEU of n-grams of 1 to `longest` words, all with the weight 1 / longest, from 0 to 1; 0 if a precision is 0."""
    shares = [precision(candidate, references, n) for n in range(1, longest + 1)]
    if min(shares) == 0:
        return 0.0
    mean = math.exp(sum(math.log(share) for share in shares) / longest)
    return brevity(candidate, references) * mean


def _precision(candidate: list[str], references: list[list[str]], n: int) -> float:
    right, total = measures.precision(candidate, references, n)
    return right / max(1, total)


def _brevity(candidate: list[str], references: list[list[str]]) -> float:
    """The library's penalty: what BLEU-1 loses where all words are right."""
    words = [[str(i) for i in range(len(reference))] for reference in references]
    guess = [str(i) for i in range(len(candidate))]
    longest = max(len(guess), *map(len, words))
    return measures.lecture_bleu(guess, [*words, [str(i) for i in range(longest)]], 1)


_LECTURE = {"candidate": list("ABBCD"), "references": [list("ABCDEF")]}
_TWICE = {"candidate": list("AAA"), "references": [list("AB")]}
_TWO = {"candidate": list("AABCA"), "references": [list("AABD"), list("ABCACDE")]}
_SHORT = {"candidate": list("ABC"), "references": [list("ABCDE")]}
_LONG = {"candidate": list("ABCDEF"), "references": [list("ABCD"), list("ABCDEFG")]}
_GRAMS = "min(count, max(each[gram] for each in held))"

EXERCISE = Exercise(
    number=13,
    name="bleu",
    lectures=("bleu",),
    sources=(Source(5, "BLEU"),),
    texts={
        "en": Text(
            "BLEU",
            """
BLEU compares n-grams of a candidate x with those of references s^(1), …, s^(K):

    P_n  = Σ_w min(c_w(x), max_k c_w(s^(k))) / Σ_w c_w(x)
    b    = 1 if l_x > l_s, else exp(1 - l_s / l_x)         l_s: length of the shortest reference
    BLEU = b · exp(Σ_n 1/N · log P_n)

The min clips a count: a word that is repeated counts no more often than one reference has it. In the lecture's example,
ABBCD beside ABCDEF, p_1 = 4/5, p_2 = 3/4, p_3 = 1/3 and p_4 = 0. Write it in plain Python; `grams` is given.
""",
            {"grams": doc(grams), "precision": doc(precision), "brevity": doc(brevity), "bleu": doc(bleu)},
        ),
        "zh": Text(
            "BLEU",
            """
BLEU 把候选 x 的 N 元组合与参考 s^(1), …, s^(K) 的比较：

    P_n  = Σ_w min(c_w(x), max_k c_w(s^(k))) / Σ_w c_w(x)
    b    = 1（若 l_x > l_s），否则 exp(1 - l_s / l_x)       l_s：最短参考的长度
    BLEU = b · exp(Σ_n 1/N · log P_n)

min 起截断作用：重复的词，计入的次数不超过某一参考中出现的次数。讲义的例子是 ABBCD 与 ABCDEF：
p_1 = 4/5，p_2 = 3/4，p_3 = 1/3，p_4 = 0。请用纯 Python 写；`grams` 已给出。
""",
            {
                "grams": "每个 n 元组合出现的次数。",
                "precision": "候选的 n 元组合中算对的比例，每个最多计入某一参考中出现的次数；一个组合都没有时为 0。",
                "brevity": "简短惩罚：候选比最短的参考长时为 1，否则为 exp(1 - l_s / l_x)。",
                "bleu": "1 到 longest 元组合的 BLEU，权重都是 1 / longest，从 0 到 1；有一个精度为 0 时为 0。",
            },
        ),
    },
    answers=(precision, brevity, bleu),
    given=(grams,),
    imports="import math\nfrom collections import Counter\n",
    reference={
        "precision": _precision,
        "brevity": _brevity,
        "bleu": lambda candidate, references, longest: measures.lecture_bleu(candidate, references, longest),
    },
    checks=(
        Check(
            "precision",
            4,
            Said("precision of n-grams", "N 元组合的精度"),
            (
                {**_TWICE, "n": 1},
                {"candidate": list("AAX"), "references": [list("AB")], "n": 1},
                *({**_LECTURE, "n": n} for n in (1, 2, 3, 4)),
                *({**_TWO, "n": n} for n in (1, 2)),
                {**_SHORT, "n": 2},
                {**_TWICE, "n": 4},
            ),
        ),
        Check(
            "brevity",
            3,
            Said("the brevity penalty", "简短惩罚"),
            (
                _SHORT,
                {"candidate": list("AB"), "references": [list("ABC"), list("ABCDEFGH")]},
                {"candidate": list("ABCD"), "references": [list("ABCD")]},
                _LONG,
            ),
        ),
        Check(
            "bleu",
            3,
            Said("BLEU", "BLEU"),
            (
                {**_SHORT, "longest": 2},
                {**_LECTURE, "longest": 3},
                {**_LECTURE, "longest": 4},
                {**_TWO, "longest": 2},
                {**_LONG, "longest": 4},
            ),
        ),
    ),
    wrong=(
        Wrong(
            "precision",
            "not-clipped",
            Said(
                "The counts are not clipped: a repeated word counts each time, though the reference has it once.",
                "计数没有截断：参考中只有一次的词，重复几次就算对了几次。",
            ),
            ((_GRAMS, "count * any(gram in each for each in held)"),),
        ),
        Wrong(
            "precision",
            "each-once",
            Said(
                "Each different n-gram counts once; a count is clipped at what a reference has, not at 1.",
                "每个不同的组合只计了一次；计数应截断为参考中的次数，而不是 1。",
            ),
            ((_GRAMS, "min(1, max(each[gram] for each in held))"), ("sum(found.values())", "len(found)")),
        ),
        Wrong(
            "precision",
            "recall",
            Said(
                "You divide by the n-grams of the reference: that is recall. Divide by the candidate's.",
                "你除以了参考的组合数：那是召回率。应除以候选的组合数。",
            ),
            (("sum(found.values())", "sum(held[0].values())"),),
        ),
        Wrong(
            "precision",
            "references-summed",
            Said(
                "Counts of several references are added; the largest of them counts.",
                "多个参考的次数被相加了；应取其中最大的。",
            ),
            ((_GRAMS, "min(count, sum(each[gram] for each in held))"),),
        ),
        Wrong(
            "precision",
            "all-references",
            Said(
                "An n-gram counts only if all references have it; one is enough (max, not min).",
                "只有所有参考都有的组合才算；有一个参考有就够了（max，而不是 min）。",
            ),
            ((_GRAMS, "min(count, min(each[gram] for each in held))"),),
        ),
        Wrong(
            "brevity",
            "missing",
            Said("There is no penalty: short candidates must be punished.", "没有惩罚：过短的候选应当受罚。"),
            (("1.0 if len(candidate) > shortest else math.exp(1 - shortest / len(candidate))", "1.0"),),
        ),
        Wrong(
            "brevity",
            "ratio",
            Said(
                "The ratio is the wrong way round: it is l_s / l_x, reference over candidate.",
                "比值反了：应是 l_s / l_x，参考比候选。",
            ),
            (("shortest / len(candidate)", "len(candidate) / shortest"),),
        ),
        Wrong(
            "brevity",
            "long-punished",
            Said(
                "You punish candidates that are too long; those that are too short must be punished.",
                "你惩罚了过长的候选；应惩罚过短的。",
            ),
            (("1.0 if len(candidate) > shortest else", "1.0 if len(candidate) <= shortest else"),),
        ),
        Wrong(
            "brevity",
            "longest",
            Said(
                "You compare with the longest reference; the lecture takes the shortest.",
                "你与最长的参考比较；讲义取最短的。",
            ),
            (("min(len(reference)", "max(len(reference)"),),
        ),
        Wrong(
            "brevity",
            "no-exponential",
            Said(
                "The penalty is the bare ratio of the lengths; it is exp(1 - l_s / l_x).",
                "你的惩罚只是长度之比；应为 exp(1 - l_s / l_x)。",
            ),
            (("math.exp(1 - shortest / len(candidate))", "len(candidate) / shortest"),),
        ),
        Wrong(
            "bleu",
            "no-brevity",
            Said("The brevity penalty is missing.", "缺少简短惩罚。"),
            (("return brevity(candidate, references) * mean", "return mean"),),
        ),
        Wrong(
            "bleu",
            "arithmetic",
            Said(
                "You take the arithmetic mean of the precisions; BLEU takes the geometric one.",
                "你取了精度的算术平均；BLEU 取几何平均。",
            ),
            (("math.exp(sum(math.log(share) for share in shares) / longest)", "sum(shares) / longest"),),
        ),
        Wrong(
            "bleu",
            "no-root",
            Said("The precisions are only multiplied: the weight 1 / N is missing.", "精度只是相乘：缺少权重 1 / N。"),
            (("for share in shares) / longest)", "for share in shares))"),),
        ),
        Wrong(
            "bleu",
            "longest-only",
            Said("Only the longest n-grams count; all from 1 to N do.", "只计了最长的组合；应计 1 到 N 的全部。"),
            (("math.exp(sum(math.log(share) for share in shares) / longest)", "shares[-1]"),),
        ),
        Wrong(
            "bleu",
            "zeros-left-out",
            Said("Precisions of 0 are left out; BLEU is then 0.", "精度为 0 的项被略去了；此时 BLEU 应为 0。"),
            (
                ("    if min(shares) == 0:\n        return 0.0\n", ""),
                ("for share in shares) / longest)", "for share in shares if share) / longest)"),
            ),
        ),
    ),
)
