"""The words that use models: translate, evaluate, score, inspect, doctor. Tasks are imported when a word is used."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.apps.terminal import console_on, say, write, write_json
from regard.errors import ModelError, TextError

if TYPE_CHECKING:
    from regard.tasks.long import Translate
    from regard.tasks.translate import Translation, Translator

__all__ = ["align", "calibrate", "doctor", "evaluate", "inspect", "score", "translate"]

_BEAM, DRAWS, _RULES = "Beam", "Draws", "What translations must keep"
"""Headings of `--help`."""

_CHUNK = 4096
"""Lines translated together; results do not depend on it."""

BundlePath = Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle's directory.")]
Beam = Annotated[int | None, typer.Option(help="Hypotheses kept a sentence; 1 is greedy search.")]
Alpha = Annotated[float | None, typer.Option(help="Exponent of the length penalty.")]
With = Annotated[
    list[Path] | None,
    typer.Option("--with", metavar="BUNDLE", help="One more model of an ensemble; may be repeated."),
]
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
Precision = Annotated[
    str | None, typer.Option(help="Of products on CPUs: float32, bfloat16, int8, or auto (int8 where it is fast).")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Temperature = Annotated[
    float | None, typer.Option(help="Below 1 likely tokens are drawn more often.", rich_help_panel=DRAWS)
]
TopK = Annotated[int | None, typer.Option(help="Draw among so many tokens.", rich_help_panel=DRAWS)]
TopP = Annotated[
    float | None, typer.Option(help="Draw among the likeliest that hold this probability.", rich_help_panel=DRAWS)
]
Seed = Annotated[int | None, typer.Option(help="Of the draws.", rich_help_panel=DRAWS)]


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
    confidence: Annotated[
        bool, typer.Option("--confidence", help="How sure each word is; prints a JSON object a line.")
    ] = False,
    alignment: Annotated[
        bool, typer.Option("--alignment", help="Which word comes from which; prints a JSON object a line.")
    ] = False,
    attention: Annotated[
        bool, typer.Option("--attention", help="Weights between tokens; prints a JSON object a line.")
    ] = False,
    replace_unknown: Annotated[
        bool, typer.Option("--replace-unknown", help="Put the source word looked at most for each unknown word.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")] = False,
    stream: Annotated[
        bool, typer.Option("--stream", help="Show each translation as it comes, token by token.")
    ] = False,
    with_: With = None,
    ensemble: Annotated[str | None, typer.Option(help="Average probabilities (default) or logs.")] = None,
    penalty: Annotated[str | None, typer.Option(help="For length: gnmt, power or none.", rich_help_panel=_BEAM)] = None,
    stop: Annotated[
        str | None, typer.Option(help="When a beam stops: bound, first, beam or full.", rich_help_panel=_BEAM)
    ] = None,
    groups: Annotated[int | None, typer.Option(help="Groups of a diverse beam.", rich_help_panel=_BEAM)] = None,
    diversity: Annotated[
        float | None, typer.Option(help="What a token loses for each earlier group with it.", rich_help_panel=_BEAM)
    ] = None,
    coverage: Annotated[float | None, typer.Option(help="Beta of the coverage penalty.", rich_help_panel=_BEAM)] = None,
    samples: Annotated[
        int | None, typer.Option(help="Draw so many translations of each line.", rich_help_panel=DRAWS)
    ] = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = None,
    mbr: Annotated[
        str | None,
        typer.Option(help="Choose what the others are most like, by chrf or bleu.", rich_help_panel=DRAWS),
    ] = None,
    include: Annotated[
        list[str] | None, typer.Option(help="A phrase that must occur; may be repeated.", rich_help_panel=_RULES)
    ] = None,
    forbid: Annotated[
        list[str] | None, typer.Option(help="A phrase that must not; may be repeated.", rich_help_panel=_RULES)
    ] = None,
    prefix: Annotated[str, typer.Option(help="What translations begin with.", rich_help_panel=_RULES)] = "",
    glossary: Annotated[
        Path | None, typer.Option(help="Lines of a source term, a tab, the term required.", rich_help_panel=_RULES)
    ] = None,
    keep_placeholders: Annotated[
        bool,
        typer.Option("--keep-placeholders", help="Keep {name}, <x1>, %s and URLs as they are.", rich_help_panel=_RULES),
    ] = False,
    min_length: Annotated[
        int | None, typer.Option(help="Fewest tokens, the end counted.", rich_help_panel=_RULES)
    ] = None,
    max_length: Annotated[
        int | None, typer.Option(help="Most tokens, the end counted.", rich_help_panel=_RULES)
    ] = None,
    no_repeat_ngram_size: Annotated[
        int | None, typer.Option(help="No so many tokens in a row occur twice.", rich_help_panel=_RULES)
    ] = None,
    from_: From = None,
    to: To = None,
    shortlist: Annotated[
        bool | None, typer.Option("--shortlist/--no-shortlist", help="Search over the tokens that go with a line's.")
    ] = None,
    batch_size: BatchSize = None,
    split: Annotated[
        bool, typer.Option("--split", help="Cut every line into sentences, not only those too long for the model.")
    ] = False,
    batch_independent: Independent = True,
    bfloat16: Bfloat16 = False,
    precision: Precision = None,
    device: Device = "auto",
) -> None:
    """Translate text: a line in, a line out."""
    from regard.tasks.constraints import Constraints, read_glossary
    from regard.tasks.translate import load
    from regard.text import read_lines, write_lines

    search = {
        "ensemble": ensemble,
        "penalty": penalty,
        "stop": stop,
        "groups": groups,
        "diversity": diversity,
        "coverage": coverage,
        "samples": samples,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "seed": seed,
        "mbr": mbr,
        "min_length": min_length,
        "max_length": max_length,
        "no_repeat_ngram_size": no_repeat_ngram_size,
        "shortlist": shortlist,
        "precision": precision,
    }
    options: dict[str, Any] = {
        "beam": beam,
        "search": {key: value for key, value in search.items() if value is not None},
        "constraints": Constraints(
            include=tuple(include or ()),
            forbid=tuple(forbid or ()),
            prefix=prefix,
            glossary=read_glossary(read_lines(glossary), str(glossary)) if glossary else (),
            placeholders=keep_placeholders,
        ),
        "from_": from_,
        "to": to,
        "batch_independent": batch_independent,
        "bfloat16": bfloat16,
    }
    if alpha is not None:
        options["search"]["alpha"] = alpha
    several = n_best > 1 or ((samples or 1) > 1 and mbr in (None, "none"))
    details = {"confidence": confidence, "alignment": alignment, "attention": attention}
    as_json = as_json or any(details.values())
    if stream and (several or scores or output or as_json or replace_unknown):
        raise ModelError("--stream shows one translation of each line as it comes; leave out what asks for more.")
    # A line's draws, prefix and phrases belong to the line, so it is not cut into sentences where they are asked for.
    whole = bool(samples or include or prefix)
    if split and (whole or stream):
        raise ModelError("--split cuts lines, and --samples, --include, --prefix and --stream speak of whole lines.")
    translator = load(bundle, device=device, with_=with_ or ())
    if stream:
        _stream(translator, file, options)
        return
    options |= {"n_best": n_best, "batch_size": batch_size, "replace_unknown": replace_unknown, **details}

    def lines() -> Iterator[str]:
        for number, found in _translated(translator, file, options, split, whole):
            if as_json:
                yield json.dumps({"line": number, **found.to_dict()}, ensure_ascii=False)
            else:
                yield from _lines_of(number, found, several, scores)

    if output is not None:
        write_lines(output, lines())
        return
    for line in lines():
        write(f"{line}\n")
        if sys.stdin.isatty() and file == "-":
            sys.stdout.flush()


def _stream(translator: Translator, file: str, options: dict[str, Any]) -> None:
    """Writes each line's translation as it comes."""
    from regard.text import iter_lines

    lines = iter_lines(sys.stdin.buffer if file == "-" else file, allow_empty=file == "-")
    for number, line in enumerate(lines, start=1):
        with _named(file):
            for part in translator.stream(line, number=number, **options):
                write(part)
                sys.stdout.flush()
        write("\n")


