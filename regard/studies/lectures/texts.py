"""The lectures' own sentences: whom a pronoun means, and a long letter with its English.

Sizes: S words, F features.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from regard.nn.attention import Dot, attend
from regard.pictures import bars, curves

from .page import Lecture, listed

_BEGINNING = ["那时候", "柔嘉", "在", "家里", "等", "鸿渐", "回家", "来", "吃", "晚饭", "希望", "他"]
_END = ["到", "她", "厂里", "做事"]
SENTENCE = [*_BEGINNING, "会", "跟", "姑母", "和好", *_END]
SHORTER = [*_BEGINNING, *_END]
"""The lecture's sentence (of 钱锺书, 围城), and the lecture's own shorter form of it."""
_FEATURES = ("name", "woman", "man", "pronoun", "subject")
_KEYS = {"柔嘉": "name woman subject", "鸿渐": "name man", "姑母": "woman", "他": "man pronoun", "她": "woman pronoun"}
"""How a word is found: the lecture's table says it of 柔嘉 (a woman's name, the subject) and 她 (a woman's pronoun)."""
_QUERIES = {"柔嘉": "woman pronoun", "她": "name woman", "他": "name man"}
"""What a word looks for: of 柔嘉 “by whom am I meant?”, of 她 “whom do I mean?”."""
_SHARP = 3.0
_LATIN = {"柔嘉": "Roujia", "鸿渐": "Hongjian", "他": "he", "姑母": "aunt", "她": "she"}


def _marked(table: dict[str, str], words: list[str]) -> Tensor:
    """(S, F): 1 for each feature that a word has."""
    marks = [[float(f in table.get(word, "").split()) for f in _FEATURES] for word in words]
    return torch.tensor(marks, dtype=torch.float64)


def _weights(words: list[str]) -> tuple[Tensor, Tensor]:
    """Weights (S, S) and what each word takes in (S, S), the values being the words themselves."""
    score, values = Dot(len(_FEATURES)), torch.eye(len(words), dtype=torch.float64)
    queries, keys = score.queries(_SHARP * _marked(_QUERIES, words)), score.keys(_marked(_KEYS, words))
    taken, weights = attend(queries, keys, values, score.compare)
    return weights, taken


def pronoun_table() -> Lecture:
    """The lecture's table of queries, keys and values for 柔嘉 and 她: features marked by hand as it says them, so that
    the weights follow by construction. 她 takes in 柔嘉, 他 takes in 鸿渐, however far apart they stand.
    """
    weights, taken = _weights(SENTENCE)
    shorter, _ = _weights(SHORTER)
    people = list(_LATIN)
    at = {word: SENTENCE.index(word) for word in people}

    def looks(word: str) -> list[float]:
        return [float(weights[at[word], at[other]]) for other in people]

    def ratio(table: Tensor, words: list[str]) -> float:
        row = table[words.index("她")]
        return float(row[words.index("柔嘉")] / row[words.index("鸿渐")])

    updated = torch.eye(len(SENTENCE), dtype=torch.float64)[at["她"]] + taken[at["她"]]
    return Lecture(
        {
            "weights of 她 on 柔嘉, 鸿渐, 他, 姑母, 她": looks("她"),
            "weights of 他 on 柔嘉, 鸿渐, 他, 姑母, 她": looks("他"),
            "weights of 柔嘉 on 柔嘉, 鸿渐, 他, 姑母, 她": looks("柔嘉"),
            "她 looks most at": SENTENCE[int(weights[at["她"]].argmax())],
            "他 looks most at": SENTENCE[int(weights[at["他"]].argmax())],
            "weight of 她 on itself": float(weights[at["她"], at["她"]]),
            "sum of the weights of 她": float(weights[at["她"]].sum()),
            "她 after x + attention: of itself, of 柔嘉": [float(updated[at["她"]]), float(updated[at["柔嘉"]])],
            "words from 柔嘉 to 她": at["她"] - at["柔嘉"],
            "the same in the shorter sentence": SHORTER.index("她") - SHORTER.index("柔嘉"),
            "weight of 柔嘉 over that of 鸿渐, of 她": ratio(weights, SENTENCE),
            "the same ratio in the shorter sentence": ratio(shorter, SHORTER),
        },
        (
            bars(
                "Weights (of all words of the sentence)",
                list(_LATIN.values()),
                {f"{_LATIN[word]} looks": looks(word) for word in ("她", "他")},
            ),
        ),
    )


MEMORIAL = (
    (
        "先帝创业未半而中道崩殂，",
        "the late Emperor was taken from us before he could finish his life's work, the restoration of the Han.",
    ),
    (
        "今天下三分，益州疲弊，此诚危急存亡之秋也。",
        "Today, the empire is still divided in three, and our very survival is threatened.",
    ),
    (
        "然侍卫之臣不懈于内，忠志之士忘身于外者，",
        "Yet still, the officials at court and the soldiers throughout the realm remain loyal to you, your majesty.",
    ),
    (
        "盖追先帝之殊遇，欲报之于陛下也。",
        "Because they remember the late emperor, all of them, and they wish to repay his kindness in service to you.",
    ),
    (
        "诚宜开张圣听，以光先帝遗德，恢弘志士之气，",
        "This is the moment to extend your divine influence, to honor the memory of the late Emperor and strengthen "
        "the morale of your officers.",
    ),
    (
        "不宜妄自菲薄，引喻失义，以塞忠谏之路也。",
        "It is not the time to listen to bad advice or close your ears to the suggestions of loyal men.",
    ),
)
"""The opening of the memorial of 227 and the English that the lecture prints beside it, clause by clause (put side by
side here). The English goes on with the Western Han, of whom the Chinese of the slide says nothing yet."""
_CONTEXT = 1000


def _starts(texts: list[str], wanted: str) -> list[int]:
    """Where each mention begins, in characters from the beginning."""
    text = "".join(texts)
    return [i for i in range(len(text)) if text.startswith(wanted, i)]


def memorial_text() -> Lecture:
    """The memorial of 227 with its English: how much one vector C would have to hold of it, and over how many steps a
    recurrence would have to carry 先帝, the late Emperor, from one mention to the next; attention goes there in one.
    """
    chinese, english = ([pair[side] for pair in MEMORIAL] for side in (0, 1))
    characters = [len([c for c in clause if c not in "，。"]) for clause in chinese]
    words = [len(clause.split()) for clause in english]
    plain = ["".join(c for c in clause if c not in "，。") for clause in chinese]
    mentions = _starts(plain, "先帝")
    before = [sum(words[:n]) for n in range(len(words) + 1)]
    late = [
        before[n] + clause.lower().split().index("late")
        for n, clause in enumerate(english)
        if "late emperor" in clause.lower()
    ]
    return Lecture(
        {
            "clauses": len(MEMORIAL),
            "characters of each": [float(n) for n in characters],
            "English words of each": [float(n) for n in words],
            "characters": sum(characters),
            "English words": sum(words),
            "先帝 begins at character": [float(n) for n in mentions],
            "characters from each 先帝 to the next": [float(b - a) for a, b in pairwise(mentions)],
            "“late” of “late Emperor” is word": [float(n) for n in late],
            "words from each to the next": [float(b - a) for a, b in pairwise(late)],
            "steps of a recurrence from the first to the last, Chinese": mentions[-1] - mentions[0],
            "steps of attention": 1,
            "numbers of one C of width 1,000 for each character": _CONTEXT / sum(characters),
            "numbers for each character with a C of its own for each target word": _CONTEXT,
        },
        (
            bars(
                "Clauses of the memorial",
                [str(n) for n in range(1, len(MEMORIAL) + 1)],
                {"characters": listed(torch.tensor(characters)), "English words": listed(torch.tensor(words))},
            ),
            curves(
                "What one C of 1,000 numbers has for each character",
                [sum(characters[:n]) for n in range(1, len(characters) + 1)],
                {"numbers": [_CONTEXT / sum(characters[:n]) for n in range(1, len(characters) + 1)]},
                x="characters read",
            ),
        ),
    )
