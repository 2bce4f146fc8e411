"""The commands that use models: evaluate, score, align, calibrate, inspect, doctor. Tasks are imported when needed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer
from pydantic import Field

from regard.apps.cli import console_on, printable, say, takes, write, write_json, write_record
from regard.apps.options import (
    LANGUAGES,
    SEARCH,
    AsJson,
    BundlePath,
    Device,
    Flags,
    Json,
    Output,
    Resamples,
    With,
    computing,
)
from regard.apps.show import show_calibration, show_evaluation, show_findings, show_inspection
from regard.errors import TextError
from regard.search.table import Options


class Judging(Flags):
    """What is measured of translations, or of labels, and how that is shown."""

    metric: tuple[str, ...] = Field(
        (),
        description="bleu (always), chrf, chrf++, ter, rouge, exact-match, per, wer, perplexity, bleu-moses, "
        "bleu-moses-lc, bleu-multi30k, bleu-compound; may be repeated",
    )
    groups: Path | None = Field(
        None, description="a file of labels of each line, between tabs; each label is scored on its own too"
    )
    resamples: Resamples = 1000
    as_json: AsJson = False


@takes(*(key for key in SEARCH if key != "groups"), "set", *LANGUAGES, judging=Judging)  # --groups names a file here
def evaluate(
    bundle: BundlePath,
    options: Options,
    judging: Judging,
    source: Annotated[Path, typer.Option(help="Source lines; or a .tsv or .jsonl file of both sides.")],
    reference: Annotated[
        list[Path] | None,
        typer.Option(
            help="Untouched references, or labels; several files for several sets. None for the perplexity of a text."
        ),
    ] = None,
    output: Output = None,
    with_: With = None,
    device: Device = "auto",
) -> None:
    """Translate a source and score the output against untouched references.

    Of a classifier it is the accuracy, of a language model the perplexity per token, word and character.
    """
    from regard.tasks.evaluate import DEFAULT_METRICS, evaluate_lines
    from regard.tasks.open import reads_pairs
    from regard.tasks.translate import load
    from regard.text.lines import holds_both, read_lines, read_pairs, references_of, write_lines

    files = reference or []
    if not reads_pairs(bundle):
        _measure(bundle, source, files, options, judging, device)
        return
    if not (files or holds_both(source.name)):
        raise TextError("a translation is scored against references; name a file of them with --reference.")
    translator = load(bundle, device=device, with_=with_ or ())
    data = translator.recipe.data
    lines, sets = (
        (read_lines(source), [read_lines(file) for file in files])
        if files
        else references_of(read_pairs(source, fields=data.fields, languages=data.languages))
    )
    with console_on(sys.stderr).status("translating") as status:
        result = evaluate_lines(
            translator,
            lines,
            sets,
            options,
            metrics=judging.metric or DEFAULT_METRICS,
            groups=None if judging.groups is None else read_lines(judging.groups),
            resamples=judging.resamples,
            progress=lambda done: status.update(f"translated {done:,} of {len(lines):,} lines"),
        )
    if output is not None:
        write_lines(output, result.hypotheses)
    if judging.as_json:
        named = {"bundle": str(bundle), "source": str(source), "reference": [*map(str, files)]}
        write_json({**named, **result.to_dict()})
    else:
        show_evaluation(result, console_on(sys.stdout))


def _measure(
    bundle: Path, source: Path, reference: list[Path], options: Options, judging: Judging, device: str
) -> None:
    from regard.tasks.measure import measure
    from regard.text import read_lines

    if len(reference) > 1:
        raise TextError(f"{len(reference)} files of labels were given; each line has one label: give one file.")
    labels = read_lines(reference[0]) if reference else None
    found = measure(
        bundle, read_lines(source), labels, resamples=judging.resamples, device=device, **computing(options)
    )
    if judging.as_json:
        write_json({"bundle": str(bundle), "source": str(source), "scores": {k: s.to_dict() for k, s in found.items()}})
    else:
        write("".join(f"{printable(str(score))}\n" for score in found.values()))


@takes("batch_size", "precision", *LANGUAGES)
def score(
    bundle: BundlePath,
    options: Options,
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="Source lines.")],
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="Translations to score, line by line.")],
    tokens: Annotated[bool, typer.Option("--tokens", help="The log-probability of each token too.")] = False,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """The log-probability of given translations, a line each; the perplexity at the end goes to standard error."""
    from regard.tasks.forced import perplexity_of, score_lines
    from regard.tasks.translate import load
    from regard.text import read_lines

    translator, sides = load(bundle, device=device), (read_lines(source), read_lines(target))
    found = score_lines(translator, *sides, from_=options.from_, to=options.to, **computing(options))
    for scored in found:
        each = list(zip(scored.tokens, scored.log_probabilities, strict=True)) if tokens else []
        if as_json:
            write_record({"log_probability": scored.log_probability} | ({"tokens": each} if tokens else {}))
        else:
            cells = f"{scored.log_probability:.4f}", *(f"{token} {value:.4f}" for token, value in each)
            write("\t".join(cells) + "\n")
    say(console_on(sys.stderr), str(perplexity_of(found)))


class Aligning(Flags):
    """How links are read off attention, what they are compared with, and how they are shown."""

    reverse: Path | None = Field(None, description="a bundle that translates the other way")
    symmetry: str = Field(
        "grow-diag",
        description="how the choices of source and target words are joined: target (those of target words alone), "
        "intersection, union, grow-diag, grow-diag-final",
    )
    rule: Literal["output", "input"] = Field(
        "output", description="the step that is looked at: whose input, or output, is the token"
    )
    layer: int = Field(0, description="the layer that is looked at, from 1; 0 for the mean of all")
    head: int = Field(0, description="the head of the layer, from 1; 0 for the mean of all")
    share: bool = Field(True, description="divide weights by what their source word gets in all")
    reading: Path | None = Field(None, description="all of these as --choose wrote them")
    gold: Path | None = Field(None, description="show the alignment error rate against these links")
    gold_base: int = Field(1, ge=0, le=1, description="the number of the first word in them")
    choose: Path | None = Field(None, description="choose rule and layer by --gold, and write them here")
    resamples: Resamples = 1000
    batch_size: int = Field(32, ge=1, description="lines read together")
    as_json: AsJson = False


@takes(*LANGUAGES, asked=Aligning)
def align(
    bundle: BundlePath,
    options: Options,
    asked: Aligning,
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="Source lines; or lines `source ||| target`.")],
    target: Annotated[Path | None, typer.Argument(metavar="[TARGET]", help="Their translations, line by line.")] = None,
    output: Output = None,
    device: Device = "auto",
) -> None:
    """Which word translates which: links like 0-0 1-2, a line for a line; with --gold, how good they are."""
    from regard.metrics.aer import alignment_error_rate
    from regard.tasks import align as task
    from regard.tasks.translate import load
    from regard.text import write_lines

    if asked.choose is not None and asked.gold is None:
        raise TextError("--choose needs --gold: layers are compared by their error rate against gold links.")
    sources, targets = task.read_lines_of(source, target)
    known = None if asked.gold is None else task.read_gold(asked.gold, len(sources), asked.gold_base)
    translator = load(bundle, device=device)
    back = None if asked.reverse is None else load(asked.reverse, device=device)
    to, size = (options.from_ or "", options.to or ""), asked.batch_size
    choice = task.AlignmentChoice(share=asked.share, symmetry=asked.symmetry)
    if asked.choose is not None and known is not None:
        choice = task.choose(translator, back, sources, targets, known, how=choice, languages=to, batch_size=size)
        task.write_choice(asked.choose, choice)
    elif asked.reading is not None:
        choice = task.read_choice(asked.reading)
    else:
        one = (task.Reading(asked.rule, asked.layer, asked.head),)
        choice = choice.model_copy(update={"readings": one, "reverse": one if back else ()})
    found = task.align_lines(translator, sources, targets, choice=choice, reverse=back, languages=to, batch_size=size)
    lines = [json.dumps(a.to_dict(), ensure_ascii=False) if asked.as_json else task.pharaoh(a.links) for a in found]
    if output is not None:
        write_lines(output, lines)
    elif known is None:
        write("".join(f"{line}\n" for line in lines))
    if known is None:
        return
    scores = alignment_error_rate([a.links for a in found], known, resamples=asked.resamples)
    if asked.as_json:
        write_json({"scores": {name: s.to_dict() for name, s in scores.items()}, **choice.model_dump()})
        return
    for name, readings in (("readings", choice.readings), ("reverse", choice.reverse)):
        if readings:
            write(f"{name}: {' and '.join(map(str, readings))}\n")
    write("".join(f"{score}\n" for score in scores.values()))


@takes(*LANGUAGES)
def calibrate(
    bundle: BundlePath,
    options: Options,
    source: Annotated[Path, typer.Option(help="Source lines that the model was not trained on.")],
    reference: Annotated[Path, typer.Option("--reference", "--target", help="Their translations.")],
    plot: Annotated[Path | None, typer.Option(help="Draw what was found in this file: .svg, .png or .pdf.")] = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Measure how far a model's confidence may be believed, put it right, and keep that in the bundle."""
    from regard import pictures
    from regard.bundle import add_calibration
    from regard.tasks.translate import load
    from regard.text import read_lines
    from regard.tuning.calibrate import calibrate as measure

    translator = load(bundle, device=device)
    lines, references = read_lines(source), read_lines(reference)
    with console_on(sys.stderr).status("reading") as status:
        found = measure(translator, lines, references, from_=options.from_, to=options.to, progress=status.update)
    if translator.bundle is not None:
        add_calibration(translator.bundle, found)
    if plot is not None:
        pictures.reliability(found.report).save(plot)
    if as_json:
        write_json(found.model_dump(mode="json"))
    else:
        show_calibration(found, console_on(sys.stdout))


def inspect(
    bundle: BundlePath,
    verify: Annotated[bool, typer.Option("--verify", help="Translate the golden sentences again and compare.")] = False,
    as_json: Json = False,
) -> None:
    """What a bundle is, where it came from, how good it is; always checks every file."""
    from regard.tasks.inspect import inspect as look

    found = look(bundle, again=verify)
    if as_json:
        write_json(found.to_dict())
    else:
        show_inspection(found, console_on(sys.stdout))


def doctor(
    bundle: Annotated[Path | None, typer.Argument(metavar="[BUNDLE]", help="A bundle's directory.")] = None,
    as_json: Json = False,
) -> None:
    """This machine: versions, processor, kernels chosen and why; and what translates a bundle here."""
    from regard.tasks.doctor import doctor as examine

    findings = examine(bundle=bundle)
    if as_json:
        write_json([finding.to_dict() for finding in findings])
    else:
        show_findings(findings, console_on(sys.stdout))
