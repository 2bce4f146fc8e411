"""Points for outcomes, and in words what is wrong: by typical wrong answers that give the same, and by laws."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import combinations

from . import words
from .asking import Asked, Failure, Outcome, calls_of
from .compare import at, has_nan, kind, same, shown, where
from .exercise import Case, Exercise, Wrong, edited, exercises

_LONG = 250
"""Characters of a call, beyond which its tensors are shown by their shapes."""


@dataclass(frozen=True)
class Finding:
    """Something that is wrong: a name for programs, and a sentence."""

    name: str
    text: str


@dataclass(frozen=True)
class Judged:
    """A check, or a training, and its points."""

    function: str
    about: str
    points: int
    of: int
    findings: tuple[Finding, ...] = ()
    """What is wrong with the function, said at its first check that failed."""
    example: str = ""
    """The smallest input that shows it, with both results."""


@cache
def _expected(name: str) -> list[object]:
    """What the library gives for each call of the exercise's checks."""
    exercise = exercises()[name]
    asked = [call for call in calls_of(exercise) if not call.by]
    return [exercise.reference[call.function](**_case(call)) for call in asked]


def _case(call: Asked) -> dict[str, object]:
    assert isinstance(call.arguments, dict)
    return {str(key): value for key, value in call.arguments.items()}


def tried(function: Callable[..., object], cases: list[Case]) -> list[Outcome]:
    """What a function of our own gives in this process."""
    found = []
    for case in cases:
        try:
            found.append(Outcome(function(**case)))
        except Exception as error:
            found.append(Outcome(failure=Failure(type(error).__name__, str(error))))
    return found


@cache
def _given_by(name: str, function: str, which: tuple[int, ...]) -> list[Outcome] | None:
    """What these wrong answers together give for all cases of a function; None where they do not go together."""
    exercise = exercises()[name]
    edits = tuple(edit for index in which for edit in exercise.wrong[index].edits)
    try:
        made = edited(exercise, edits)[function]
    except (ValueError, SyntaxError):
        return None
    assert callable(made)
    return tried(made, [case for check in exercise.checks if check.function == function for case in check.cases])


def _alike(outcomes: list[Outcome], others: list[Outcome] | None) -> bool:
    """Whether all results are the same, and errors come at the same cases; errors alone say nothing."""
    if others is None:
        return False
    pairs = list(zip(outcomes, others, strict=True))
    values = [(a.value, b.value) for a, b in pairs if not a.failure and not b.failure]
    return all(bool(a.failure) == bool(b.failure) for a, b in pairs) and bool(values) and all(same(*v) for v in values)


def recognised(exercise: Exercise, function: str, outcomes: list[Outcome]) -> list[Wrong]:
    """The typical wrong answer, or the two of them together, that give just these outcomes; none: an empty list.

    The function's own come first, then those of functions that it may call, then two of them together.
    """
    if all(outcome.failure for outcome in outcomes):
        return []
    every = range(len(exercise.wrong))
    own = [index for index in every if exercise.wrong[index].function == function]
    for which in ((n,) for n in (*own, *(n for n in every if n not in own))):
        if _alike(outcomes, _given_by(exercise.name, function, which)):
            return [exercise.wrong[n] for n in which]
    for both in combinations(own, 2):
        if _alike(outcomes, _given_by(exercise.name, function, both)):
            return [exercise.wrong[n] for n in both]
    return []


def failing(exercise: Exercise, outcomes: list[Outcome]) -> list[str]:
    """The functions with a result that is not right."""
    calls, right = calls_of(exercise), map(_right, outcomes, _expected(exercise.name))
    return list(dict.fromkeys(call.function for call, fine in zip(calls, right, strict=False) if not fine))


