"""Draws weights and figures as SVG, PNG or PDF with matplotlib (the extra `pictures`); the same bytes each time.

Characters are drawn as outlines, so that a picture looks alike everywhere. Chinese of the built-in corpus comes from
`glyphs.otf` beside this file, all else from matplotlib's own font and the fonts of this machine (decision 0006).
"""

from __future__ import annotations

import re
import warnings
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from html import escape
from importlib.resources import as_file, files
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import east_asian_width

from regard.errors import DataError, install

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike, NDArray

Panel = Callable[["Axes"], None]  #: Draws into the axes that it is given.

KINDS = ("svg", "png", "pdf")
# ColorBrewer's Blues: lightness falls evenly, so it can be told apart in grey and by the colour-blind.
BLUES = ("#f7fbff", "#deebf7", "#c6dbef", "#9ecae1", "#6baed6", "#4292c6", "#2171b5", "#08519c", "#08306b")
NAMES = {"<s>": "begin", "</s>": "end", "<unk>": "unknown", "<pad>": "padding"}

_INK, _GREY, _RED = "#1b1f24", "#8a8a8a", "#c0152f"
_FONTS = ("DejaVu Sans", "Regard Glyphs")
_WITHOUT_LETTERS = ("Last Resort", "STIX", "cm")  # of matplotlib: boxes for all characters, and symbols of formulas
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SETTINGS: Any = {  # Any: matplotlib types every key, and is imported only to draw
    "font.family": _FONTS,
    "font.size": 9,
    "text.color": _INK,
    "text.parse_math": False,  # a dollar is a dollar
    "axes.labelcolor": _INK,
    "svg.hashsalt": "regard",
    "pdf.fonttype": 42,
}
_MARKS, _DASHES = "os^Dvx", ("-", (0, (7, 3)), (0, (2, 3)), (0, (9, 3, 2, 3)), (0, (4, 4)), (0, (1, 4)))
_COLOURS = ("#0072b2", "#c04a00", "#00785a", "#a8478a", "#806000", "#4f5b69")
_CELL = 19.0  # points, the side of a heat map's cell


def label(token: str) -> str:
    """How a token is shown: the space that begins a word is dropped, any other space is drawn as ␣."""
    if token in NAMES:
        return NAMES[token]
    text = token.replace("\u2581", " ")
    text = text[1:] if text.startswith(" ") and text.strip(" ") else text
    return "".join("␣" if character.isspace() else character for character in text) or "␣"


def colour(share: float) -> str:
    """The colour of a share in [0, 1] of the largest weight, between the nearest two of BLUES."""
    at = min(max(share, 0.0), 1.0) * (len(BLUES) - 1)
    low = min(int(at), len(BLUES) - 2)
    pair = [[int(blue[digit : digit + 2], 16) for digit in (1, 3, 5)] for blue in BLUES[low : low + 2]]
    return "#" + "".join(f"{round(a + (b - a) * (at - low)):02x}" for a, b in zip(*pair, strict=True))


def xml(text: str) -> str:
    """Text as XML and HTML can hold it: escaped, and control characters, which no XML file may have, as U+FFFD."""
    return escape(_plain(text))


def _plain(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)


def checked(weights: ArrayLike, rows: Sequence[str], columns: Sequence[str]) -> NDArray[np.float64]:
    """The weights (T, S) as an array. Raises ValueError if they do not fit T rows and S columns, or are no weights."""
    import numpy as np

    matrix = np.asarray(weights, dtype=np.float64)
    if matrix.shape != (expected := (len(rows), len(columns))):
        raise ValueError(f"weights are {matrix.shape}, and must be (target tokens, source tokens), here {expected}.")
    if not bool(((matrix >= 0) & (matrix <= 1 + 1e-3)).all()):  # a float16 row may sum to a little over 1
        raise ValueError("weights must be numbers from 0 to 1; scores before the softmax are not weights.")
    return matrix


