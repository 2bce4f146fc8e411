"""Files of documents: one in, one of the same kind out."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from regard.disk import atomic_rename
from regard.errors import ModelError, TextError
from regard.tasks.lines import translate_long
from regard.tasks.options import Options
from regard.tasks.translate import Translator
from regard.tasks.translation import Translation
from regard.text.lines import open_bytes

from .formats import translate_document


def translate_file(translator: Translator, file: Path, output: Path | None, options: Options | None = None) -> None:
    """Write a document of the same kind, translated, with all that is not text as it was; it appears only when whole.

    Raises ModelError for an output of another kind, TextError for a document that cannot be read.
    """
    if output is None or output.suffix.lower() != file.suffix.lower():
        raise ModelError(
            f"{file} is a document: name the document to write with --output, ending in {file.suffix}; or take it for "
            "lines of text with --lines."
        )
    options = Options.of(options, alignment=True)
    each = partial(translator.translate, options=options)

    def work(lines: list[str]) -> list[Translation]:
        return translate_long(translator, lines, each, always=True, to=options.to)

    with open_bytes(file) as opened:
        data = opened.read()
    try:
        made = translate_document(data, file.suffix, work)
    except TextError as error:
        raise TextError(f"{file}: {error}") from None
    part = output.with_name(f"{output.name}.part")
    part.write_bytes(made)
    atomic_rename(part, output)