def judge(
    exercise: Exercise,
    outcomes: list[Outcome] | Failure,
    language: str,
    helped: Mapping[str, list[Outcome]] | None = None,
) -> list[Judged]:
    """Every check with its points, and what is wrong where it failed; a Failure is of the whole file.

    `helped` has of functions that failed the outcomes of their calls when model answers stand in for the others that
    did: what is wrong is then said of the function alone.
    """
    if isinstance(outcomes, Failure):
        outcomes = [Outcome(failure=outcomes)] * len(calls_of(exercise))
    expected, found, start = _expected(exercise.name), [], 0
    told: set[str] = set()
    for check in exercise.checks:
        here = range(start, start + len(check.cases))
        start += len(check.cases)
        about = check.about.of(language)
        failed = next((n for n in here if not _right(outcomes[n], expected[n])), None)
        if failed is None:
            found.append(Judged(check.function, about, check.points, check.points))
            continue
        findings: tuple[Finding, ...] = ()
        alone = (helped or {}).get(check.function)
        example = "" if alone else _example(exercise, outcomes[failed], failed, language)
        if check.function not in told:
            told.add(check.function)
            if alone:
                others = [name for name in failing(exercise, outcomes) if name != check.function]
                findings, example = _alone(exercise, check.function, alone, others, language)
            else:
                findings = tuple(_findings(exercise, check.function, outcomes, failed, language))
        found.append(Judged(check.function, about, 0, check.points, findings, example))
    return found


def _alone(
    exercise: Exercise, function: str, alone: list[Outcome], others: list[str], language: str
) -> tuple[tuple[Finding, ...], str]:
    """What is wrong with a function that others were put right for."""
    numbers = [n for n, call in enumerate(calls_of(exercise)) if call.function == function and not call.by]
    expected = _expected(exercise.name)
    outcomes = dict(zip(numbers, alone, strict=True))
    failed = next((n for n in numbers if not _right(outcomes[n], expected[n])), None)
    if failed is None:
        names = words.AND.of(language).join(f"`{name}`" for name in others)
        text = words.FOLLOWS.of(language).format(function=function, others=names)
        return (Finding("follows", text),), ""
    every = [outcomes.get(n, Outcome()) for n in range(max(numbers) + 1)]
    return tuple(_findings(exercise, function, every, failed, language)), _example(
        exercise, every[failed], failed, language
    )


def _right(outcome: Outcome, expected: object) -> bool:
    return outcome.failure is None and not outcome.changed and same(outcome.value, expected)


def judge_training(exercise: Exercise, outcome: Outcome | Failure, language: str) -> Judged:
    """The training's points; a Failure where it was not begun, or could not end."""
    trained = exercise.trained
    assert trained is not None
    about = trained.about.of(language)
    failure = outcome if isinstance(outcome, Failure) else outcome.failure
    if failure is not None:
        return Judged("", about, 0, trained.points, (_failure(failure, words.TRAINING.of(language), language),))
    assert isinstance(outcome, Outcome)
    share = float(outcome.value) if isinstance(outcome.value, int | float) else 0.0
    if share >= trained.least:
        return Judged("", about, trained.points, trained.points)
    text = trained.said.of(language).format(share=share, least=trained.least)
    return Judged("", about, 0, trained.points, (Finding("not-learnt", text),))


def _findings(
    exercise: Exercise, function: str, outcomes: list[Outcome], first: int, language: str
) -> Iterator[Finding]:
    """What is wrong with a function, the most telling first; `first` is the first case that failed."""
    calls = calls_of(exercise)
    numbers = [n for n, call in enumerate(calls) if call.function == function and not call.by]
    own = [outcomes[n] for n in numbers]
    if (wrong := recognised(exercise, function, own)) and not any(outcome.changed for outcome in own):
        joined = words.BOTH.of(language) if len(wrong) > 1 else ""
        for each in wrong:
            yield Finding(each.name, joined + each.said.of(language))
        return
    outcome, right = outcomes[first], _expected(exercise.name)[first]
    if outcome.failure is not None:
        yield _failure(outcome.failure, function, language)
        return
    if outcome.changed:
        yield Finding("changed", words.CHANGED.of(language).format(names=", ".join(outcome.changed)))
        if same(outcome.value, right):
            return
    if (differs := _of_another_kind(outcome.value, right, language)) is not None:
        yield differs
        return
    broken = [law for law in exercise.laws if law.function == function]
    for law in broken:
        if any(not o.failure and not _holds(law.holds, calls[n], o.value) for n, o in zip(numbers, own, strict=True)):
            yield Finding(law.name, law.said.of(language))
    if has_nan(outcome.value) and not has_nan(right):
        yield Finding("nan", words.NAN.of(language))


