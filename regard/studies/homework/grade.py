"""A folder graded: points and findings of each exercise; and a class, one row a student."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from regard.errors import DataError
from regard.machine import write_atomically

from . import words
from .asking import MEMORY, Failure, Helped, Outcome, ask, calls_of
from .compare import same
from .exercise import Exercise, chosen
from .folder import files_of, language_of
from .judge import Finding, Judged, failing, judge, judge_training

_ITS_OWN = ("NotImplementedError", "missing", "slow", "ended", "exit")
"""Failures that nobody else's being right could mend, or that take long."""


@dataclass(frozen=True)
class Graded:
    """An exercise and its points."""

    name: str
    title: str
    points: int
    of: int
    checks: tuple[Judged, ...]

    @property
    def untouched(self) -> bool:
        """Nothing of it is written yet."""
        first = [finding.name for check in self.checks for finding in check.findings]
        return not self.points and set(first) <= {"empty", "absent", "untrained"}

    def to_dict(self) -> dict[str, object]:
        """Plain values."""
        return asdict(self)


def check(
    folder: str | Path, names: list[str] | None = None, language: str | None = None, seconds: float = 0.0
) -> Iterator[Graded]:
    """Grade the exercises of a folder, one after the other; all, or these.

    `language` of what is said is the folder's unless given; `seconds` replaces the exercises' own limits of time.
    Raises DataError where the folder holds none of them.
    """
    folder, wanted = Path(folder), chosen(names or [])
    if not folder.is_dir():
        raise DataError(f"{folder} is no folder; write one with `regard homework {folder}`.")
    files = files_of(folder, wanted)
    if not files:
        raise DataError(f"{folder} holds none of the files {wanted[0].file}, …; give the folder that has them.")
    said = language or language_of(folder)
    return (_graded(exercise, files.get(exercise.name), said, seconds) for exercise in wanted)


def _graded(exercise: Exercise, file: Path | None, language: str, seconds: float) -> Graded:
    title, of = exercise.texts[language].title, exercise.points
    if file is None:
        text = words.ABSENT.of(language).format(file=exercise.file)
        absent = Judged("", title, 0, of, (Finding("absent", text),))
        return Graded(exercise.name, title, 0, of, (absent,))
    calls = calls_of(exercise)
    limit = seconds or exercise.seconds
    direct = [call for call in calls if not call.by]
    outcomes = ask(file, direct, limit, MEMORY)
    judged = judge(exercise, outcomes, language, _helped(exercise, file, outcomes, limit))
    if exercise.trained is not None:
        judged += _trained(exercise, file, language, limit, whole=all(each.points == each.of for each in judged))
    return Graded(exercise.name, title, sum(each.points for each in judged), of, tuple(judged))


def _helped(
    exercise: Exercise, file: Path, outcomes: list[Outcome] | Failure, seconds: float
) -> dict[str, list[Outcome]]:
    """Outcomes of each function that failed, with model answers for the others that did, which it may call."""
    if isinstance(outcomes, Failure):
        return {}
    wrong, found = failing(exercise, outcomes), {}
    calls = [call for call in calls_of(exercise) if not call.by]
    for function in wrong if len(wrong) > 1 else ():
        own = [(call, outcome) for call, outcome in zip(calls, outcomes, strict=True) if call.function == function]
        if any(outcome.failure and outcome.failure.kind in _ITS_OWN for _, outcome in own):
            continue
        others = tuple(name for name in wrong if name != function)
        helped = Helped(others, exercise.written("en", answered=True))
        alone = ask(file, [call for call, _ in own], seconds, MEMORY, helped)
        if not isinstance(alone, Failure) and not _alike(alone, [outcome for _, outcome in own]):
            found[function] = alone
    return found


def _alike(some: list[Outcome], others: list[Outcome]) -> bool:
    """Whether the others' being right changed nothing: the function does not call them."""
    return all(a.failure == b.failure and same(a.value, b.value) for a, b in zip(some, others, strict=True))


def _trained(exercise: Exercise, file: Path, language: str, seconds: float, *, whole: bool) -> list[Judged]:
    """The training's points; it is not begun with functions that are known to be wrong."""
    if not whole:
        return [judge_training(exercise, Failure("untrained"), language)]
    outcomes = ask(file, [call for call in calls_of(exercise) if call.by], seconds, MEMORY)
    return [judge_training(exercise, outcomes if isinstance(outcomes, Failure) else outcomes[0], language)]


# -- a class -----------------------------------------------------------------------------------------------------------


def students_of(folder: Path, wanted: list[Exercise]) -> dict[str, Path]:
    """Each student's folder by its name: a folder of the folder that holds exercises, or whose only folder does."""
    if not folder.is_dir():
        raise DataError(f"{folder} is no folder; give one that holds a folder of each student.")
    found = {}
    for student in sorted(path for path in folder.iterdir() if path.is_dir()):
        inner = [path for path in student.iterdir() if path.is_dir()]
        places = [student, *(inner if len(inner) == 1 else [])]
        if place := next((place for place in places if files_of(place, wanted)), None):
            found[student.name] = place
    if not found:
        raise DataError(f"{folder} holds no folder with exercises such as {wanted[0].file} in it.")
    return found


def report(
    folder: str | Path,
    output: str | Path,
    names: list[str] | None = None,
    seconds: float = 0.0,
    tell: Callable[[str, int, int], object] = lambda student, points, of: None,
) -> int:
    """Grade every student's folder in a folder into a CSV, a row a student, a column an exercise; returns the rows.

    `tell` is called with each student's name, points and the points that there are.
    """
    wanted = chosen(names or [])
    students = students_of(Path(folder), wanted)
    if Path(output).is_dir():
        raise DataError(f"{output} is a folder; name a file, such as class.csv.")
    rows = []
    for student, place in students.items():
        graded = list(check(place, [exercise.name for exercise in wanted], seconds=seconds))
        total = sum(each.points for each in graded)
        rows.append([student, *(each.points for each in graded), total])
        tell(student, total, sum(each.of for each in graded))
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\r\n")
    table.writerow(["student", *(exercise.name for exercise in wanted), "total"])
    table.writerow(["", *(exercise.points for exercise in wanted), sum(exercise.points for exercise in wanted)])
    table.writerows([[_harmless(str(row[0])), *row[1:]] for row in rows])
    write_atomically(Path(output), "\ufeff" + text.getvalue())  # the mark by which spreadsheets know UTF-8
    return len(rows)


def _harmless(text: str) -> str:
    """A text that no spreadsheet takes for a formula: an apostrophe before what it would begin with."""
    plain = "".join(" " if ord(letter) < 32 or ord(letter) == 127 else letter for letter in text)
    plain = plain.encode("utf-8", "replace").decode()
    return f"'{plain}" if plain.lstrip()[:1] in {*"=+-@|%", "＝", "＋", "－", "＠"} else plain
