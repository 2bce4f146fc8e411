"""Which word translates which: `regard align` by a model, `regard link` without one that was trained before."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from pydantic import Field

from regard.apps.cli import status, takes, write, write_json
from regard.apps.options import LANGUAGES, AsJson, BundlePath, Device, Flags, Output, Resamples
from regard.errors import DataError, TextError
from regard.search.table import Options

from .link import THRESHOLD, link_lines, spaced

if TYPE_CHECKING:
    from .aer import Gold
    from .align import Alignment


class Scoring(Flags):
    """What links are compared with, and how they are shown."""

    gold: Path | None = Field(None, description="gold links of these lines: show the alignment error rate")
    gold_base: int = Field(1, ge=0, le=1, description="the gold links' number of the first word")
    resamples: Resamples = 1000
    as_json: AsJson = False


class Linking(Scoring):
    """The same, and which links are kept."""

    threshold: float = Field(THRESHOLD, gt=0, lt=1, description="keep links that both directions believe in by more")
    characters: bool = Field(False, description="each character of Chinese and Japanese counts as a word")


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
    from .align import read_gold, read_lines_of

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
    with status("reading") as tell:
        found = link_lines(sources, targets, learn=more, threshold=linking.threshold, progress=tell)
    _put(found, gold, linking, output)


class Aligning(Scoring):
    """The same, and how links are read off attention."""

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
    choose: Path | None = Field(None, description="choose rule and layer by --gold, and write them here")
    batch_size: int = Field(32, ge=1, description="lines read together")


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
    from regard.tasks.translate import load

    from . import align as task

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
    read = {"readings": choice.readings, "reverse": choice.reverse}
    told = [f"{name}: {' and '.join(map(str, readings))}\n" for name, readings in read.items() if readings]
    _put(found, known, asked, output, choice.model_dump(), "".join(told))


def _put(
    found: Sequence[Alignment],
    gold: Sequence[Gold] | None,
    asked: Scoring,
    output: Path | None,
    more: Mapping[str, object] = {},
    told: str = "",
) -> None:
    """Write links, a line for a line; with gold links the scores, `more` in their JSON and `told` before them."""
    from regard.text import write_lines

    from .aer import alignment_error_rate
    from .align import pharaoh

    lines = [json.dumps(a.to_dict(), ensure_ascii=False) if asked.as_json else pharaoh(a.links) for a in found]
    if output is not None:
        write_lines(output, lines)
    elif gold is None:
        write("".join(f"{line}\n" for line in lines))
    if gold is None:
        return
    scores = alignment_error_rate([a.links for a in found], gold, resamples=asked.resamples)
    if asked.as_json:
        write_json({"scores": {name: score.to_dict() for name, score in scores.items()}, **more})
    else:
        write(told + "".join(f"{score}\n" for score in scores.values()))
