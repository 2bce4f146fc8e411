"""What an exercise is: functions to write, the library's own as reference, checks, typical wrong answers and laws."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from textwrap import indent
from typing import NamedTuple

import torch
from torch import Tensor

from regard.errors import DataError

Case = Mapping[str, object]
"""The arguments of one call, by name; in a check the smallest come first."""

LANGUAGES = ("en", "zh")


class Said(NamedTuple):
    """A sentence in both languages."""

    en: str
    zh: str

    def of(self, language: str) -> str:
        """The sentence in this language."""
        return self.zh if language == "zh" else self.en


class Source(NamedTuple):
    """Where the lectures say it: the document's number in docs/lectures, and the title of the slide or section."""

    document: int
    slide: str


class Text(NamedTuple):
    """What a student reads of an exercise in one language."""

    title: str
    body: str
    functions: Mapping[str, str]
    """The docstring of each function that the file holds."""


class Check(NamedTuple):
    """Points for one function on some cases, all of which must come out right."""

    function: str
    points: int
    about: Said
    cases: tuple[Case, ...]


class Wrong(NamedTuple):
    """A typical wrong answer: the model answer with pieces of its text replaced, and what is said of it."""

    function: str
    name: str
    said: Said
    edits: tuple[tuple[str, str], ...]


class Law(NamedTuple):
    """What must hold of arguments and result, whatever the numbers, and what is said where it does not."""

    function: str
    name: str
    holds: Callable[[Case, object], bool]
    said: Said


class Trained(NamedTuple):
    """Points for a training run that uses the student's functions: "module:function" that runs it, and the least share
    of answers that must come out right."""

    by: str
    points: int
    about: Said
    least: float
    said: Said


@dataclass(frozen=True)
class Exercise:
    """One exercise; its module defines it under the name EXERCISE, and its answers are functions beside it."""

    number: int
    name: str
    sources: tuple[Source, ...]
    lectures: tuple[str, ...]
    """What `regard lecture` computes of it."""
    texts: Mapping[str, Text]
    answers: tuple[Callable[..., object], ...]
    """The functions to write, as model answers."""
    reference: Mapping[str, Callable[..., object]]
    """The same functions by the library's own code."""
    checks: tuple[Check, ...]
    wrong: tuple[Wrong, ...]
    laws: tuple[Law, ...] = ()
    given: tuple[Callable[..., object], ...] = ()
    """Functions that the file holds already written."""
    imports: str = "import math\n\nimport torch\nfrom torch import Tensor\n"
    trained: Trained | None = None
    seconds: float = 20.0
    """How long all calls together may take."""

    @property
    def file(self) -> str:
        """The name of the exercise's file."""
        return f"{self.number:02}_{self.name}.py"

    @property
    def points(self) -> int:
        """The points of all checks."""
        return sum(check.points for check in self.checks) + (self.trained.points if self.trained else 0)

    def written(self, language: str, *, answered: bool) -> str:
        """The exercise's file: with blanks, or with the model answers."""
        text, parts = self.texts[language], []
        for function in (*self.given, *self.answers):
            whole = function in self.given or answered
            parts.append(_function(function, text.functions[function.__name__], whole=whole))
        heading = _heading(self, text, language)
        return f'"""{heading}"""\n\n{self.imports}\n\n' + "\n\n\n".join(parts) + "\n"


def _heading(exercise: Exercise, text: Text, language: str) -> str:
    """The docstring of an exercise's file."""
    from_, points, computed, how = {
        "en": ("From", f"{exercise.points} points", "See it computed", "Check it with"),
        "zh": ("出处", f"{exercise.points} 分", "看讲义的计算", "检查"),
    }[language]
    colon, places = ("：", "；") if language == "zh" else (": ", "; ")
    where = places.join(
        f"文档 {s.document}《{s.slide}》" if language == "zh" else f"document {s.document}, “{s.slide}”"
        for s in exercise.sources
    )
    title = (
        f"{exercise.number}. {text.title} ({points})"
        if language == "en"
        else f"{exercise.number}. {text.title}（{points}）"
    )
    check = f"{how}{colon}regard homework check . {exercise.name}"
    look = f"{computed}{colon}regard lecture {' '.join(exercise.lectures)}"
    body = text.body.strip("\n")
    return f"{title}\n\n{from_}{colon}{where}\n\n{body}\n\n{look}\n{check}\n"


def _function(function: Callable[..., object], about: str, *, whole: bool) -> str:
    """A function's text with this docstring, and with its body or with a blank in its place."""
    source = inspect.getsource(function)
    node = ast.parse(source).body[0]
    assert isinstance(node, ast.FunctionDef)
    first, lines = node.body[0], source.rstrip().split("\n")
    head = "\n".join(lines[: first.lineno - 1])
    rest = "\n".join(lines[first.end_lineno :]).strip("\n") if whole else "    raise NotImplementedError"
    about = about.strip()
    end = "\n" if "\n" in about else ""
    docstring = indent(f'"""{about}{end}', "    ") + ('    """' if end else '"""')
    return f"{head}\n{docstring}\n{rest}"


@cache
def exercises() -> dict[str, Exercise]:
    """Every exercise by its name, in order: what the modules of the folder `exercises` define."""
    from . import exercises as folder

    found = [import_module(f"{folder.__name__}.{module.name}").EXERCISE for module in iter_modules(folder.__path__)]
    return {exercise.name: exercise for exercise in sorted(found, key=lambda exercise: exercise.number)}


def chosen(names: list[str]) -> list[Exercise]:
    """The exercises of these names, or numbers, or file names; all for none. Raises DataError for another name."""
    known = exercises()
    if not names:
        return list(known.values())
    by_any = {key: e for e in known.values() for key in (e.name, str(e.number), f"{e.number:02}", e.file, e.file[:-3])}
    for name in names:
        if name.rpartition("/")[2] not in by_any:
            raise DataError(f"there is no exercise {name!r}; there are {', '.join(known)}.")
    wanted = {by_any[name.rpartition("/")[2]].name for name in names}
    return [exercise for exercise in known.values() if exercise.name in wanted]


def doc(function: Callable[..., object]) -> str:
    """The docstring of a model answer, as the English file has it."""
    return inspect.getdoc(function) or ""


def drawn(*shape: int, seed: int = 0) -> Tensor:
    """Numbers of a normal distribution, rounded to two digits so that they can be read, the same every time."""
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(seed + 1000 * sum(shape)))
    return (made * 100).round() / 100


def edited(exercise: Exercise, edits: tuple[tuple[str, str], ...]) -> dict[str, object]:
    """The functions of the model answers with these pieces replaced, by their names."""
    text = exercise.written("en", answered=True)
    for old, new in edits:
        if old not in text:
            raise ValueError(f"{exercise.name}: the model answer has no {old!r}")
        text = text.replace(old, new)
    names: dict[str, object] = {"__name__": f"homework_{exercise.name}"}
    exec(compile(text, f"<{exercise.file}>", "exec"), names)
    return names