@dataclass(frozen=True)
class Picture:
    """A drawn figure, with its title and its content in words."""

    figure: Figure
    title: str = ""
    description: str = ""

    def save(self, path: str | Path) -> None:
        """Write the file; its name ends with .svg, .png or .pdf. Raises DataError for other endings, as `render`."""
        kind = Path(path).suffix.removeprefix(".")
        if kind not in KINDS:
            raise DataError(f"{path}: a picture is one of .{', .'.join(KINDS)}; let the name end with one of these.")
        Path(path).write_bytes(self.render(kind))

    def svg(self) -> str:
        """The picture as the text of an SVG file."""
        return self.render("svg").decode()

    def img(self) -> str:
        """The picture as an element of HTML that holds it, with its description for whoever cannot see it."""
        said, data = xml(f"{self.title}: {self.description}"), b64encode(self.render("svg")).decode()
        return f'<img alt="{said}" src="data:image/svg+xml;base64,{data}">'

    _repr_html_ = img  # a notebook shows it

    def render(self, kind: str) -> bytes:
        """The bytes of a file of this kind (svg, png, pdf).

        Raises DataError for a character that no font has; in SVG such a character is left to the viewer's fonts.
        """
        said = {"Title": _plain(self.title), "Description": _plain(self.description)}
        metadata: Any = {  # Any: as matplotlib has it
            "svg": {**said, "Creator": "Regard", "Date": None},
            "png": {**said, "Software": "Regard"},
            "pdf": {"Title": said["Title"], "Creator": "Regard", "CreationDate": None},
        }[kind]
        stream = BytesIO()
        with _drawing():
            import matplotlib

            missing = _choose_fonts(self.figure)
            if missing and kind != "svg":
                name = f"{missing[0]} (U+{ord(missing[0]):04X})"
                raise DataError(f"{name}: no font on this machine has it; install one that does, or take .svg.")
            matplotlib.rcParams["svg.fonttype"] = "none" if missing else "path"
            self.figure.savefig(stream, format=kind, dpi=144, metadata=metadata, bbox_inches="tight", pad_inches=0.08)
        return stream.getvalue()


@contextmanager
def _drawing() -> Iterator[type[Figure]]:
    """Gives what makes a figure; within it matplotlib has our settings. Raises DataError where it is not installed."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as missing:
        raise DataError(
            f"pictures are drawn with matplotlib, which is not installed ({missing}): {install('pictures')}, or ask "
            "for a page or for the numbers instead."
        ) from missing
    _fonts()
    with matplotlib.rc_context(_SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        yield Figure


def _choose_fonts(figure: Figure) -> str:
    """Gives every text of a figure the fonts that have its characters; returns the characters that none has."""
    from matplotlib.text import Text

    figure.draw_without_rendering()  # writes the names of the ticks
    texts = [text for text in figure.findobj(Text) if isinstance(text, Text)]
    for text in texts:
        text.set_text(_plain(text.get_text()))
    wanted = sorted({character for text in texts for character in text.get_text()} - set("\n\t"))
    names = {_font_of(character) for character in wanted} - {"", *_FONTS}
    for text in texts:
        text.set_fontfamily([*_FONTS, *sorted(names)])
    return "".join(character for character in wanted if not _font_of(character))


@cache
def _fonts() -> list[tuple[str, str]]:
    """Name and file of the fonts there are: those that come with matplotlib and with us, then this machine's."""
    from matplotlib import font_manager

    with as_file(files("regard") / "glyphs.otf") as file:
        font_manager.fontManager.addfont(file)
    every = {(f.name, f.fname) for f in font_manager.fontManager.ttflist if f.style == "normal" and f.weight == 400}
    of_letters = (font for font in every if not font[0].startswith(_WITHOUT_LETTERS))
    return sorted(of_letters, key=lambda font: (font[0] not in _FONTS, font))


@cache
def _font_of(character: str) -> str:
    """The name of a font that has a character, or nothing."""
    return next((name for name, file in _fonts() if ord(character) in _characters(file)), "")


@cache
def _characters(font_file: str) -> frozenset[int]:
    from matplotlib import font_manager

    try:
        return frozenset(font_manager.get_font(font_file).get_charmap())
    except (OSError, RuntimeError):  # a font of coloured bitmaps, or one that was removed
        return frozenset()


