"""`regard translate`: lines from a file or standard input, translations to standard output or a file."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import typer
from pydantic import Field

from regard.errors import ModelError, TextError
from regard.search.table import Options

from .cli import takes
from .options import CONSTRAINTS, DETAILS, LANGUAGES, SEARCH, BundlePath, Cluster, Device, Flags, Output, With

if TYPE_CHECKING:
    from regard.tasks.lines import Translate
    from regard.tasks.translation import Translation

T = TypeVar("T")
_DOCUMENTS = frozenset(".html .htm .md .srt .vtt .po .xlf .xliff .docx .pptx .xlsx .odt .epub".split())  # noqa: SIM905
_CHUNK = 4096  #: Lines translated together; results do not depend on it.

File = Annotated[str, typer.Argument(metavar="[FILE|-]", help="Text, one segment a line; - is standard input.")]


class Shown(Flags):
    """How translations are shown, and what is taken for one."""

    scores: bool = Field(False, description="put the log-probability before each line")
    as_json: bool = Field(False, description="print a JSON object a line", json_schema_extra={"flag": "--json"})
    stream: bool = Field(False, description="show each translation as it comes, token by token")
    split: bool = Field(False, description="cut every line into sentences, not only those too long for the model")
    lines: bool = Field(False, description="take a document (.docx, .html, .md, …) for lines of text")
    format: Literal["", "tmx"] = Field("", description="write a translation memory, as an output named .tmx is")
    adapter: str = Field("", description="what `regard adapt` learnt", json_schema_extra={"metavar": "FILE"})


@takes("n_best", *DETAILS, *SEARCH, "set", *CONSTRAINTS, *LANGUAGES, shown=Shown, cluster=Cluster)
def translate(
    bundle: BundlePath,
    options: Options,
    shown: Shown,
    cluster: Cluster,
    file: File = "-",
    output: Output = None,
    with_: With = None,
    device: Device = "auto",
) -> None:
    """Translate text: a line in, a line out."""
    if cluster.engine == "ray":
        if with_:
            raise ModelError("--engine ray translates by one bundle; leave out --with.")
        _by_cluster(bundle, options, shown, cluster, file, output)
        return
    from regard.tasks.lines import translate_long, warn_of_cut
    from regard.tasks.translate import load

    translator = load(bundle, device=device, with_=with_ or (), adapter=shown.adapter)
    memory = shown.format == "tmx" or (output is not None and output.suffix.lower() == ".tmx")
    if memory or (not shown.lines and Path(file).suffix.lower() in _DOCUMENTS):
        from regard.documents.files import translate_file

        translate_file(translator, Path(file), output, options, memory=memory)
        return
    as_json = shown.as_json or options.detailed
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
    cut: list[str] = []
    parts = partial(translate_long, translator, always=shown.split, to=options.to)

    def work(chunk: list[str], first: int) -> Iterable[tuple[int, Translation]]:
        each: Translate = partial(translator.translate, options=options, first_line=first)
        return enumerate(each(chunk) if whole else parts(chunk, each, first_line=first), first)

    def lines() -> Iterator[str]:
        for number, found in in_chunks(file, _CHUNK, work):
            cut.extend([f"line {number}"] * (not found.ended))
            yield from _lines_of(number, found, several, shown.scores, as_json)

    def streamed(chunk: list[str], number: int) -> Iterator[str]:
        ended = yield from translator.stream(chunk[0], options, number=number)
        cut.extend([f"line {number}"] * (not ended))
        yield "\n"

    if shown.stream:
        for part in in_chunks(file, 1, streamed):
            print(part, end="", flush=True)
    else:
        put(lines(), output, file)
    warn_of_cut(cut)


def in_chunks(file: str, size: int, work: Callable[[list[str], int], Iterable[T]]) -> Iterator[T]:
    """What `work` makes of lines and their first number, so many at a time, so that a file may be of any length."""
    from regard.text.lines import iter_lines

    lines = iter(iter_lines(sys.stdin.buffer if file == "-" else file, allow_empty=file == "-"))
    number = 1
    while chunk := list(islice(lines, 1 if _typed(file) else size)):
        try:
            yield from work(chunk, number)
        except TextError as error:
            raise TextError(f"{'standard input' if file == '-' else file}: {error}") from None
        number += len(chunk)


def put(lines: Iterable[str], output: Path | None, file: str) -> None:
    """Lines to a file, or to standard output, where whoever types into `file` sees each at once."""
    from regard.text.lines import write_lines

    if output is not None:
        write_lines(output, lines)
        return
    for line in lines:
        print(line, flush=_typed(file))


def _by_cluster(bundle: Path, options: Options, shown: Shown, cluster: Cluster, file: str, output: Path | None) -> None:
    from regard.cluster.translate import translate_file

    document = Path(file).suffix.lower() in _DOCUMENTS and not shown.lines
    if output is None or file == "-" or document or shown.as_json or shown.scores or shown.stream:
        raise ModelError("--engine ray translates a file of lines into one that --output names, line for line.")
    tell = lambda done, number: sys.stderr.write(f"{done:,} of {number:,} shards are done.\n")  # noqa: E731
    translate_file(bundle, file, output, options, cluster=cluster, split=shown.split, progress=tell)


def _typed(file: str) -> bool:
    return file == "-" and sys.stdin.isatty()


def _lines_of(number: int, found: Translation, several: bool, scores: bool, as_json: bool) -> Iterator[str]:
    if as_json:
        yield json.dumps({"line": number, **found.to_dict()}, ensure_ascii=False)
    elif several:
        for each in found.hypotheses or (found,):
            yield f"{number}\t{each.log_probability:.4f}\t{each.text}"
    else:
        yield f"{found.log_probability:.4f}\t{found.text}" if scores else found.text
