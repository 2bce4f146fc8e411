"""Exact match and F1 of answers, as SQuAD's own script reckons them (Rajpurkar et al. 2016, section 6.1; 2018)."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from regard.errors import DataError

from .squad import Question

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True)
class Scores:
    """Means over the questions, from 0 to 100; those of questions with and without an answer are None without any."""

    questions: int
    exact: float
    f1: float
    answerable: int
    answerable_exact: float | None
    answerable_f1: float | None
    unanswerable_exact: float | None

    def to_dict(self) -> dict[str, float | None]:
        """Plain values for JSON."""
        return dict(vars(self))


def normalized(text: str) -> str:
    """The answer in lower case, without ASCII punctuation and English articles, single spaces between its words.

    Words are what stands between spaces, so that an answer in Chinese is one word, and F1 is exact match there.
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact(answer: str, right: str) -> float:
    """1 where both are the same once they are normalised, else 0."""
    return float(normalized(answer) == normalized(right))


def f1(answer: str, right: str) -> float:
    """The harmonic mean of precision and recall of the answer's words; of no answer, whether both are none."""
    ours, theirs = normalized(answer).split(), normalized(right).split()
    if not ours or not theirs:
        return float(ours == theirs)
    common = sum((Counter(ours) & Counter(theirs)).values())
    return 2 * common / (len(ours) + len(theirs))


def scores_of(questions: Sequence[Question], answers: Mapping[str, str]) -> Scores:
    """Scores of the answers by id, "" for no answer; of several right answers the one that fits best counts.

    Raises DataError for a question without an answer among these, and where there is no question.
    """
    if missing := [each.id for each in questions if each.id not in answers]:
        raise DataError(
            f"question {missing[0][:80]!r} has no answer among those given; answer it, by '' if by nothing."
        )
    if not questions:
        raise DataError("there is no question to score; give at least one.")
    rows = [(bool(each.answers), *_best(answers[each.id], each)) for each in questions]
    has, has_not = ([row for row in rows if row[0] == wanted] for wanted in (True, False))
    return Scores(
        questions=len(rows),
        exact=_mean([row[1] for row in rows]) or 0.0,
        f1=_mean([row[2] for row in rows]) or 0.0,
        answerable=len(has),
        answerable_exact=_mean([row[1] for row in has]),
        answerable_f1=_mean([row[2] for row in has]),
        unanswerable_exact=_mean([row[1] for row in has_not]),
    )


def _best(answer: str, question: Question) -> tuple[float, float]:
    rights = [each.text for each in question.answers if normalized(each.text)] or [""]
    return max(exact(answer, right) for right in rights), max(f1(answer, right) for right in rights)


def _mean(values: Sequence[float]) -> float | None:
    return 100.0 * sum(values) / len(values) if values else None