def _translated(
    translator: Translator, file: str, options: dict[str, Any], split: bool = False, whole: bool = False
) -> Iterator[tuple[int, Translation]]:
    """Each line's number and translation, a chunk at a time, so that a file may be of any length."""
    from regard.tasks.long import translate_long
    from regard.text import iter_lines

    typed = file == "-" and sys.stdin.isatty()
    lines = iter_lines(sys.stdin.buffer if file == "-" else file, allow_empty=file == "-")
    number = 1
    while chunk := list(islice(lines, 1 if typed else _CHUNK)):
        with _named(file):
            translate: Translate = partial(translator.translate, first_line=number, **options)
            found = (
                translate(chunk)
                if whole
                else translate_long(translator, chunk, translate, always=split, to=options.get("to"), first_line=number)
            )
        yield from enumerate(found, start=number)
        number += len(chunk)


def _lines_of(number: int, found: Translation, several: bool, scores: bool) -> Iterator[str]:
    if several:
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
    source: Annotated[Path, typer.Option(help="Source lines; or a .tsv or .jsonl file of both sides.")],
    reference: Annotated[
        list[Path] | None,
        typer.Option(
            help="Untouched references, or labels; several files for several sets. None for the perplexity of a text."
        ),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="bleu (always), chrf, chrf++, ter, rouge, exact-match, per, wer, perplexity; may be repeated."
        ),
    ] = None,
    groups: Annotated[
        Path | None, typer.Option(help="Labels of each line, between tabs; each label is scored on its own too.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the translations here.")] = None,
    resamples: Annotated[int, typer.Option(help="Bootstrap samples behind the intervals; 0: no intervals.")] = 1000,
    beam: Beam = None,
    alpha: Alpha = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any key of a recipe's [search]; may be repeated."),
    ] = None,
    with_: With = None,
    from_: From = None,
    to: To = None,
    batch_size: BatchSize = None,
    batch_independent: Independent = True,
    bfloat16: Bfloat16 = False,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Translate a source and score the output against untouched references.

    Of a classifier it is the accuracy, of a language model the perplexity per token, word and character.
    """
    from regard.tasks.evaluate import DEFAULT_METRICS, evaluate_lines
    from regard.tasks.open import reads_pairs
    from regard.tasks.translate import load
    from regard.text.formats import holds_both, read_pairs
    from regard.text.lines import read_lines, references_of, write_lines

    if not reads_pairs(bundle):
        _measure(bundle, source, reference or [], resamples, batch_size, batch_independent, device, as_json)
        return
    both = not reference and holds_both(source.name)
    if not reference and not both:
        raise TextError("a translation is scored against references; name a file of them with --reference.")
    search = {key.removeprefix("search."): value for key, _, value in (each.partition("=") for each in set_ or ())}
    translator = load(bundle, device=device, with_=with_ or ())
    if both:
        data = translator.recipe.data
        lines, (first, *more) = references_of(read_pairs(source, fields=data.fields, languages=data.languages))
    else:
        lines, (first, *more) = read_lines(source), [read_lines(file) for file in reference or ()]
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
            search=search,
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
            {
                "bundle": str(bundle),
                "source": str(source),
                "reference": [*map(str, reference or ())],
                **result.to_dict(),
            }
        )
        return
    from regard.apps.show import show_evaluation

    show_evaluation(result, console_on(sys.stdout))


def _measure(
    bundle: Path,
    source: Path,
    reference: list[Path],
    resamples: int,
    batch_size: int | None,
    batch_independent: bool,
    device: str,
    as_json: bool,
) -> None:
    from regard.tasks.measure import measure
    from regard.text import read_lines

    if len(reference) > 1:
        raise TextError(f"{len(reference)} files of labels were given; each line has one label: give one file.")
    found = measure(
        bundle,
        read_lines(source),
        read_lines(reference[0]) if reference else None,
        resamples=resamples,
        device=device,
        batch_size=batch_size or 32,
        batch_independent=batch_independent,
    )
    if as_json:
        write_json({"bundle": str(bundle), "source": str(source), "scores": {k: s.to_dict() for k, s in found.items()}})
        return
    for score in found.values():
        say(console_on(sys.stdout), str(score))


def score(
    bundle: BundlePath,
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="Source lines.")],
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="Translations to score, line by line.")],
    tokens: Annotated[bool, typer.Option("--tokens", help="The log-probability of each token too.")] = False,
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
            if tokens:
                record["tokens"] = list(zip(scored.tokens, scored.log_probabilities, strict=True))
            write(json.dumps(record, ensure_ascii=False) + "\n")
        else:
            each = zip(scored.tokens, scored.log_probabilities, strict=True)
            tail = "".join(f"\t{token} {value:.4f}" for token, value in each) if tokens else ""
            write(f"{scored.log_probability:.4f}{tail}\n")
    say(console_on(sys.stderr), str(perplexity_of(found)))


def align(
    bundle: BundlePath,
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="Source lines; or lines `source ||| target`.")],
    target: Annotated[Path | None, typer.Argument(metavar="[TARGET]", help="Their translations, line by line.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the links here.")] = None,
    reverse: Annotated[Path | None, typer.Option(help="A bundle that translates the other way.")] = None,
    symmetry: Annotated[
        str,
        typer.Option(
            help="How the choices of source and target words are joined: target (those of target words alone), "
            "intersection, union, grow-diag, grow-diag-final."
        ),
    ] = "grow-diag",
    rule: Annotated[
        str, typer.Option(help="The step that is looked at: whose input, or output, is the token.")
    ] = "output",
    layer: Annotated[int, typer.Option(help="From 1; 0 for the mean of all.")] = 0,
    head: Annotated[int, typer.Option(help="Of the layer, from 1; 0 for the mean of all.")] = 0,
    share: Annotated[bool, typer.Option(help="Divide weights by what their source word gets in all.")] = True,
    reading: Annotated[Path | None, typer.Option(help="All of these as --choose wrote them.")] = None,
    gold: Annotated[Path | None, typer.Option(help="Show the alignment error rate against these links.")] = None,
    gold_base: Annotated[int, typer.Option(min=0, max=1, help="The number of the first word in them.")] = 1,
    choose: Annotated[Path | None, typer.Option(help="Choose rule and layer by --gold, and write them here.")] = None,
    resamples: Annotated[int, typer.Option(help="Bootstrap samples behind the intervals; 0: no intervals.")] = 1000,
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="CODE", help="Source language, where the reverse bundle writes several."),
    ] = None,
    to: To = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Lines read together.")] = 32,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Which word translates which: links like 0-0 1-2, a line for a line; with --gold, how good they are."""
    from regard.metrics.aer import alignment_error_rate
    from regard.tasks import align as task
    from regard.tasks.translate import load
    from regard.text import write_lines

    if choose is not None and gold is None:
        raise TextError("--choose needs --gold: layers are compared by their error rate against gold links.")
    sources, targets = task.read_lines_of(source, target)
    known = None if gold is None else task.read_gold(gold, len(sources), gold_base)
    translator = load(bundle, device=device)
    back = None if reverse is None else load(reverse, device=device)
    languages = (from_ or "", to or "")
    if choose is not None and known is not None:
        choice = task.choose(
            translator,
            back,
            sources,
            targets,
            known,
            share=share,
            symmetry=symmetry,
            languages=languages,
            batch_size=batch_size,
        )
        task.write_choice(choose, choice)
    elif reading is not None:
        choice = task.read_choice(reading)
    else:
        one = task.Reading(rule, layer, head)  # type: ignore[arg-type]
        choice = task.Choice(readings=(one,), reverse=(one,) if back else (), share=share, symmetry=symmetry)
    found = task.align_lines(
        translator,
        sources,
        targets,
        choice=choice,
        reverse=back,
        languages=languages,
        batch_size=batch_size,
    )
    lines = [json.dumps(a.to_dict(), ensure_ascii=False) if as_json else task.pharaoh(a.links) for a in found]
    if output is not None:
        write_lines(output, lines)
    elif known is None:
        for line in lines:
            write(f"{line}\n")
    if known is None:
        return
    scores = alignment_error_rate([a.links for a in found], known, resamples=resamples)
    if as_json:
        write_json({"scores": {name: s.to_dict() for name, s in scores.items()}, **choice.model_dump()})
        return
    for name, readings in (("readings", choice.readings), ("reverse", choice.reverse)):
        if readings:
            write(f"{name}: {' and '.join(map(str, readings))}\n")
    for score in scores.values():
        write(f"{score}\n")


