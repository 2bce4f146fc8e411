"""`regard.distill`: a teacher's translations of a training source, and a student trained on them.

Sequence-level knowledge distillation (Kim and Rush 2016): of each line the teacher's best translation; with references,
of its n best the one that is most like the reference (their sequence-level interpolation).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from regard import recipe as recipes
from regard.cluster.shards import measured
from regard.errors import ModelError, TextError
from regard.metrics import likeness
from regard.recipe import Recipe
from regard.search.table import Options
from regard.tasks.lines import check_counts
from regard.tasks.translation import Translation
from regard.text import read_lines, write_lines

from .records import Job, Record, checked, keep_card, known

Report = Callable[[Mapping[str, object]], None]


class Student(NamedTuple):
    """Who learns a teacher's translations, and what is made of it."""

    recipe: str | Path | Recipe
    run: str | Path  # directory of its run
    small: str | Path | None = None  # a bundle of it, to be made with weights in int8 and a shortlist


def distill(
    teacher: str | Path,
    source: str | Path,
    out: str | Path,
    *,
    reference: str | Path | None = None,
    by: Literal["bleu", "chrf"] = "bleu",
    student: Student | tuple[str | Path | Recipe, str | Path] | None = None,
    options: Options | None = None,
    report: Report | None = None,
    **given: object,
) -> Path:
    """Writes the teacher's translation of each line of `source` into `out`, line by line, and trains a student on them.

    reference: translations of the source; of the teacher's `n_best` the one most like its reference is taken, by
    sentence BLEU or chrF. student: a recipe, and the directory of its run; its source and target are these two files,
    all else is as it says. With `Student.small` it is then made small: weights in int8 (see `regard quantize`), and a
    shortlist learnt from what it was trained on. `options`, or their names as keywords, are as in
    `Translator.translate`. `report` hears "distill" events (lines done, of how many), then those of `regard.fit`, and
    "small" (the bytes of the small bundle).

    Returns `out`, the student's bundle, or its small one. An interrupted call, made again, goes on where it was: with
    the shards that are missing, or with the student's newest checkpoint. Raises TextError for lines that cannot be
    used, ModelError for options that do not fit.
    """
    options, out, tell = checked(Options.of(options, **given)), Path(out), report or (lambda event: None)
    if reference is None and options.n_best > 1:
        raise ModelError(
            f"n_best ({options.n_best}): of several the one most like the reference is taken; name a file of "
            "references, or leave n_best out."
        )
    if out.resolve() in {Path(file).resolve() for file in (source, reference) if file is not None}:
        raise TextError(f"--out {out}: is what is read; name a new file.")
    student = None if student is None else Student(*student)
    recipe = None if student is None else _recipe(student.recipe, Path(source), out)
    seen = None if reference is None else measured(Path(reference))[1]
    job = Job(teacher, source, options, reference=seen, by="" if reference is None else by)
    if reference is not None and options.n_best == 1 and job.translator.searching(options).draws < 2:
        raise ModelError(
            f"reference ({reference}): it chooses among several; give n_best or samples (4, say), or leave it out."
        )
    references = None if reference is None else read_lines(reference)
    if references is not None:
        check_counts([""] * job.count, references, "reference")
    if known((out,), job.wanted) is None:
        out.parent.mkdir(parents=True, exist_ok=True)
        record = _best(references, by, job.translator.languages.target) if references else _first

        def heard(done: int, of: int) -> None:
            tell({"event": "distill", "done": done, "of": of})

        with job.records(out, record, heard) as read:
            write_lines(out, map(str, read()))
            keep_card((out,), job.wanted, {"lines": job.count})
    if student is None or recipe is None:
        return out
    return _taught(recipe, student, Path(source), out, tell)


def _taught(recipe: Recipe, student: Student, source: Path, target: Path, tell: Report) -> Path:
    """The bundle of a student trained on these files, or the small one that is made of it."""
    from regard.tasks.fit import fit
    from regard.tuning.quantize import quantize
    from regard.tuning.shortlist import shortlist

    learnt = fit(recipe, student.run, resume=True, callbacks=[tell])
    if student.small is None:
        return learnt
    small = Path(student.small)
    quantize(learnt, small)
    shortlist(small, read_lines(source), read_lines(target))
    tell({"event": "small", "bytes": sum(file.stat().st_size for file in small.rglob("*") if file.is_file())})
    return small


def _recipe(given: str | Path | Recipe, source: Path, target: Path) -> Recipe:
    """The student's recipe, which reads the source and what the teacher makes of it."""
    recipe = given if isinstance(given, Recipe) else recipes.load(given)
    data = {"source": str(source), "target": str(target)}
    return recipes.changed(recipe, {"data": data}, name="the student's recipe")


def _first(number: int, line: str, found: Translation) -> object:
    return found.text


def _best(references: Sequence[str], by: str, language: str) -> Record:
    """Of the n best the one most like the reference; of equals the likelier one."""
    likes = likeness(by, language)

    def best(number: int, line: str, found: Translation) -> object:
        texts = [one.text for one in found.hypotheses] or [found.text]
        return max(texts, key=lambda text: likes(text, references[number]))

    return best
