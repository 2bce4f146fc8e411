"""`regard translate`: lines from a file or standard input, translations to standard output or a file."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import Field

from regard.apps.options import CONSTRAINTS, DETAILS, LANGUAGES, SEARCH, BundlePath, Device, Flags, Output, With, takes
from regard.apps.terminal import write
from regard.errors import ModelError, TextError
from regard.tasks.options import Options

if TYPE_CHECKING:
    from regard.tasks.long import Translate
    from regard.tasks.translate import Translator
    from regard.tasks.translation import Translation

_CHUNK = 4096
"""Lines translated together; results do not depend on it."""

File = Annotated[str, typer.Argument(metavar="[FILE|-]", help="Text, one segment a line; - is standard input.")]


class Shown(Flags):
    """How translations are shown, and what is taken for one."""

    scores: bool = Field(False, description="put the log-probability before each line")
    as_json: bool = Field(False, description="print a JSON object a line", json_schema_extra={"flag": "--json"})
    stream: bool = Field(False, description="show each translation as it comes, token by token")
    split: bool = Field(False, description="cut every line into sentences, not only those too long for the model")


@takes("n_best", *DETAILS, *SEARCH, "set", *CONSTRAINTS, *LANGUAGES, shown=Shown)
def translate(
    bundle: BundlePath,
    options: Options,
    shown: Shown,
    file: File = "-",
    output: Output = None,
    with_: With = None,
    device: Device = "auto",
) -> None:
    """Translate text: a line in, a line out."""
    from regard.tasks.translate import load
    from regard.text.lines import write_lines

    as_json = shown.as_json or options.detailed
    translator = load(bundle, device=device, with_=with_ or ())
    search = translator.searching(options)
    draws = search.draws if options.search.keys() & {"samples", "method"} else 0
    several = options.n_best > 1 or (draws > 1 and search.mbr == "none")
    if shown.stream and (several or shown.scores or output or as_json or options.replace_unknown):
        raise ModelError("--stream shows one translation of each line as it comes; leave out what asks for more.")
    # A line's draws, prefix and phrases belong to the line, so it is not cut into sentences where they are asked for.
    keep = options.constraints
    whole = bool(draws or (not isinstance(keep, tuple) and (keep.include or keep.prefix)))
    if shown.split and (whole or shown.stream):
        raise ModelError("--split cuts lines, and --samples, --include, --prefix and --stream speak of whole lines.")
    if shown.stream:
        _stream(translator, file, options)
        return

    def lines() -> Iterator[str]:
        for number, found in _translated(translator, file, options, None if whole else shown.split):
            if as_json:
                yield json.dumps({"line": number, **found.to_dict()}, ensure_ascii=False)
            else:
                yield from _lines_of(number, found, several, shown.scores)

    if output is not None:
        write_lines(output, lines())
        return
    for line in lines():
        write(f"{line}\n")
        if sys.stdin.isatty() and file == "-":
            sys.stdout.flush()


def _stream(translator: Translator, file: str, options: Options) -> None:
    """Writes each line's translation as it comes."""
    for number, line in enumerate(_read(file), start=1):
        with _named(file):
            for part in translator.stream(line, options, number=number):
                write(part)
                sys.stdout.flush()
        write("\n")


def _translated(
    translator: Translator, file: str, options: Options, split: bool | None
) -> Iterator[tuple[int, Translation]]:
    """Each line's number and translation, a chunk at a time, so that a file may be of any length.

    `split`: cut every line into sentences; False: only those too long for the model; None: none.
    """
    from regard.tasks.long import translate_long

    lines = _read(file)
    typed = file == "-" and sys.stdin.isatty()
    number = 1
    while chunk := list(islice(lines, 1 if typed else _CHUNK)):
        with _named(file):
            each: Translate = partial(translator.translate, options=options, first_line=number)
            found = (
                each(chunk)
                if split is None
                else translate_long(translator, chunk, each, always=split, to=options.to, first_line=number)
            )
        yield from enumerate(found, start=number)
        number += len(chunk)


def _read(file: str) -> Iterator[str]:
    from regard.text.lines import iter_lines

    return iter(iter_lines(sys.stdin.buffer if file == "-" else file, allow_empty=file == "-"))


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