def _holds(law: Callable[[Case, object], bool], call: Asked, value: object) -> bool:
    try:
        return law(_case(call), value)
    except Exception:  # a value of another kind, of which the law says nothing
        return True


def _failure(failure: Failure, function: str, language: str) -> Finding:
    """A sentence for what ended a call."""
    name = {
        "NotImplementedError": "empty",
        "missing": "missing",
        "slow": "slow",
        "ended": "crash",
        "exit": "crash",
        "SystemExit": "exit",
        "MemoryError": "memory",
        "SyntaxError": "syntax",
        "untrained": "untrained",
        "IndentationError": "syntax",
        "TabError": "syntax",
    }.get(failure.kind, "error")
    if "allocate memory" in failure.words:
        name = "memory"
    place = words.LINE.of(language).format(line=failure.line) if failure.line else ""
    text = words.FAILURES[name].of(language)
    return Finding(
        name, text.format(function=function, kind=failure.kind, words=failure.words.split("\n")[0], place=place)
    )


def _of_another_kind(value: object, right: object, language: str) -> Finding | None:
    """A sentence where a result is no tensor though it should be one, or has another shape or type; else None."""
    if value is None:
        return Finding("none", words.NONE.of(language))
    mine, wanted = kind(value), kind(right)
    texts = {"mine": _tensors_in(mine, language), "wanted": _tensors_in(wanted, language)}
    if isinstance(right, float) and kind(value) in ("int", "float", "float32 tensor of shape ()"):
        return None
    if mine == wanted or {mine, wanted} == {"int", "float"}:
        if isinstance(right, list | tuple) and isinstance(value, list | tuple) and len(value) == len(right):
            pairs = zip(value, right, strict=True)
            return next((f for one, other in pairs if (f := _of_another_kind(one, other, language))), None)
        return None
    mine_shape, wanted_shape = getattr(value, "shape", None), getattr(right, "shape", None)
    if mine_shape is None or wanted_shape is None:
        name = "kind"
    elif mine_shape != wanted_shape:
        name = "shape"
    elif mine.startswith("float64") and wanted.startswith("float32"):
        return None
    else:
        name = "dtype"
    return Finding(name, words.KINDS[name].of(language).format(**texts))


def _tensors_in(text: str, language: str) -> str:
    """A text in which tensors are named by type and shape, in this language."""
    return re.sub(r"(\w+) tensor of shape (\([^)]*\))", words.KIND.of(language), text)


def _example(exercise: Exercise, outcome: Outcome, number: int, language: str) -> str:
    """The call that failed, what it gave and what is right."""
    call = calls_of(exercise)[number]
    if outcome.failure is not None and outcome.failure.kind in ("NotImplementedError", "missing", "SyntaxError"):
        return ""
    given = ", ".join(f"{name}={shown(value)}" for name, value in _case(call).items())
    if len(given) > _LONG:
        given = ", ".join(f"{name}={shown(value, 8)}" for name, value in _case(call).items())
    right = _expected(exercise.name)[number]
    lines = [words.INPUT.of(language).format(call=f"{call.function}({given})")]
    if outcome.failure is None:
        place = where(outcome.value, right)
        if place and len(shown(right)) > 100:
            lines.append(words.AT.of(language).format(at=place, mine=at(outcome.value, place), right=at(right, place)))
        else:
            lines.append(words.RESULTS.of(language).format(mine=shown(outcome.value), right=shown(right)))
    return _tensors_in("\n".join(lines), language)
