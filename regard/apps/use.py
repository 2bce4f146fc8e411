"""The words that use models: translate, evaluate, score, inspect, doctor. Tasks are imported when a word is used."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.apps.terminal import console_on, write, write_json
from regard.errors import TextError

if TYPE_CHECKING:
    from regard.tasks.translate import Translation, Translator

__all__ = ["doctor", "evaluate", "inspect", "score", "translate"]

_CHUNK = 4096
"""Lines translated together; results do not depend on it."""

BundlePath = Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle's directory.")]
Beam = Annotated[int | None, typer.Option(help="Hypotheses kept a sentence; 1 is greedy search.")]
Alpha = Annotated[float | None, typer.Option(help="Exponent of the length penalty.")]
BatchSize = Annotated[int | None, typer.Option(help="Sentences decoded together.")]
From = Annotated[str | None, typer.Option("--from", metavar="CODE", help="Source language, to be checked.")]
To = Annotated[str | None, typer.Option("--to", metavar="CODE", help="Target language, where the bundle has several.")]
Independent = Annotated[
    bool,
    typer.Option(
        "--batch-independent/--no-batch-independent",
        help="A sentence's result does not depend on its neighbours; off is faster.",
    ),
]
Bfloat16 = Annotated[bool, typer.Option("--bfloat16", help="Multiply in bfloat16: faster where the hardware has it.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def translate(
    bundle: BundlePath,
    file: Annotated[
        str, typer.Argument(metavar="[FILE|-]", help="Text, one segment a line; - is standard input.")
    ] = "-",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file instead of standard output.")] = None,
    beam: Beam = None,
    alpha: Alpha = None,
    n_best: Annotated[int, typer.Option(help="Translations of each line: number, log-probability, text.")] = 1,
    scores: Annotated[bool, typer.Option("--scores", help="Put the log-probability before each line.")] = False,
    from_: From = None,
    to: To = None,
    batch_size: BatchSize = None,
    batch_independent: Independent = True,
    bfloat16: Bfloat16 = False,
    device: Device = "auto",
) -> None:
    """Translate text: a line in, a line out."""
    from regard.tasks.translate import load
    from regard.text import write_lines

    translator = load(bundle, device=device)
    options = {
        "beam": beam,
        "alpha": alpha,
        "n_best": n_best,
        "from_": from_,
        "to": to,
        "batch_size": batch_size,
        "batch_independent": batch_independent,
        "bfloat16": bfloat16,
    }

    def lines() -> Iterator[str]:
        for number, found in _translated(translator, file, options):
            yield from _lines_of(number, found, n_best, scores)

    if output is not None:
        write_lines(output, lines())
        return
    for line in lines():
        write(f"{line}\n")
        if sys.stdin.isatty() and file == "-":
            sys.stdout.flush()


def _translated(translator: Translator, file: str, options: dict[str, Any]) -> Iterator[tuple[int, Translation]]:
    """Each line's number and translation, a chunk at a time, so that a file may be of any length."""
    from regard.text import iter_lines

    typed = file == "-" and sys.stdin.isatty()
    lines = iter_lines(sys.stdin.buffer if file == "-" else file, allow_empty=file == "-")
    number = 1
    while chunk := list(islice(lines, 1 if typed else _CHUNK)):
        with _named(file):
            found = translator.translate(chunk, first_line=number, **options)
        yield from enumerate(found, start=number)
        number += len(chunk)


def _lines_of(number: int, found: Translation, n_best: int, scores: bool) -> Iterator[str]:
    if n_best > 1:
        for candidate in found.hypotheses:
            yield f"{number}\t{candidate.log_probability:.4f}\t{candidate.text}"
        if not found.hypotheses:
            yield f"{number}\t{found.log_probability:.4f}\t{found.text}"
    else:
        yield f"{found.log_probability:.4f}\t{found.text}" if scores else found.text


@contextmanager
def _named(file: str) -> Iterator[None]:
    """Puts the file's name before what is wrong with a line of it."""
    try:
        yield
    except TextError as error:
        raise TextError(f"{'standard input' if file == '-' else file}: {error}") from None


