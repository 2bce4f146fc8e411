"""What `regard look` shows of a line: in the terminal, or as files of every kind."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from pydantic import BaseModel, Field

from regard import pictures
from regard.errors import DataError, ModelError

from .exploration import Exploration, explore

if TYPE_CHECKING:
    from regard.linking.aer import Gold
    from regard.search.table import Options
    from regard.tasks.translate import Translator

    from .look import Attention, Part

_ALL = ("html", "svg", "json", "csv")
_KINDS = (*_ALL, "png", "pdf")
_ENDINGS = "." + ", .".join(_KINDS)
_LANGUAGES = ("en", "zh")
_SAID = {
    "en": {"off": ("without", "as it is"), "gold": ("alignment error rate",)},
    "zh": {"off": ("关闭", "原样"), "gold": ("对齐错误率",)},
}
"""What the terminal says below the weights."""
_CHINESE_TITLE = (
    ("Layer: mean", "层：平均"),
    ("Layer: ", "层："),
    (" Attention: ", "，注意力："),
    ("Input - Input", "Input - Input（编码器）"),
    ("Input - Output", "Input - Output（交叉）"),
    ("Output - Output", "Output - Output（解码器）"),
    ("Hops - Input", "Hops - Input（各跳）"),
    (" Head: ", "，头："),
)
"""Parts of a title as Tensor2Tensor's viewer has it, with what the page adds in Chinese."""


class Showing(BaseModel, extra="forbid", frozen=True):
    """What is shown of all that a model did, and in which form."""

    out: Path | None = Field(
        None,
        description="a file .html, .svg, .png, .pdf, .json or .csv; or a directory",
        json_schema_extra={"metavar": "DIR|FILE"},
    )
    part: str = Field("", description="encoder, cross, decoder or hops: what to show or draw")
    layer: int = Field(0, description="the layer of the picture, from 1; 0 for the mean of all")
    head: int = Field(0, description="the head of the picture, from 1; 0 for the mean of all")
    words: bool = Field(False, description="between words, not tokens")
    language: str = Field(
        "en", description="the page's language at first, and the terminal's", json_schema_extra={"metavar": "en|zh"}
    )
    attribution: str = Field(
        "",
        description="not attention, but how much each token counted: input_x_gradient, gradient, integrated_gradients, "
        "occlusion or value_zeroing",
        json_schema_extra={"metavar": "METHOD"},
    )
    off: tuple[str, ...] = Field((), description="a head that is switched off, as encoder.2.3; may be repeated")
    open_head: str = Field("", description="the numbers of one head, as encoder.2.3, instead: --out FILE.json")
    search: bool = Field(False, description="the beam search as a tree instead: printed, or --out FILE.json")
    steps: bool = Field(False, description="each step's alternatives instead: printed, or --out FILE.json")
    beside: Path | None = Field(
        None, description="a bundle that the page shows beside this one", json_schema_extra={"metavar": "BUNDLE"}
    )
    beside_line: str | None = Field(None, description="a line that the page shows beside this one")
    gold: str = Field("", description='links that people made, "0-0 1-2 2p3", of LINE and --target, shown over it')
    gold_base: int = Field(0, description="the number of the first word in --gold")

    def kind(self) -> str:
        """The ending of the file that is asked for; empty for a directory, and for none. Raises DataError."""
        out = self.out
        kind = "" if out is None or out.is_dir() else out.suffix.removeprefix(".")
        if kind and kind not in _KINDS:
            raise DataError(f"--out {out}: it ends with .{kind}; take {_ENDINGS}, or a directory.")
        if out is not None and not kind and out.exists() and not out.is_dir():
            raise DataError(f"--out {out}: it is no directory; name one, or a file that ends with {_ENDINGS}.")
        if self.language not in _LANGUAGES:
            raise DataError(f"--language is {self.language}; the page speaks {' or '.join(_LANGUAGES)}.")
        paged = out is not None and kind in ("", "html")
        if (self.beside or self.beside_line is not None) and not paged:
            raise DataError("--beside and --beside-line are for the page: give --out FILE.html.")
        if self.gold and out is not None and not paged:
            raise DataError(
                "--gold is shown in the terminal and by the page: leave --out out, or give --out FILE.html."
            )
        if (self.search or self.steps) and ((out is not None and kind != "json") or self.search == self.steps):
            raise DataError("--search and --steps print, or write --out FILE.json, one of them; the page shows both.")
        if self.off and (self.attribution or self.gold or self.beside or self.beside_line is not None or self.steps):
            raise DataError("--off goes with attention alone; leave the other views out, or --off.")
        if self.open_head and kind != "json":
            raise DataError("--open-head writes many numbers: give --out FILE.json.")
        return kind

    def links(self, target: str | None) -> Gold | None:
        """The gold links that are given, words counted from 0."""
        if not self.gold:
            return None
        from regard.linking.aer import parse_gold

        if target is None:
            raise DataError("--gold links the words of LINE with those of a given target; give --target too.")
        return parse_gold(self.gold, base=self.gold_base)