def heatmap(weights: ArrayLike, rows: Sequence[str], columns: Sequence[str], *, title: str = "Attention") -> Picture:
    """Weights (T, S) as cells: T target tokens on the rows, S source tokens on the columns, the darker the more.

    Raises ValueError as `checked` does.
    """
    matrix = checked(weights, rows, columns)
    down, across = [[_plain(label(token)) for token in tokens] for tokens in (rows, columns)]
    top = float(matrix.max(initial=0.0)) or 1.0
    width, height = (max(count, 1) * _CELL for count in (len(across), len(down)))
    with _drawing() as new:
        from matplotlib.colors import LinearSegmentedColormap

        figure = new(figsize=(width / 72, height / 72))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
        axes.set_xticks([at + 0.5 for at in range(len(across))], across, rotation=60, ha="left", rotation_mode="anchor")
        axes.set_yticks([at + 0.5 for at in range(len(down))], down)
        axes.set(xlim=(0, max(len(across), 1)), ylim=(max(len(down), 1), 0))
        if matrix.size:
            blues = LinearSegmentedColormap.from_list("blues", BLUES, N=1024)
            mesh = axes.pcolormesh(matrix, cmap=blues, vmin=0, vmax=top, edgecolors="white", linewidth=0.75)
            beside = figure.add_axes(
                (1 + _CELL / width, 1 - 4 * _CELL / height, 0.5 * _CELL / width, 4 * _CELL / height)
            )
            figure.colorbar(mesh, cax=beside, ticks=[0, top], format=lambda value, _: f"{value:.2f}" if value else "0")
            beside.tick_params(length=0)
    looks = matrix.argmax(axis=1) if matrix.size else ()
    most = ", ".join(f"{token} at {across[int(at)]}" for token, at in zip(down, looks, strict=False))
    return Picture(figure, title, f"each target token looks most: {most}" if most else "no weights")


@dataclass(frozen=True)
class Word:
    """A word of a line that is shaded."""

    text: str
    share: float = 0.0  #: How dark it is shaded, 0 to 1.
    now: bool = False  #: Whether it is the one that looks, or that is written; it is red.
    note: str = ""  #: A number beside it.

    @property
    def shown(self) -> str:
        return label(self.text) if self.text in NAMES or "\u2581" in self.text else self.text


def shades(lines: Sequence[Sequence[Word]], *, aligned: bool = True, title: str = "Attention") -> Picture:
    """Lines of words, each shaded by its share of the weight: what a word looks at (Cheng et al. 2016, figure 1).

    `aligned` puts words of the same number under each other. Longer lines make a wider picture.
    """
    row, gap = 18.0, 5.0
    widths = [[_width(word.shown) + 0.8 * _width(word.note) + 2 * gap for word in line] for line in lines]
    if aligned:
        widest = [max(line[at] for line in widths if at < len(line)) for at in range(max(map(len, widths)))]
        widths = [widest[: len(line)] for line in widths]
    wide, tall = max(map(sum, widths)), row * len(lines)
    with _drawing() as new:
        from matplotlib.patches import Rectangle

        figure = new(figsize=(wide / 72, tall / 72))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, wide), ylim=(tall, 0))
        axes.set_axis_off()
        for y, (line, spans) in enumerate(zip(lines, widths, strict=True)):
            x = 0.0
            for word, span in zip(line, spans, strict=True):
                if word.share >= 0.005:
                    axes.add_patch(Rectangle((x, y * row), span - 1, row - 1, color=colour(word.share), linewidth=0))
                ink = "white" if word.share > 0.55 else _RED if word.now else _INK
                for text, size, at in ((word.shown, 11, x + gap / 2), (word.note, 8, x + gap + _width(word.shown))):
                    if text:
                        axes.text(at, (y + 0.7) * row, text, fontsize=size, color=ink)
                x += span
    return Picture(figure, title, "\n".join(" ".join(word.shown for word in line) for line in lines))


