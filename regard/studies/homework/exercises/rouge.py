"""Exercise: ROUGE-N, as the lecture defines it and as it is reported."""

from __future__ import annotations

from collections import Counter

from regard.studies.lectures import measures

from ..exercise import Case, Check, Exercise, Law, Said, Source, Text, Wrong, doc


def grams(words: list[str], n: int) -> Counter[tuple[str, ...]]:
    """How often each n-gram occurs."""
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def rouge(candidate: list[str], references: list[list[str]], n: int) -> float:
    """The share of the references' n-grams that the candidate has, all references together: recall; 0 without any."""
    found, held = grams(candidate, n), [grams(reference, n) for reference in references]
    right = sum(min(found[gram], count) for each in held for gram, count in each.items())
    return right / max(1, sum(sum(each.values()) for each in held))


def rouge_f1(candidate: list[str], reference: list[str], n: int) -> float:
    """The harmonic mean of precision and recall of n-grams; 0 if nothing is in common."""
    found, held = grams(candidate, n), grams(reference, n)
    right = sum((found & held).values())
    if right == 0:
        return 0.0
    precision, recall = right / sum(found.values()), right / sum(held.values())
    return 2 * precision * recall / (precision + recall)


def _rouge(candidate: list[str], references: list[list[str]], n: int) -> float:
    enough = any(len(reference) >= n for reference in references)
    return measures.lecture_rouge(candidate, references, n) if enough else 0.0