@dataclass(frozen=True)
class Shown:
    """What is shown: files, or in the terminal a text, or a part of attention under its title with a text below."""

    files: dict[Path, bytes]
    text: str = ""
    part: Part | None = None
    title: str = ""


class Asked(TypedDict):
    """What is asked of a translator."""

    from_: str | None
    to: str | None
    beam: int | None
    target: str | None


def shown(bundle: Path, line: str, target: str | None, options: Options, showing: Showing, device: str) -> Shown:
    """What `regard look` shows, computed and not yet written. Raises as `regard.explore.exploration.explore` does."""
    kind, gold = showing.kind(), showing.links(target)
    from regard.tasks.engine import reads_pairs
    from regard.tasks.translate import Translator, load

    from .look import look

    opened = load(bundle, device=device) if reads_pairs(bundle) else bundle
    asked: Asked = {"from_": options.from_, "to": options.to, "beam": options.search.get("beam"), "target": target}
    if showing.search or showing.steps:
        return _searched(_translator(opened), line, asked, showing)
    if showing.open_head and showing.out is not None:
        from .opened import open_head

        numbers = open_head(_translator(opened), line, showing.open_head, **asked).to_dict()
        return Shown({showing.out: json.dumps(numbers, ensure_ascii=False).encode()})
    if showing.off:
        return _without(opened, line, asked, showing, kind)
    runs, found = list[Exploration](), None  # of a model without attention there is a page, and nothing else
    if showing.attribution:
        from .attribution import attribute

        found = attribute(opened, line, showing.attribution, **asked).shares()
    elif showing.out is not None and kind in ("", "html") and isinstance(opened, Translator):
        runs = _runs(opened, line, asked, gold, showing, device)
        found = runs[0].attention
    if not runs or (found is None and not kind):
        found = found or look(opened, line, device=device, **asked)
        if gold is not None:
            from .gold import check_links, spaced

            check_links(gold, found)
            found = spaced(found)
        found = found.words() if showing.words else found
        runs = runs or [Exploration(found)]
    if showing.out is not None:
        return Shown(_files(showing, kind, found, runs))
    assert found is not None
    return _printed(found, gold, showing)


def _without(opened: Path | Translator, line: str, asked: Asked, showing: Showing, kind: str) -> Shown:
    """Attention while heads are off, and the translation with and without them."""
    from .changes import Changes, config_of, heads_named
    from .live import look_changed

    translator = _translator(opened)
    heads = heads_named(showing.off, config_of(translator.recipe))
    found, told = look_changed(translator, line, Changes(dict.fromkeys(heads, 0.0)), **asked)
    found = found.words() if showing.words else found
    if showing.out is not None:
        return Shown(_files(showing, kind, found, [Exploration(found)]))
    without, plain = _SAID[showing.language]["off"]
    below = "" if told is None else f"{without} {', '.join(showing.off)}: {told.text}\n{plain}: {told.plain}"
    return replace(_printed(found, None, showing), text=below)


