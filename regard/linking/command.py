"""`regard link`: which word translates which in parallel text, without a model that was trained before."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from pydantic import Field

from regard.apps.cli import console_on, takes, write, write_json
from regard.apps.options import AsJson, Flags, Output
from regard.errors import DataError

from .link import THRESHOLD, link_lines, spaced


class Linking(Flags):
    """Which links are kept, and how they are scored."""

    threshold: float = Field(THRESHOLD, gt=0, lt=1, description="keep links that both directions believe in by more")
    characters: bool = Field(False, description="each character of Chinese and Japanese counts as a word")
    gold: Path | None = Field(None, description="gold links of these lines: show the alignment error rate")
    gold_base: int = Field(1, ge=0, le=1, description="the gold links' number of the first word")
    resamples: int = Field(1000, ge=0, description="of the lines, for the intervals of the error rate")
    as_json: AsJson = False


@takes(linking=Linking)
def link(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="Source lines; or lines `source ||| target`.")],
    linking: Linking,
    target: Annotated[Path | None, typer.Argument(metavar="[TARGET]", help="Their translations, line by line.")] = None,
    learn: Annotated[
        list[str] | None, typer.Option(metavar="SOURCE,TARGET", help="More text to learn from; may be repeated.")
    ] = None,
    output: Output = None,
) -> None:
    """Which word translates which in parallel text, learnt from it: links like 0-0 1-2, a line for a line."""
    from regard.metrics.aer import alignment_error_rate
    from regard.tasks.align import pharaoh, read_gold, read_lines_of
    from regard.text import write_lines

    sources, targets = read_lines_of(source, target)
    gold = None if linking.gold is None else read_gold(linking.gold, len(sources), linking.gold_base)
    if linking.characters:
        sources, targets = ([spaced(line) for line in side] for side in (sources, targets))
    more: tuple[list[str], list[str]] = ([], [])
    for pair in learn or ():
        one, _, other = pair.partition(",")
        if not (one and other):
            raise DataError(f"--learn {pair!r} names no two files; write SOURCE,TARGET.")
        for side, lines in zip(more, read_lines_of(Path(one), Path(other)), strict=True):
            side.extend(lines)
    with console_on(sys.stderr).status("reading") as status:
        found = link_lines(sources, targets, learn=more, threshold=linking.threshold, progress=status.update)
    lines = [json.dumps(a.to_dict(), ensure_ascii=False) if linking.as_json else pharaoh(a.links) for a in found]
    if output is not None:
        write_lines(output, lines)
    elif gold is None:
        write("".join(f"{line}\n" for line in lines))
    if gold is None:
        return
    scores = alignment_error_rate([a.links for a in found], gold, resamples=linking.resamples)
    if linking.as_json:
        write_json({"scores": {name: score.to_dict() for name, score in scores.items()}})
    else:
        write("".join(f"{score}\n" for score in scores.values()))