def calibrate(
    bundle: BundlePath,
    source: Annotated[Path, typer.Option(help="Source lines that the model was not trained on.")],
    reference: Annotated[Path, typer.Option("--reference", "--target", help="Their translations.")],
    plot: Annotated[Path | None, typer.Option(help="Draw what was found in this file: .svg, .png or .pdf.")] = None,
    from_: From = None,
    to: To = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Measure how far a model's confidence may be believed, put it right, and keep that in the bundle."""
    from regard import pictures
    from regard.bundle import add_calibration
    from regard.tasks.calibrate import calibrate as measure
    from regard.tasks.translate import load
    from regard.text import read_lines

    translator = load(bundle, device=device)
    lines, references = read_lines(source), read_lines(reference)
    with console_on(sys.stderr).status("reading") as status:
        found = measure(translator, lines, references, from_=from_, to=to, progress=status.update)
    if translator.bundle is not None:
        add_calibration(translator.bundle, found)
    if plot is not None:
        pictures.reliability(found.report).save(plot)
    if as_json:
        write_json(found.model_dump(mode="json"))
        return
    from regard.apps.show import show_calibration

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
        return
    from regard.apps.show import show_inspection

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
        return
    from regard.apps.show import show_findings

    show_findings(findings, console_on(sys.stdout))
