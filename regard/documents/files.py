"""Files of documents: one in, one of the same kind out, or the pairs of its texts and their translations."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path

from regard.errors import ModelError, TextError
from regard.machine import atomic_rename
from regard.search.table import Options
from regard.tasks.lines import translate_long, warn_of_cut
from regard.tasks.translate import Translator
from regard.tasks.translation import Translation
from regard.text.lines import iter_lines, open_bytes, write_lines

from .formats import FORMATS, translate_document
from .markup import Translate, says
from .tmx import Pair, tmx_lines

_TOGETHER, _LINES = 1024, 4096
"""Lines of a document, and of a text for a memory, that are translated together; results do not depend on it."""


def translate_file(
    translator: Translator, file: Path, output: Path | None, options: Options | None = None, *, memory: bool = False
) -> None:
    """Write a document of the same kind, translated, with all that is not text as it was; it appears only when whole.

    With `memory`, or for an output that ends in .tmx, a translation memory (TMX) is written instead, to standard
    output if none is named: of a document its texts, of any other file its lines ("-" is standard input). Where
    standard error is a terminal it shows how far the work is.

    Raises ModelError for an output of another kind, TextError for a document that cannot be read.
    """
    if memory or (output is not None and output.suffix.lower() == ".tmx"):
        _write_memory(translator, file, output, Options.of(options, alignment=False))
        return
    if output is None or output.suffix.lower() != file.suffix.lower():
        raise ModelError(
            f"{file} is a document: name the document to write with --output, ending in {file.suffix} or .tmx; or take "
            "it for lines of text with --lines."
        )
    found = _translated(file, _by(translator, Options.of(options, alignment=True)), _into(translator, options))
    real = Path(os.path.realpath(output))
    part = real.with_name(f"{real.name}.part")
    try:
        part.write_bytes(found)
        atomic_rename(part, real)
    finally:
        part.unlink(missing_ok=True)


def _translated(file: Path, translate: Translate, to: str, pairs: list[Pair] | None = None) -> bytes:
    """The document, translated; its texts and their translations, in order, go to `pairs`."""
    with open_bytes(file) as opened:
        data = opened.read()
    with ExitStack() as shown:
        watched = _watched(translate, shown)

        def work(lines: list[str]) -> list[Translation]:
            found = watched(lines)
            if pairs is not None:
                pairs.extend((line, one.text) for line, one in zip(lines, found, strict=True))
            return found

        try:
            return translate_document(data, file.suffix, work, to)
        except TextError as error:
            raise TextError(f"{file}: {error}") from None


def _by(translator: Translator, options: Options) -> Translate:
    """Lines of a document, each cut into sentences."""
    each = partial(translator.translate, options=options)

    def translate(lines: Sequence[str]) -> list[Translation]:
        found = translate_long(translator, lines, each, always=True, to=options.to)
        warn_of_cut([f"'{line[:40]}'" for line, one in zip(lines, found, strict=True) if not one.ended])
        return found

    return translate


def _into(translator: Translator, options: Options | None) -> str:
    """The language that is written, if it is known."""
    return (options.to if options else None) or translator.languages.target


def _watched(translate: Translate, shown: ExitStack) -> Translate:
    """The same translator, some lines at a time, longest first, with a bar on a terminal."""
    seen: Callable[[int, int], None] = lambda done, total: None  # noqa: E731  (replaced by the bar)
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import Progress

        bar = shown.enter_context(Progress(console=Console(stderr=True), transient=True))
        task = bar.add_task("lines", total=None)
        seen = lambda done, total: bar.update(task, completed=done, total=total)  # noqa: E731

    def work(lines: list[str]) -> list[Translation]:
        order = sorted(range(len(lines)), key=lambda i: -len(lines[i]))
        found: dict[int, Translation] = {}
        for start in range(0, len(order), _TOGETHER):
            some = order[start : start + _TOGETHER]
            found |= zip(some, translate([lines[i] for i in some]), strict=True)
            seen(len(found), len(lines))
        return [found[i] for i in range(len(lines))]

    return work


# -- translation memories ----------------------------------------------------------------------------------------------


def _write_memory(translator: Translator, file: Path, output: Path | None, options: Options) -> None:
    translate = _by(translator, options)
    pairs = (
        _pairs_of_document(file, translate)
        if file.suffix.lower() in FORMATS and file.suffix.lower() != ".txt"
        else _pairs_of_lines(str(file), translate)
    )
    lines = tmx_lines(pairs, translator.languages.source, _into(translator, options))
    if output is not None:
        write_lines(output, lines)
        return
    for line in lines:
        sys.stdout.write(f"{line}\n")


def _pairs_of_document(file: Path, translate: Translate) -> Iterator[Pair]:
    pairs: list[Pair] = []
    _translated(file, translate, "", pairs)
    yield from dict.fromkeys(pairs)


def _pairs_of_lines(file: str, translate: Translate) -> Iterator[Pair]:
    lines = iter(iter_lines(sys.stdin.buffer if file == "-" else file, allow_empty=file == "-"))
    while some := list(islice(lines, _LINES)):
        wanted: Sequence[str] = [line for line in some if says(line)]
        for line, one in zip(wanted, translate(list(wanted)), strict=True):
            yield line, one.text
