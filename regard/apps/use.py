"""The commands that use models: evaluate and score. Tasks are imported when needed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import Field

from regard.errors import TextError
from regard.search.table import Options

from .cli import cell, console_on, new_table, printable, say, status, takes, write, write_json
from .options import LANGUAGES, SEARCH, AsJson, BundlePath, Device, Flags, Json, Output, Resamples, With, computing

if TYPE_CHECKING:
    from rich.console import Console

    from regard.tasks.evaluate import Evaluation


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
        typer.Option(help="Untouched references, or labels; several files: several sets. None: perplexity."),
    ] = None,
    output: Output = None,
    with_: With = None,
    device: Device = "auto",
) -> None:
    """Translate a source and score the output against untouched references.

    Of a classifier it is the accuracy, of a language model the perplexity per token, word and character.
    """
    from regard.tasks.engine import reads_pairs
    from regard.tasks.evaluate import DEFAULT_METRICS, evaluate_lines
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
    if files:
        lines, sets = read_lines(source), [read_lines(file) for file in files]
    else:
        lines, sets = references_of(read_pairs(source, fields=data.fields, languages=data.languages))
    with status("translating") as tell:
        result = evaluate_lines(
            translator,
            lines,
            sets,
            options,
            metrics=judging.metric or DEFAULT_METRICS,
            groups=None if judging.groups is None else read_lines(judging.groups),
            resamples=judging.resamples,
            progress=lambda done: tell(f"translated {done:,} of {len(lines):,} lines"),
        )
    if output is not None:
        write_lines(output, result.hypotheses)
    if judging.as_json:
        named = {"bundle": str(bundle), "source": str(source), "reference": [*map(str, files)]}
        write_json({**named, **result.to_dict()})
    else:
        _show(result, console_on(sys.stdout))


def _show(result: Evaluation, console: Console) -> None:
    """The scores with their intervals and signatures, how the output was made and how fast."""
    table = new_table("metric", "value", "95 % interval", "unit")
    for score in result.scores.values():
        interval = f"{score.interval[0]:.2f} to {score.interval[1]:.2f}" if score.interval else ""
        table.add_row(score.name, f"{score.value:.2f}", interval, score.unit)
    console.print(table)
    for score in result.scores.values():
        say(console, f"{score.name}: {score.signature}", "dim")
    if result.groups:
        console.print()
        table = new_table("group", *result.scores)
        for group, scores in result.groups.items():
            table.add_row(cell(group), *(f"{scores[name].value:.2f}" for name in result.scores))
        console.print(table)
    made = result.decoding
    how = f"{made['samples']} samples" if made["samples"] else f"beam {made['beam']}"
    say(
        console,
        f"{result.lines:,} lines, {how}, penalty {made['penalty']} {made['alpha']}, {made['precision']} on "
        f"{made['device']}, {result.sentences_per_second:,.1f} sentences a second",
    )


def _measure(bundle: Path, source: Path, files: list[Path], options: Options, judging: Judging, device: str) -> None:
    from regard.language.measure import measure
    from regard.text import read_lines

    if len(files) > 1:
        raise TextError(f"{len(files)} files of labels were given; each line has one label: give one file.")
    labels = read_lines(files[0]) if files else None
    how = {"resamples": judging.resamples, "device": device, **computing(options)}
    found = measure(bundle, read_lines(source), labels, **how)
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
            write_json({"log_probability": scored.log_probability} | ({"tokens": each} if tokens else {}), None)
        else:
            cells = f"{scored.log_probability:.4f}", *(f"{token} {value:.4f}" for token, value in each)
            write("\t".join(cells) + "\n")
    say(console_on(sys.stderr), str(perplexity_of(found)))
