"""Questions on passages in SQuAD's JSON, versions 1.1 and 2.0 (Rajpurkar et al. 2016 and 2018). No torch here."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError

from regard.errors import DataError
from regard.machine import write_atomically
from regard.text.lines import open_bytes

_MOST_BYTES = 1 << 30
"""Of a file; SQuAD's largest has 42 MB."""


@dataclass(frozen=True)
class Span:
    """Where an answer stands in its passage: its text, and its first character."""

    text: str
    start: int


@dataclass(frozen=True)
class Question:
    """A question, its passage, and its right answers; none where the passage does not answer it."""

    question: str
    passage: str
    answers: tuple[Span, ...] = ()
    id: str = ""
    title: str = field(default="", compare=False)


class _Given(BaseModel, frozen=True, strict=True):
    """Other keys than those named, which later versions may have, are let through."""


class _Answer(_Given):
    text: str = Field(min_length=1)
    answer_start: int = Field(ge=0)


class _Asked(_Given):
    id: str
    question: str = Field(min_length=1)
    answers: list[_Answer] = []
    is_impossible: bool = False


class _Paragraph(_Given):
    context: str = Field(min_length=1)
    qas: list[_Asked]


class _Article(_Given):
    title: str = ""
    paragraphs: list[_Paragraph]


class _File(_Given):
    version: str = ""
    data: list[_Article]


def read_questions(file: str | Path) -> list[Question]:
    """The questions of a file in SQuAD's JSON, perhaps compressed by gzip or zstd.

    Raises DataError, naming the place, for a file that is not of that form, for an answer that does not stand where it
    is said to, and for two questions of one id.
    """
    with open_bytes(file) as stream:
        raw = stream.read(_MOST_BYTES + 1)
    if len(raw) > _MOST_BYTES:
        raise DataError(f"{file}: has more than {_MOST_BYTES:,} bytes, the most that are read; split it.")
    try:
        known = _File.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            raise DataError(
                f"{file}: is no JSON, cut short, or nested too deeply ({first['msg']}); get it again."
            ) from None
        place = ".".join(str(part) for part in first["loc"]) or "the file"
        given = "" if first["type"] == "missing" else f" = {json.dumps(first['input'], default=str)[:60]}"
        way = 'the form is {"data": [{"paragraphs": [{"context": …, "qas": [{"id", "question", "answers"}]}]}]}'
        raise DataError(f"{file}: {place}{given}: {first['msg'][:1].lower()}{first['msg'][1:]}; {way}.") from None
    return list(_checked(known, str(file)))


def _checked(known: _File, name: str) -> Iterator[Question]:
    seen: set[str] = set()
    for article in known.data:
        for paragraph in article.paragraphs:
            for asked in paragraph.qas:
                if asked.id in seen:
                    raise DataError(f"{name}: two questions have the id {asked.id[:80]!r}; give each its own.")
                seen.add(asked.id)
                answers = () if asked.is_impossible else asked.answers
                for answer in answers:
                    found = paragraph.context[answer.answer_start :][: len(answer.text)]
                    if found != answer.text:
                        raise DataError(
                            f"{name}: question {asked.id[:80]!r}: the answer {answer.text[:60]!r} does not stand at "
                            f"character {answer.answer_start} of its passage, where {found[:60]!r} stands; "
                            "answer_start counts characters from 0."
                        )
                spans = tuple(Span(a.text, a.answer_start) for a in answers)
                yield Question(asked.question, paragraph.context, spans, asked.id, article.title)


def write_questions(file: str | Path, questions: Sequence[Question], *, version: str = "v2.0") -> Path:
    """Write questions in SQuAD's JSON; those that follow each other on one passage share it."""
    articles: list[dict[str, object]] = []
    last: tuple[str, str] | None = None
    asked: list[dict[str, object]] = []
    for number, each in enumerate(questions, start=1):
        if last != (each.title, each.passage):
            asked, last = [], (each.title, each.passage)
            articles.append({"title": each.title, "paragraphs": [{"context": each.passage, "qas": asked}]})
        answers = [{"text": a.text, "answer_start": a.start} for a in each.answers]
        asked.append(
            {"id": each.id or str(number), "question": each.question, "answers": answers, "is_impossible": not answers}
        )
    write_atomically(Path(file), json.dumps({"version": version, "data": articles}, ensure_ascii=False) + "\n")
    return Path(file)
