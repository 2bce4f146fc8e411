"""`regard estimate`: a figure for each translation, an estimator learnt, or how far estimates and judges agree."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Annotated

import typer
from pydantic import Field

from regard.apps.cli import check_output, console_on, say, status, takes, write, write_json
from regard.apps.options import AsJson, BundlePath, Flags
from regard.errors import ModelError, TextError


class Estimating(Flags):
    """With what is estimated, and what is learnt or measured."""

    estimator: Path | None = Field(None, description="what --learn wrote; without it the tokens' mean probability")
    reverse: Path | None = Field(None, description="a bundle of the other direction, whose opinion counts too")
    learn: Path | None = Field(None, description="judgements, a number a line, to learn an estimator from; with --out")
    out: Path | None = Field(None, description="file of the estimator that is learnt")
    gold: Path | None = Field(None, description="judgements, a number a line, to compare the estimates with")
    as_json: AsJson = False


@takes(settings=Estimating)
def estimate(
    bundle: BundlePath,
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="Source lines.")],
    translation: Annotated[Path, typer.Argument(metavar="TRANSLATION", help="Translations, whoever wrote them.")],
    settings: Estimating,
) -> None:
    """How good translations are, without a reference: a figure for each line."""
    from regard.text import read_lines

    from .estimate import Estimator, agreement, learn_estimator
    from .estimate import estimate as make

    s = settings
    if (s.learn is None) != (s.out is None) or (s.learn and (s.estimator or s.gold)):
        raise ModelError("--learn and --out go together, and without --estimator and --gold.")
    check_output(s.out)
    lines, texts = read_lines(source), read_lines(translation)
    errors = console_on(sys.stderr)
    if s.learn is not None and s.out is not None:
        judged = _numbers(s.learn)
        with status("reading"):
            learnt = learn_estimator(bundle, lines, texts, judged, reverse=s.reverse)
        learnt.write(s.out)
        if s.as_json:
            write_json(learnt.model_dump())
            return
        figures = f"Pearson {learnt.pearson:.3f}, Spearman {learnt.spearman:.3f}, mean error {learnt.error:.3f}"
        say(errors, f"On lines that it was not learnt from: {figures}.")
        write(f"{s.out}\n")
        return
    estimator = None if s.estimator is None else Estimator.read(s.estimator)
    with status("reading"):
        found = make(bundle, lines, texts, estimator=estimator, reverse=s.reverse)
    agreed = None if s.gold is None else agreement(found, _numbers(s.gold), same_scale=estimator is not None)
    if s.as_json:
        write_json({"estimates": found, "agreement": None if agreed is None else agreed.to_dict()})
        return
    write("".join(f"{value:.4f}\n" for value in found))
    if agreed is not None:
        error = "" if agreed.error is None else f", mean error {agreed.error:.3f}"
        say(errors, f"{agreed.lines:,} lines: Pearson {agreed.pearson:.3f}, Spearman {agreed.spearman:.3f}{error}")


def _numbers(file: Path) -> list[float]:
    """A number of each line. Raises TextError, naming the line, for what is none."""
    from regard.text import read_lines

    found = []
    for number, line in enumerate(read_lines(file), start=1):
        try:
            value = float(line)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise TextError(f"{file}: line {number} ({line[:40]!r}) is no number; each line is one judgement.")
        found.append(value)
    return found
