"""Questions and passages as rows of ids: joined, cut into windows where they are long, answers as tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regard.errors import DataError
from regard.text import Tokenizer

from .squad import Question

_BREAKS = str.maketrans(dict.fromkeys("\n\r\t\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\x00", " "))


@dataclass(frozen=True)
class Window:
    """A question with a part of its passage, as ids without an end."""

    question: int  # its number
    ids: list[int]
    first: int  # the first token of the passage
    spans: list[tuple[int, int]]  # where each token of this part stands in the passage, in characters
    answer: tuple[int, int] | None = None  # the first and the last token of the answer, if it is in this part


def joined(question: str, passage: str, between: str) -> str:
    """The line that is read; characters of the passage keep their order and number."""
    question, passage = (text.translate(_BREAKS).replace(between, " " * len(between)) for text in (question, passage))
    return f"{question.strip()}{between}{passage}"


def windows_of(tokenizer: Tokenizer, questions: Sequence[Question], most: int, between: str) -> list[Window]:
    """Each question with its passage, or with parts of it that overlap by half where a line of `most` tokens is short.

    Raises DataError, naming the question, for one that leaves a passage no room.
    """
    found = []
    for number, each in enumerate(questions):
        line = joined(each.question, each.passage, between)
        ids, spans = tokenizer.encode(line), tokenizer.spans(line)
        separator = tokenizer.id_of(between)
        first = ids.index(separator) + 1 if separator in ids else len(ids)
        begins = len(line) - len(each.passage)
        room = most - 1 - first  # for the end
        if room < 2:
            raise DataError(
                f"question {each.id[:80]!r} has {first - 1:,} tokens, and with its passage a line has at most "
                f"{most:,}: shorten it, or train a reader with more model.max_positions and data.filters.max_length."
            )
        there = [(a - begins, b - begins) for a, b in spans[first:]]
        right = _tokens_of(each, there)
        step = max(1, room // 2)
        for start in range(0, max(1, len(there) - room + step), step):
            part = there[start : start + room]
            answer = None
            if right is not None and start <= right[0] and right[1] < start + len(part):
                answer = right[0] - start + first, right[1] - start + first
            found.append(Window(number, [*ids[:first], *ids[first + start :][: len(part)]], first, part, answer))
    return found


def _tokens_of(question: Question, spans: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """The first and the last token of a question's first right answer."""
    if not question.answers:
        return None
    start = question.answers[0].start
    end = start + len(question.answers[0].text)
    inside = [i for i, (a, b) in enumerate(spans) if a < end and b > start and b > a]
    return (inside[0], inside[-1]) if inside else None