def _width(text: str) -> float:
    """How many points a text of 11 points takes, about."""
    return sum(11.5 if east_asian_width(character) in "WF" else 7.0 for character in text)


def panels(drawn: Iterable[Panel], *, size: tuple[float, float] = (330.0, 260.0), title: str = "") -> Picture:
    """Panels side by side, each so many points wide and high."""
    every = list(drawn)
    with _drawing() as new:
        figure = new(figsize=(size[0] * len(every) / 72, size[1] / 72), layout="constrained")
        for panel, axes in zip(every, figure.subplots(1, len(every), squeeze=False)[0], strict=True):
            panel(axes)
    return Picture(figure, title)


def curves(
    title: str,
    across: Sequence[float],
    lines: Mapping[str, Sequence[float]],
    *,
    x: str = "",
    y: str = "",
    logarithmic: str = "",
    at: float | None = None,
) -> Panel:
    """Named lines over one axis; `logarithmic` names the axes ("x", "y", "xy") that are, `at` draws a line across them.

    A line of few points is known by its colour, its dashes and its marks, so that no one of them is needed.
    """

    def panel(axes: Axes) -> None:
        axes.set_title(title)
        for number, (name, heights) in enumerate(lines.items()):
            marks = _MARKS if len(across) <= 24 else ("",)
            ink, dash, mark = (kinds[number % len(kinds)] for kinds in (_COLOURS, _DASHES, marks))
            axes.plot(across, heights, label=name, color=ink, linestyle=dash, marker=mark, markersize=4)
        for letter, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
            if letter in logarithmic:
                axes.set(**{f"{letter}scale": "log"})
                axis.set_major_formatter("{x:g}")
                axis.set_minor_formatter("")
        if at is not None:
            axes.axvline(at, color=_GREY, linestyle=(0, (5, 4)))
        axes.set(xlabel=x, ylabel=y)
        axes.legend()

    return panel


def bars(title: str, names: Sequence[str], heights: Mapping[str, Sequence[float]], *, y: str = "") -> Panel:
    """Groups of bars, a group a name."""

    def panel(axes: Axes) -> None:
        axes.set_title(title)
        width = 0.8 / len(heights)
        for number, (name, values) in enumerate(heights.items()):
            shift = (number - (len(heights) - 1) / 2) * width
            axes.bar([at + shift for at in range(len(names))], list(values), width, label=name)
        axes.set_xticks(range(len(names)), [_plain(name) for name in names])
        axes.set(ylabel=y or (next(iter(heights)) if len(heights) == 1 else ""))
        if len(heights) > 1:
            axes.margins(y=0.25)  # for the legend
            axes.legend()

    return panel


def reliability(report: Mapping[str, Any]) -> Picture:
    """A calibration's report as two reliability diagrams, of tokens and of words, before and after.

    Confidence is across, the share that is right is up; on the diagonal all is well. The area of a point is the share
    of what fell into its bin.
    """

    def side(found: Mapping[str, Any], title: str, right: str, axes: Axes) -> None:
        axes.set(title=title, xlabel="confidence", ylabel=right, xlim=(0, 1), ylim=(0, 1), aspect="equal")
        axes.plot([0, 1], [0, 1], color="#bbbbbb", linestyle="--", linewidth=1)
        for name, ink in (("before", _GREY), ("after", BLUES[-2])):
            bins = found[name]["bins"]
            given, came, counts = ([each[key] for each in bins] for key in ("confidence", "right", "count"))
            said = f"{name}: calibration error {100 * found[name]['error']:.1f} %"
            axes.plot(given, came, color=ink, linewidth=1.2, label=said)
            sizes = [max(80 * count / max(counts), 4) for count in counts]
            axes.scatter(given, came, s=sizes, color=ink, alpha=0.6, linewidth=0, clip_on=False)
        axes.legend(loc="upper left", frameon=False)

    tokens = partial(side, report["tokens"], "tokens of the references", "the likeliest token came")
    words = partial(side, report["words"], "words of the translations", "the word stands in the reference")
    return panels([tokens, words], title="Reliability")
