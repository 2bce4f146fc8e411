"""`regard read`: a reader of passages trained, asked and scored; and synthetic questions to try one with."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import Field

from regard.apps.cli import console_on, say, takes, write, write_json
from regard.apps.options import AsJson, Flags
from regard.apps.training import Set, read_recipe
from regard.errors import DataError, Interrupted, TextError

if TYPE_CHECKING:
    from regard.train import Event

_ACTIONS = {
    "train": ("RECIPE.toml TRAIN.json DEV.json", 3),
    "answer": ("BUNDLE [QUESTIONS.json]", 2),
    "evaluate": ("BUNDLE QUESTIONS.json", 2),
    "synthesize": ("FILE", 1),
}


class Reading(Flags):
    """What is trained, asked, scored or made."""

    out: Path | None = Field(None, description="of train: the run's directory; of answer: a file of answers by id")
    resume: bool = Field(False, description="of train: go on from the newest checkpoint")
    question: str = Field("", description="of answer: a question, in the place of a file")
    passage: str = Field("", description="of answer: the passage to that question")
    threshold: float = Field(0.0, description="of answer, evaluate: margin that a span needs above no answer")
    always: bool = Field(False, description="of answer, evaluate: a span in any case, as SQuAD 1.1 has it")
    longest: int = Field(30, ge=1, le=1000, description="of answer, evaluate: tokens of an answer, the most")
    count: int = Field(1000, ge=1, le=1_000_000, description="of synthesize: questions")
    part: str = Field("train", description="of synthesize: train, valid or test, which have names of their own")
    seed: int = Field(1, ge=0, description="of synthesize")
    as_json: AsJson = False


@takes(reading=Reading)
def read(
    words: Annotated[
        list[str], typer.Argument(metavar="train|answer|evaluate|synthesize FILE...", help="What to do, and with what.")
    ],
    reading: Reading,
    settings: Set = None,
) -> None:
    """Questions answered by a span of a passage, in SQuAD's JSON.

    train RECIPE.toml TRAIN.json DEV.json --out RUN: a reader.   answer BUNDLE QUESTIONS.json: its answers.
    evaluate BUNDLE QUESTIONS.json: exact match and F1.   synthesize FILE: questions made from templates.
    """
    action, given = words[0], words[1:]
    if action not in _ACTIONS:
        raise DataError(f"regard read {action[:40]!r}: is unknown; choose {', '.join(_ACTIONS)}.")
    form, most = _ACTIONS[action]
    if not (most - ("[" in form)) <= len(given) <= most:
        raise DataError(f"regard read {action} takes {form}, and {len(given)} are given.")
    if action == "train":
        _train(given, reading, settings)
        return
    if settings:
        raise DataError(f"--set replaces a value of the recipe of train; regard read {action} has none.")
    {"answer": _answer, "evaluate": _evaluate, "synthesize": _synthesize}[action](given, reading)


def _train(given: list[str], reading: Reading, settings: list[str] | None) -> None:
    from . import family
    from .learn import learn

    family.add()

    if reading.out is None:
        raise DataError("regard read train needs --out, the run's directory.")
    errors = console_on(sys.stderr)

    def report(event: Event) -> None:
        if event["event"] == "start":
            more = f", going on from {event['resumed_from']}" if event["resumed_from"] else ""
            sizes = f"{event['parameters']:,} parameters, {event['tokens']:,} tokens, {event['questions']:,} questions"
            say(errors, f"{sizes}{more}; Ctrl-C saves and stops")
        elif event["event"] == "validate":
            figures = f"exact match {event['exact']:.2f}, F1 {event['f1']:.2f}, loss {event['loss']:.4f}"
            say(errors, f"update {event['update']:,}: {figures}{' (best so far)' if event['improved'] else ''}")

    try:
        recipe = read_recipe(Path(given[0]), settings)
        bundle = learn(recipe, reading.out, given[1], given[2], resume=reading.resume, report=report)
    except (Interrupted, KeyboardInterrupt) as stop:
        held = f"; everything is saved in {stop.checkpoint}" if isinstance(stop, Interrupted) else " at once"
        say(errors, f"Stopped{held}. The same command with --resume goes on.")
        raise typer.Exit(130) from None
    write(f"{bundle}\n")


def _answer(given: list[str], reading: Reading) -> None:
    from regard.machine import write_atomically

    from .answer import answer
    from .squad import Question, read_questions

    if (len(given) == 2) == bool(reading.question) or bool(reading.question) != bool(reading.passage):
        raise TextError("give a file of questions, or --question with --passage.")
    questions = read_questions(given[1]) if len(given) == 2 else [Question(reading.question, reading.passage, id="1")]
    wanted = {"threshold": reading.threshold, "always": reading.always, "longest": reading.longest}
    answers = answer(given[0], questions, **wanted)  # type: ignore[arg-type]  # of several types
    if reading.out is not None:
        found = {each.id: a.text for each, a in zip(questions, answers, strict=True)}
        write_atomically(reading.out, json.dumps(found, ensure_ascii=False, indent=1) + "\n")
    elif reading.as_json:
        write_json([{"id": q.id, **a.to_dict()} for q, a in zip(questions, answers, strict=True)])
    else:
        write("".join(f"{each.text or '(no answer)'}\t{each.probability:.3f}\n" for each in answers))


def _evaluate(given: list[str], reading: Reading) -> None:
    from .answer import answer
    from .score import scores_of
    from .squad import read_questions

    questions = read_questions(given[1])
    found = answer(given[0], questions, threshold=reading.threshold, always=reading.always, longest=reading.longest)
    scores = scores_of(questions, {q.id: a.text for q, a in zip(questions, found, strict=True)})
    if reading.as_json:
        write_json(scores.to_dict())
        return
    write(f"{scores.questions:,} questions: exact match {scores.exact:.2f}, F1 {scores.f1:.2f}\n")
    if scores.answerable_exact is not None:
        figures = f"exact match {scores.answerable_exact:.2f}, F1 {scores.answerable_f1:.2f}"
        write(f"{scores.answerable:,} with an answer: {figures}\n")
    if scores.unanswerable_exact is not None:
        write(f"{scores.questions - scores.answerable:,} without: {scores.unanswerable_exact:.2f} left unanswered\n")


def _synthesize(given: list[str], reading: Reading) -> None:
    from .squad import write_questions
    from .synthetic import synthesize

    write_questions(given[0], synthesize(reading.count, part=reading.part, seed=reading.seed))
    write(f"{given[0]}\n")
