"""The commands `regard parse`, and `regard trees` and `regard phrases`, which make text of a treebank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import Field

from regard.apps.cli import status, takes, write, write_json
from regard.apps.options import BundlePath, Device, Flags, Json, Output, Resamples
from regard.apps.translate import in_chunks, put
from regard.errors import TextError
from regard.search.table import Options

if TYPE_CHECKING:
    from .trees import Tree

_CHUNK = 1024  #: Lines parsed together; results do not depend on it.


class Asked(Flags):
    """What is wanted of the trees."""

    indented: bool = Field(
        False, description="each tree on several lines, indented", json_schema_extra={"flag": "--trees"}
    )
    evaluate: Path | None = Field(
        None,
        description="parse the words of these trees, and score the trees",
        json_schema_extra={"metavar": "TREEBANK"},
    )
    resamples: Resamples = 1000


@takes("beam", "alpha", "batch_size", "precision", asked=Asked)
def parse(
    bundle: BundlePath,
    options: Options,
    asked: Asked,
    file: Annotated[
        str, typer.Argument(metavar="[FILE|-]", help="Words between spaces, a sentence a line; - is standard input.")
    ] = "-",
    output: Output = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Parse sentences: a line of words in, its constituency tree out; with --evaluate, how good the trees are."""
    from regard.text import write_lines

    from .parse import SHORT, evaluate_trees, open_parser
    from .parse import parse as parse_lines
    from .trees import iter_trees

    def lines(found: Iterable[Tree | None]) -> Iterator[str]:
        for tree in found:
            if tree is not None and asked.indented:
                yield from tree.indented().splitlines()
            else:
                yield "" if tree is None else str(tree)

    gold = asked.evaluate
    if gold is not None and file != "-":
        raise TextError(f"--evaluate parses the words of {gold}, so {file} is not read; leave one of the two out.")
    if gold is None and as_json:
        raise TextError("--json shows scores; give --evaluate and gold trees, or leave --json out.")
    parser = open_parser(bundle, device)
    if gold is None:
        found = in_chunks(file, _CHUNK, lambda chunk, first: parse_lines(parser, chunk, options, first_line=first))
        put(lines(each.tree for each in found), output, file)
        return
    wanted = list(iter_trees(gold))
    with status("parsing") as tell:
        result = evaluate_trees(
            parser,
            wanted,
            options,
            resamples=asked.resamples,
            progress=lambda done: tell(f"parsed {done:,} of {len(wanted):,} sentences"),
        )
    if output is not None:
        write_lines(output, lines(result.trees))
    if as_json:
        write_json({"bundle": str(bundle), "gold": str(gold), **result.to_dict()})
        return
    for scores, of in ((result.scores, ""), (result.short, f" of at most {SHORT} words")):
        if scores:
            write(f"{next(iter(scores.values())).detail['lines']:,} sentences{of}\n")
        write("".join(f"  {score}\n" for score in scores.values()))


def trees(
    file: Annotated[Path, typer.Argument(metavar="TREEBANK", help="Bracketed trees, also .gz.")],
    words: Annotated[Path | None, typer.Option(help="Write the words here, a sentence a line.")] = None,
    linear: Annotated[Path | None, typer.Option(help="Write the trees here as lines of symbols.")] = None,
    tags: Annotated[bool, typer.Option("--tags", help="Keep the words' tags instead of XX in them.")] = False,
    chains: Annotated[
        bool, typer.Option("--chains", help="One symbol for constituents that hold each other alone.")
    ] = False,
) -> None:
    """A treebank as a parser is trained on: its words and its trees, in two files; or the trees without traces."""
    from regard.text import write_lines

    from .trees import iter_trees, linearise

    found = list(iter_trees(file))
    if words is not None:
        write_lines(words, (" ".join(word.text for word in tree.words()) for tree in found))
    if linear is not None:
        write_lines(linear, (linearise(tree, tags=tags, chains=chains) for tree in found))
    if words is None and linear is None:
        write("".join(f"{tree}\n" for tree in found))


def phrases(
    treebank: Annotated[Path, typer.Argument(metavar="TREEBANK", help="Trees with a label at each node, one a line.")],
    output: Annotated[Path, typer.Option("--output", "-o", help='Lines `label text`, for data.labels = "first".')],
    whole: Annotated[bool, typer.Option("--whole", help="Whole sentences only, not their phrases.")] = False,
    binary: Annotated[
        bool, typer.Option("--binary", help="Of labels 0 to 4: 0 and 1 negative, 3 and 4 positive, 2 left out.")
    ] = False,
    swaps: Annotated[
        int, typer.Option(min=0, help="New sentences of each, behind all others, with phrases of others in it.")
    ] = 0,
    share: Annotated[
        float | None, typer.Option(min=0, max=1, help="The share of their words that is swapped (0.3).")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed draws the same sentences (1).")] = None,
) -> None:
    """Labelled text from a treebank such as SST: every phrase with its label, each different one once."""
    from regard.text import write_lines

    from .phrases import phrases

    lines = phrases(treebank, whole=whole, binary=binary, swaps=swaps, share=share, seed=seed)
    count = write_lines(output, lines)
    write(f"{count:,} lines: {output}\n")