def _f1(candidate: list[str], reference: list[str], n: int) -> float:
    """By recall both ways: precision is the recall of the candidate's n-grams in the reference."""
    recall, precision = _rouge(candidate, [reference], n), _rouge(reference, [candidate], n)
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _share(case: Case, value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value <= 1


_LECTURE = {"candidate": list("ABBCD"), "references": [list("ABCDEF")]}
_TWO = {"candidate": list("ABBCD"), "references": [list("ABCDEF"), list("ABX")]}
_TWICE = {"candidate": list("AAAB"), "references": [list("AAC")]}
_RIGHT = "min(found[gram], count)"
_ALL = "sum(sum(each.values()) for each in held)"
_RETURN = "    return right / max(1, sum(sum(each.values()) for each in held))"
_SAID = Said("A share lies between 0 and 1; yours does not.", "比例在 0 与 1 之间，而你的不是。")

EXERCISE = Exercise(
    number=14,
    name="rouge",
    lectures=("rouge",),
    sources=(Source(5, "ROUGE"),),
    texts={
        "en": Text(
            "ROUGE",
            """
ROUGE is used for summaries and asks how much of the references was found: recall, where BLEU asks for precision.

    ROUGE-N = Σ_k Σ_w min(c_w(x), c_w(s^(k))) / Σ_k Σ_w c_w(s^(k))

Both sums go over all references. What papers report is mostly the F1 of one reference, the harmonic mean of precision P
and recall R: 2 P R / (P + R). Write both in plain Python; `grams` is given.
""",
            {"grams": doc(grams), "rouge": doc(rouge), "rouge_f1": doc(rouge_f1)},
        ),
        "zh": Text(
            "ROUGE",
            """
ROUGE 用于文本摘要，问的是参考中有多少被找到了，即召回率；BLEU 问的是精度。

    ROUGE-N = Σ_k Σ_w min(c_w(x), c_w(s^(k))) / Σ_k Σ_w c_w(s^(k))

两个求和都遍历所有参考。论文里报告的多是对一个参考的 F1，即精度 P 与召回率 R 的调和平均：2 P R / (P + R)。
请用纯 Python 写出两者；`grams` 已给出。
""",
            {
                "grams": "每个 n 元组合出现的次数。",
                "rouge": "各参考的 n 元组合（合在一起）中候选也有的比例：召回率；一个组合都没有时为 0。",
                "rouge_f1": "n 元组合的精度与召回率的调和平均；没有共同的组合时为 0。",
            },
        ),
    },
    answers=(rouge, rouge_f1),
    given=(grams,),
    imports="import math\nfrom collections import Counter\n",
    reference={"rouge": _rouge, "rouge_f1": _f1},
    checks=(
        Check(
            "rouge",
            4,
            Said("recall of one reference", "一个参考的召回率"),
            (
                {"candidate": list("AB"), "references": [list("AAB")], "n": 1},
                {**_TWICE, "n": 1},
                *({**_LECTURE, "n": n} for n in (1, 2, 3)),
                {"candidate": ["A"], "references": [["B"]], "n": 2},
            ),
        ),
        Check(
            "rouge",
            3,
            Said("several references", "多个参考"),
            (
                {"candidate": list("XB"), "references": [list("AC"), list("XBC")], "n": 1},
                {**_TWO, "n": 1},
                {**_TWO, "n": 2},
            ),
        ),
        Check(
            "rouge_f1",
            3,
            Said("F1", "F1"),
            (
                {"candidate": ["A"], "reference": ["B"], "n": 1},
                {"candidate": list("AAAB"), "reference": list("AAC"), "n": 1},
                {"candidate": list("ABBCD"), "reference": list("ABCDEF"), "n": 2},
                {"candidate": list("ABCDEFG"), "reference": list("ABX"), "n": 1},
            ),
        ),
    ),
    laws=(Law("rouge", "share", _share, _SAID), Law("rouge_f1", "share", _share, _SAID)),
    wrong=(
        Wrong(
            "rouge",
            "precision",
            Said(
                "You divide by the candidate's n-grams: that is precision. ROUGE divides by the references'.",
                "你除以了候选的组合数：那是精度。ROUGE 除以参考的组合数。",
            ),
            ((_ALL, "sum(found.values())"),),
        ),
        Wrong(
            "rouge",
            "not-clipped",
            Said(
                "The counts are not clipped: an n-gram counts as often as both candidate and reference have it.",
                "计数没有截断：一个组合计入的次数既不超过候选中的次数，也不超过参考中的次数。",
            ),
            ((_RIGHT, "count * (gram in found)"),),
        ),
        Wrong(
            "rouge",
            "candidate-counts",
            Said(
                "You count how often the candidate has it, though the reference has it less often: the min is missing.",
                "你按候选中的次数计入，即使参考中没有那么多：缺少 min。",
            ),
            ((_RIGHT, "found[gram]"),),
        ),
        Wrong(
            "rouge",
            "best-reference",
            Said(
                "You take the best reference; the lecture sums over all of them, above and below.",
                "你取了最好的一个参考；讲义的分子分母都对所有参考求和。",
            ),
            ((_RETURN, "    return max(sum((found & each).values()) / max(1, sum(each.values())) for each in held)"),),
        ),
        Wrong(
            "rouge",
            "mean-of-references",
            Said(
                "You average the references' shares; the lecture sums the counts of all before it divides.",
                "你把各参考的比例取了平均；讲义先对所有参考的次数求和再相除。",
            ),
            (
                (
                    _RETURN,
                    "    return sum(sum((found & each).values()) / max(1, sum(each.values())) for each in held) "
                    "/ len(held)",
                ),
            ),
        ),
        Wrong(
            "rouge",
            "first-only",
            Said("Only the first reference counts.", "只计了第一个参考。"),
            (("for reference in references]", "for reference in references[:1]]"),),
        ),
        Wrong(
            "rouge",
            "each-once",
            Said(
                "Each different n-gram counts once; repetitions count too.",
                "每个不同的组合只计了一次；重复的也应计入。",
            ),
            ((_RIGHT, "(gram in found)"), (_ALL, "sum(len(each) for each in held)")),
        ),
        Wrong(
            "rouge_f1",
            "arithmetic",
            Said(
                "You take the arithmetic mean of precision and recall; F1 is the harmonic one.",
                "你取了精度与召回率的算术平均；F1 是调和平均。",
            ),
            (("2 * precision * recall / (precision + recall)", "(precision + recall) / 2"),),
        ),
        Wrong(
            "rouge_f1",
            "recall",
            Said("Your result is the recall alone.", "你的结果只是召回率。"),
            (("return 2 * precision * recall / (precision + recall)", "return recall"),),
        ),
        Wrong(
            "rouge_f1",
            "precision",
            Said("Your result is the precision alone.", "你的结果只是精度。"),
            (("return 2 * precision * recall / (precision + recall)", "return precision"),),
        ),
        Wrong(
            "rouge_f1",
            "no-two",
            Said("The factor 2 is missing.", "缺少因子 2。"),
            (("return 2 * precision", "return precision"),),
        ),
        Wrong(
            "rouge_f1",
            "geometric",
            Said("You take the geometric mean; F1 is the harmonic one.", "你取了几何平均；F1 是调和平均。"),
            (("2 * precision * recall / (precision + recall)", "(precision * recall) ** 0.5"),),
        ),
        Wrong(
            "rouge_f1",
            "no-zero",
            Said(
                "Where nothing is in common you divide by 0; the result must be 0.",
                "没有共同组合时你除以了 0；结果应为 0。",
            ),
            (("    if right == 0:\n        return 0.0\n", ""),),
        ),
    ),
)