def _translator(opened: Path | Translator) -> Translator:
    from regard.tasks.translate import Translator

    if not isinstance(opened, Translator):
        raise ModelError(f"{opened}: this bundle does not translate, which what is asked for needs.")
    return opened


def _searched(translator: Translator, line: str, asked: Asked, showing: Showing) -> Shown:
    from .search import search_tree
    from .steps import step_by_step

    if showing.steps:
        steps = step_by_step(translator, line, **asked)
        return Shown({showing.out: steps.to_json().encode()} if showing.out else {}, steps.to_text())
    if asked["target"] is not None:
        raise DataError("--search shows how a translation is found, and --target gives one; leave one of the two out.")
    tree = search_tree(translator, line, from_=asked["from_"], to=asked["to"], beam=asked["beam"])
    return Shown({showing.out: tree.to_json().encode()} if showing.out else {}, tree.to_text())


def _runs(
    translator: Translator, line: str, asked: Asked, gold: Gold | None, showing: Showing, device: str
) -> list[Exploration]:
    """What the page shows: one run, or two side by side, named by what is different."""
    from regard.tasks.translate import load

    runs = [explore(translator, line, gold=gold, **asked)]
    if showing.beside or showing.beside_line is not None:
        other = load(showing.beside, device=device) if showing.beside else translator
        if showing.beside_line is None:
            runs.append(explore(other, line, gold=gold, **asked))
        else:  # the target and its links are the first line's
            mine: Asked = {**asked, "target": None}
            runs.append(explore(other, showing.beside_line, **mine))
        names = [translator.recipe.name, other.recipe.name] if showing.beside else ["1", "2"]
        if names[0] == names[1]:
            names = [f"{names[0]} (1)", f"{names[1]} (2)"]
        runs = [replace(run, name=name) for run, name in zip(runs, names, strict=True)]
    if showing.words:
        runs = [replace(run, attention=run.attention and run.attention.words()) for run in runs]
    return runs


def _printed(found: Attention, gold: Gold | None, showing: Showing) -> Shown:
    chosen, at, below = found.part(showing.part), (showing.layer, showing.head), ""
    if gold is not None:
        from .gold import error_rate

        [name] = _SAID[showing.language]["gold"]
        below = f"{name}: {error_rate(found.part('cross'), gold, *at):.1f} %"
    return Shown({}, below, chosen, _title(chosen, *at, showing.language))


def _files(showing: Showing, kind: str, found: Attention | None, runs: Sequence[Exploration]) -> dict[Path, bytes]:
    """One file of this kind, or all for a directory."""

    def made(each: str) -> bytes:
        if each == "html":
            from .page import page

            return page(*runs, language=showing.language).encode()
        assert found is not None
        if each in ("json", "csv"):
            return (found.to_json() if each == "json" else found.to_csv()).encode()
        return picture(found.part(showing.part), showing.layer, showing.head).render(each)

    assert showing.out is not None
    if kind:
        return {showing.out: made(kind)}
    return {showing.out / f"attention.{each}": made(each) for each in _ALL}


def _title(part: Part, layer: int, head: int, language: str = "en") -> str:
    title = part.title(layer) + (f" Head: {head}" if head else "")
    for english, chinese in _CHINESE_TITLE if language == "zh" else ():
        title = title.replace(english, chinese)
    return title


def picture(part: Part, layer: int = 0, head: int = 0) -> pictures.Picture:
    """A layer and a head of a part, from 1 (0: the mean of all), as a picture: source on columns, target on rows."""
    title = _title(part, layer, head)
    return pictures.heatmap(part.matrix(layer, head), part.rows.names, part.columns.names, title=title)