def evaluate(
    bundle: BundlePath,
    source: Annotated[Path, typer.Option(help="Source lines.")],
    reference: Annotated[list[Path], typer.Option(help="Untouched references; give several files for several sets.")],
    metric: Annotated[
        list[str] | None,
        typer.Option(help="bleu (always), chrf, chrf++, ter, rouge, exact-match, perplexity; may be repeated."),
    ] = None,
    groups: Annotated[
        Path | None, typer.Option(help="Labels of each line, between tabs; each label is scored on its own too.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the translations here.")] = None,
    resamples: Annotated[int, typer.Option(help="Bootstrap samples behind the intervals; 0: no intervals.")] = 1000,
    beam: Beam = None,
    alpha: Alpha = None,
    from_: From = None,
    to: To = None,
    batch_size: BatchSize = None,
    batch_independent: Independent = True,
    bfloat16: Bfloat16 = False,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Translate a source and score the output against untouched references."""
    from regard.tasks.evaluate import DEFAULT_METRICS, evaluate_lines
    from regard.tasks.translate import load
    from regard.text import read_lines, write_lines

    translator = load(bundle, device=device)
    first, *more = [read_lines(file) for file in reference]
    lines = read_lines(source)
    with console_on(sys.stderr).status("translating") as status:
        result = evaluate_lines(
            translator,
            lines,
            first,
            metrics=metric or DEFAULT_METRICS,
            more_references=more,
            groups=None if groups is None else read_lines(groups),
            beam=beam,
            alpha=alpha,
            batch_size=batch_size,
            from_=from_,
            to=to,
            batch_independent=batch_independent,
            bfloat16=bfloat16,
            resamples=resamples,
            progress=lambda done: status.update(f"translated {done:,} of {len(lines):,} lines"),
        )
    if output is not None:
        write_lines(output, result.hypotheses)
    if as_json:
        write_json(
            {"bundle": str(bundle), "source": str(source), "reference": [*map(str, reference)], **result.to_dict()}
        )
        return
    from regard.apps.show import show_evaluation

    show_evaluation(result, console_on(sys.stdout))


def score(
    bundle: BundlePath,
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="Source lines.")],
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="Translations to score, line by line.")],
    pieces: Annotated[bool, typer.Option("--pieces", help="The log-probability of each piece too.")] = False,
    from_: From = None,
    to: To = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Lines scored together.")] = 32,
    batch_independent: Independent = True,
    bfloat16: Bfloat16 = False,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """The log-probability of given translations, a line each; the perplexity at the end goes to standard error."""
    from regard.tasks.score import perplexity_of, score_lines
    from regard.tasks.translate import load
    from regard.text import read_lines

    found = score_lines(
        load(bundle, device=device),
        read_lines(source),
        read_lines(target),
        from_=from_,
        to=to,
        batch_size=batch_size,
        batch_independent=batch_independent,
        bfloat16=bfloat16,
    )
    for scored in found:
        if as_json:
            record: dict[str, Any] = {"log_probability": scored.log_probability}
            if pieces:
                record["pieces"] = list(zip(scored.pieces, scored.log_probabilities, strict=True))
            write(json.dumps(record, ensure_ascii=False) + "\n")
        else:
            each = zip(scored.pieces, scored.log_probabilities, strict=True)
            tail = "".join(f"\t{piece} {value:.4f}" for piece, value in each) if pieces else ""
            write(f"{scored.log_probability:.4f}{tail}\n")
    console_on(sys.stderr).print(str(perplexity_of(found)), markup=False, highlight=False, soft_wrap=True)


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
        return
    from regard.apps.show import show_inspection

    show_inspection(found, console_on(sys.stdout))


def doctor(as_json: Json = False) -> None:
    """This machine: versions, processor, kernels chosen and why."""
    from regard.tasks.doctor import doctor as examine

    findings = examine()
    if as_json:
        write_json([finding.to_dict() for finding in findings])
        return
    from regard.apps.show import show_findings

    show_findings(findings, console_on(sys.stdout))
