"""`regard homework`: exercises from the lectures, checked with words for what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.apps.cli import printable, write, write_json
from regard.apps.options import Json
from regard.errors import DataError

_ACTIONS = ("check", "answers", "report")


def homework(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[check|answers|report] FOLDER [EXERCISE]...",
            help="A new folder for the exercises; or a word, a folder, and which exercises.",
        ),
    ] = None,
    language: Annotated[
        str | None, typer.Option(metavar="en|zh", help="Of the exercises, or of what a check says. [default: en]")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Of report: the CSV, a row a student.")
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0, help="Of check and report: the most for an exercise's calls; 0: its own.")
    ] = 0.0,
    as_json: Json = False,
) -> None:
    """Exercises on attention from the lectures: written, checked in words, graded. Alone: which there are.

    FOLDER: write the exercises there.   check FOLDER [EXERCISE]...: points, and what is wrong.
    answers FOLDER: write the model answers there.   report FOLDER --output FILE: grade each student's folder in it.
    A new folder that is called check, answers or report is given as ./check.
    """
    action, given = ("new", words or []) if not words or words[0] not in _ACTIONS else (words[0], words[1:])
    _agree(action, given, output, seconds, as_json)
    if language not in (None, "en", "zh"):
        raise DataError(f"--language is {language!r}; there are en and zh.")
    if not given:
        _list(language or "en")
    elif action in ("new", "answers"):
        _write(given, language or "en", answered=action == "answers")
    elif action == "check":
        _check(Path(given[0]), given[1:], language, seconds, as_json=as_json)
    elif output is not None:
        _report(Path(given[0]), given[1:], output, seconds)


def _agree(action: str, given: list[str], output: Path | None, seconds: float, as_json: bool) -> None:
    """Raises DataError for words and options that do not go together."""
    if action != "new" and not given:
        raise DataError(
            f"{action} of which folder? `regard homework {action} FOLDER`; a new one of that name: ./{action}."
        )
    if action in ("new", "answers") and len(given) > 1:
        raise DataError(
            f"one new folder, and {len(given)} are given ({' '.join(given)}); a first word is check, answers or report."
        )
    if (output is not None) != (action == "report"):
        raise DataError(
            "--output is the file that report writes, and report needs it: "
            "`regard homework report FOLDER --output class.csv`."
        )
    if seconds and action not in ("check", "report"):
        raise DataError("--seconds limits what is checked; give it with check or report.")
    if as_json and action != "check":
        raise DataError("--json is for `regard homework check`.")


def _list(language: str) -> None:
    from .exercise import exercises

    every = exercises().values()
    longest = max(len(each.file) for each in every)
    write("".join(f"{each.file:{longest}}  {each.points:2}  {each.texts[language].title}\n" for each in every))


def _write(given: list[str], language: str, *, answered: bool) -> None:
    from .folder import write as write_folder

    files = write_folder(given[0], language, answered=answered)
    said = {
        "en": f"{len(files) - 1} exercises: {given[0]}\nbegin with {files[0]}\n",
        "zh": f"{len(files) - 1} 题：{given[0]}\n请先读 {files[0]}\n",
    }
    write(said[language])


def _check(folder: Path, names: list[str], language: str | None, seconds: float, *, as_json: bool) -> None:
    from .folder import language_of
    from .grade import check

    language = language or (language_of(folder) if folder.is_dir() else "en")
    found = []
    for graded in check(folder, names, language, seconds):
        found.append(graded)
        if not as_json:
            from .showing import shown

            write(printable(shown(graded, language)))
    points, of = sum(each.points for each in found), sum(each.of for each in found)
    if as_json:
        write_json({"points": points, "of": of, "exercises": [each.to_dict() for each in found]})
    else:
        write({"en": f"total: {points} of {of} points\n", "zh": f"总分：{points} / {of}\n"}[language])


def _report(folder: Path, names: list[str], output: Path, seconds: float) -> None:
    from .grade import report

    rows = report(
        folder, output, names, seconds, lambda student, points, of: write(printable(f"{student}: {points} / {of}\n"))
    )
    write(f"{rows} students: {output}\n")
