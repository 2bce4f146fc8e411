"""`regard look`: where a model looks, in the terminal, as a page, as a picture or as numbers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import Field

from regard import pictures
from regard.apps.options import LANGUAGES, BundlePath, Device, Flags, takes
from regard.apps.show import HeatMap
from regard.apps.terminal import console_on, say
from regard.errors import DataError
from regard.explore.page import page as page  # its old name, which stays
from regard.tasks.options import Options

if TYPE_CHECKING:
    from regard.explore.look import Part

_ALL = ("html", "svg", "json", "csv")
_KINDS = (*_ALL, "png", "pdf")
_LANGUAGES = ("en", "zh")


class Showing(Flags):
    """What is shown of all that a model looks at, and in which form."""

    out: Path | None = Field(
        None,
        description="a file .html, .svg, .png, .pdf, .json or .csv; or a directory",
        json_schema_extra={"metavar": "DIR|FILE"},
    )
    part: str = Field("", description="encoder, cross, decoder or hops: what to show or draw")
    layer: int = Field(0, description="the layer of the picture, from 1; 0 for the mean of all")
    head: int = Field(0, description="the head of the picture, from 1; 0 for the mean of all")
    words: bool = Field(False, description="between words, not tokens")
    attribution: str = Field(
        "",
        description="not attention, but how much each token counted: input_x_gradient, gradient, integrated_gradients, "
        "occlusion or value_zeroing",
        json_schema_extra={"metavar": "METHOD"},
    )
    language: str = Field("en", description="the page's language at first", json_schema_extra={"metavar": "en|zh"})


@takes("beam", *LANGUAGES, showing=Showing)
def look(
    bundle: BundlePath,
    options: Options,
    showing: Showing,
    line: Annotated[str, typer.Argument(metavar="LINE", help="What the model reads.")],
    target: Annotated[str | None, typer.Option(help="What it is made to write; by default what it would.")] = None,
    device: Device = "cpu",
) -> None:
    """Where a model looks, every layer and head of it: in the terminal, or with --out as page, picture or numbers."""
    from regard.explore.look import look as looked

    out, at = showing.out, (showing.layer, showing.head)
    kind = "" if out is None or out.is_dir() else out.suffix.removeprefix(".")
    if kind and kind not in _KINDS:
        raise DataError(f"--out {out}: it ends with .{kind}; take .{', .'.join(_KINDS)}, or a directory.")
    if out is not None and not kind and out.exists() and not out.is_dir():
        raise DataError(f"--out {out}: it is no directory; name one, or a file that ends with .{', .'.join(_KINDS)}.")
    if showing.language not in _LANGUAGES:
        raise DataError(f"--language is {showing.language}; the page speaks {' or '.join(_LANGUAGES)}.")
    asked: dict[str, Any] = {"target": target, "from_": options.from_, "to": options.to}
    asked["beam"] = options.search.get("beam")
    if showing.attribution:
        from regard.explore.attribution import attribute

        found = attribute(bundle, line, showing.attribution, **asked).shares()
    else:
        found = looked(bundle, line, device=device, **asked)
    found = found.words() if showing.words else found
    chosen = found.part(showing.part)
    console = console_on(sys.stdout)
    if out is None:
        say(console, _title(chosen, *at))
        console.print(HeatMap(chosen.matrix(*at), chosen.rows.names, chosen.columns.names))
        return

    made = {"html": lambda: page(found, language=showing.language), "json": found.to_json, "csv": found.to_csv}
    contents = {  # all or none
        each: made[each]().encode() if each in made else picture(chosen, *at).render(each)
        for each in ([kind] if kind else _ALL)
    }
    if not kind:
        out.mkdir(parents=True, exist_ok=True)
    for name, text in contents.items():
        file = out if kind else out / f"attention.{name}"
        file.write_bytes(text)
        say(console, f"written: {file}")


def _title(part: Part, layer: int, head: int) -> str:
    return part.title(layer) + (f" Head: {head}" if head else "")


def picture(part: Part, layer: int = 0, head: int = 0) -> pictures.Picture:
    """A layer and a head of a part, from 1 (0: the mean of all), as a picture: source on columns, target on rows."""
    title = _title(part, layer, head)
    return pictures.heatmap(part.matrix(layer, head), part.rows.names, part.columns.names, title=title)
