"""Pictures: the right weight in the right cell, well-formed, complete in themselves, legible, the same each time."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console

from regard import pictures
from regard.errors import DataError
from regard.explore.heatmap import HeatMap
from regard.studies.demo.corpus import characters
from regard.studies.demo.evaluate import Alignment
from regard.studies.demo.show import page

SOURCE = ["<2zh>", "▁Samstag", ",", "▁", "2", "1", ".", "▁November", "\u00a0€", "</s>"]
TARGET = ["▁", "1", "1", "月", "2", "1", "日", "▁星期六", "</s>"]
SVG = "{http://www.w3.org/2000/svg}"


def weights(seed: int = 0) -> np.ndarray:
    """A row-normalised (T, S), far from symmetric."""
    raw = np.random.default_rng(seed).random((len(TARGET), len(SOURCE))) ** 6
    normalised: np.ndarray = raw / raw.sum(axis=1, keepdims=True)
    return normalised


def brightness(colour: str) -> float:
    return sum(int(colour[place : place + 2], 16) for place in (1, 3, 5))


def root_of(picture: pictures.Picture) -> ElementTree.Element:
    return ElementTree.fromstring(picture.svg().encode())


def drawn_cells(root: ElementTree.Element) -> list[tuple[float, float, str]]:
    """The middle of each cell of the heat map, across and down, and its colour."""
    mesh = next(g for g in root.iter(f"{SVG}g") if g.get("id", "").startswith("QuadMesh"))
    found = []
    for path in mesh.iter(f"{SVG}path"):
        numbers = [float(number) for number in re.findall(r"-?\d+\.?\d*", path.attrib["d"])]
        fill = re.search(r"fill: (#[0-9a-f]{6})", path.attrib["style"])
        assert fill is not None
        xs, ys = numbers[0::2], numbers[1::2]
        found.append(((min(xs) + max(xs)) / 2, (min(ys) + max(ys)) / 2, fill[1]))
    return found


def test_target_is_on_rows_source_on_columns_and_a_larger_weight_is_darker() -> None:
    matrix = weights()
    cells = drawn_cells(root_of(pictures.heatmap(matrix, TARGET, SOURCE)))
    assert len(cells) == matrix.size
    xs, ys = sorted({round(x, 1) for x, _, _ in cells}), sorted({round(y, 1) for _, y, _ in cells})
    assert (len(ys), len(xs)) == matrix.shape
    at = {(ys.index(round(y, 1)), xs.index(round(x, 1))): ink for x, y, ink in cells}
    ordered = [at[int(one) // len(SOURCE), int(one) % len(SOURCE)] for one in np.argsort(matrix.ravel(), kind="stable")]
    assert all(brightness(first) >= brightness(second) for first, second in pairwise(ordered))
    assert ordered[-1] == pictures.BLUES[-1]
    assert len(set(ordered)) > 30


def test_labels_stand_at_their_columns_and_rows() -> None:
    axes = pictures.heatmap(weights(), TARGET, SOURCE).figure.axes[0]
    for axis, tokens in ((axes.xaxis, SOURCE), (axes.yaxis, TARGET)):
        assert [text.get_text() for text in axis.get_ticklabels()] == [pictures.label(token) for token in tokens]
        assert axis.get_ticklocs().tolist() == [at + 0.5 for at in range(len(tokens))]
    assert axes.get_ylim()[0] > axes.get_ylim()[1], "the first row is at the top"


def test_the_picture_says_what_it_is() -> None:
    picture = pictures.heatmap(weights(), TARGET, SOURCE, title="a < b")
    assert root_of(picture).findtext(f"{SVG}title") == "a < b"
    assert "星期六 at " in picture.description
    assert picture.description in picture.svg()
    assert picture.description in picture.img()
    assert b"Title\0a < b" in picture.render("png")


def test_every_character_of_the_corpus_has_an_outline_that_comes_with_us() -> None:
    visible = {character for character in characters() if not character.isspace()}
    missing = {one for one in visible if pictures._font_of(one) not in ("DejaVu Sans", "Regard Glyphs")}
    assert not missing, "run tools/glyphs.py"


def test_the_corpus_is_drawn_without_any_font() -> None:
    root = root_of(pictures.heatmap(weights(), TARGET, SOURCE))
    assert not list(root.iter(f"{SVG}text"))
    outlined = {path.get("id", "") for path in root.iter(f"{SVG}path")}
    assert sum("RegardGlyphs" in name for name in outlined) == len("月日星期六")


def test_a_character_that_no_font_has_is_left_to_the_viewer_in_svg_and_named_elsewhere() -> None:
    picture = pictures.heatmap([[1.0]], ["b"], ["a\ue000"])
    (label,) = (text for text in root_of(picture).iter(f"{SVG}text") if "\ue000" in (text.text or ""))
    assert label.text == "a\ue000"
    for kind in ("png", "pdf"):
        with pytest.raises(DataError, match=r"U\+E000.*take \.svg"):
            picture.render(kind)


@pytest.mark.parametrize(
    "token", ["<&\">'", "\x00", "\x1b[31m", "\ud800", "\uffff", "]]>", "😀", "</svg><script>", "$x$"]
)
def test_any_token_keeps_the_files_well_formed(token: str) -> None:
    picture = pictures.heatmap([[1.0]], [token], [token], title=token)
    root_of(picture)
    one = Alignment(token, token, [token], [token], np.ones((1, 1)))
    shown = page(one, picture)
    assert "<script" not in shown
    shown.encode()


@pytest.mark.parametrize("kind", pictures.KINDS)
def test_the_same_bytes_each_time(kind: str, tmp_path: Path) -> None:
    for name in "ab":
        pictures.heatmap(weights(), TARGET, SOURCE).save(tmp_path / f"{name}.{kind}")
    assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"x\.gif: .*\.svg, \.png, \.pdf"):
        pictures.heatmap([[1.0]], ["a"], ["b"]).save(tmp_path / "x.gif")


def test_png_shows_chinese_and_the_colours_of_the_weights() -> None:
    image = pytest.importorskip("PIL.Image")
    with image.open(
        BytesIO(pictures.heatmap([[0.0, 0.25], [1.0, 0.5]], ["年", "月"], ["a", "b"]).render("png"))
    ) as one:
        pixels = one.convert("RGB")
    shown = {"#{:02x}{:02x}{:02x}".format(*ink) for _, ink in pixels.getcolors(1 << 20)}
    assert {pictures.colour(share) for share in (0, 0.25, 0.5, 1)} <= shown
    wide, tall = pixels.size
    x, y = next((x, y) for x in range(wide) for y in range(tall) if pixels.getpixel((x, y)) == (8, 48, 107))
    beside = pixels.convert("L").crop((0, y, x - 3, y + 30))
    assert beside.getextrema()[0] < 100, "月 is drawn beside its row"


def test_without_matplotlib_the_way_out_is_named() -> None:
    program = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from regard import pictures\n"
        "try: pictures.heatmap([[1.0]], ['a'], ['b'])\n"
        "except pictures.DataError as error: assert '.[pictures]' in str(error)\n"
        "else: sys.exit(1)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


# -- figures -----------------------------------------------------------------------------------------------------------


def test_curves_and_bars_show_their_numbers() -> None:
    lines = {"a": [0.01, 0.1, 1.0], "b": [1.0, 1.0, float("nan")]}
    drawn = pictures.panels(
        [
            pictures.curves("c", [1, 10, 100], lines, x="x", y="y", logarithmic="xy", at=10),
            pictures.bars("b", ["u", "v"], {"one": [1, 2], "two": [3, 4]}),
        ]
    )
    curves, bars = drawn.figure.axes
    assert [line.get_ydata().tolist() for line in curves.lines[:2]] == [
        lines["a"],
        pytest.approx(lines["b"], nan_ok=True),
    ]
    assert (curves.get_xscale(), curves.get_yscale()) == ("log", "log")
    assert len({(line.get_color(), line.get_marker()) for line in curves.lines[:2]}) == 2
    assert [bar.get_height() for bar in bars.patches] == [1, 2, 3, 4]
    assert root_of(drawn).tag == f"{SVG}svg"
    assert "mathdefault" not in drawn.svg()


def test_a_darker_word_is_one_with_more_weight() -> None:
    word = pictures.Word
    lines = [[word("<s>"), word("\u2581a", 0.2), word("b & c", 0.9, note="0.900")], [word(""), word("d", now=True)]]
    axes = pictures.shades(lines, title="x < y").figure.axes[0]
    assert [text.get_text() for text in axes.texts] == ["begin", "a", "b & c", "0.900", "d"]
    fills = [patch.get_facecolor()[0] for patch in axes.patches]
    assert fills[0] > fills[1], "less red is darker in these blues"
    places = {text.get_text(): text.get_position()[0] for text in axes.texts}
    assert places["a"] == places["d"], "under each other"
    apart = pictures.shades(lines, aligned=False).figure.axes[0]
    places = {text.get_text(): text.get_position()[0] for text in apart.texts}
    assert places["a"] != places["d"]


# -- the demonstration's page ------------------------------------------------------------------------------------------


class Balance(HTMLParser):
    """Checks that every tag is closed in order; keeps the text and the addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src", "xlink:href", "action")]
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_holds_all_it_needs_and_its_text_can_be_selected() -> None:
    matrix = weights()
    one = Alignment("<2zh> Samstag, 21. November", "11月21日 星期六", SOURCE, TARGET, matrix)
    shown = page(one, pictures.heatmap(matrix, TARGET, SOURCE))
    parser = Balance()
    parser.feed(shown)
    assert not parser.open
    assert [address.split(",")[0] for address in parser.addresses] == ["data:image/svg+xml;base64"]
    assert not re.search(r"http|url\(|@import", shown)
    assert '<meta charset="utf-8">' in shown
    assert "Samstag, 21. November" in parser.text
    assert "11月21日 星期六" in parser.text
    numbers = [float(number) for number in re.findall(r"<td style=[^>]*>([0-9.]+)</td>", shown)]
    assert np.allclose(np.reshape(numbers, matrix.shape), matrix, atol=0.0051)


# -- the terminal ------------------------------------------------------------------------------------------------------


def printed(matrix: np.ndarray, width: int, *, colours: bool = False) -> list[str]:
    console = Console(width=width, force_terminal=colours, color_system="truecolor" if colours else None)
    with console.capture() as capture:
        console.print(HeatMap(matrix, TARGET, SOURCE))
    return capture.get().splitlines()


def test_the_terminal_shows_the_heaviest_cell_of_a_row_densest() -> None:
    matrix = np.eye(len(TARGET), len(SOURCE))
    lines = printed(matrix, 80)
    first = next(number for number, line in enumerate(lines) if "██" in line)
    for row in range(len(TARGET)):
        line = lines[first + row]
        assert line.strip().startswith(pictures.label(TARGET[row]))
        before = line[: line.index("██")]
        margin = max(cell_len(pictures.label(token)) for token in TARGET) + 1
        assert cell_len(before) == margin + 2 * row


def test_a_narrow_terminal_gets_all_columns_in_blocks() -> None:
    lines = printed(np.eye(len(TARGET), len(SOURCE)), 20)
    assert max(cell_len(line) for line in lines) <= 20
    assert sum("██" in line for line in lines) == len(TARGET) + 1
    assert sum(line.strip().startswith("星期六") for line in lines) == 2


def test_the_terminal_has_colours_where_it_can() -> None:
    assert any("38;2;8;48;107" in line for line in printed(weights(), 80, colours=True))


def test_a_token_cannot_command_the_terminal() -> None:
    console = Console(width=80, force_terminal=True, color_system=None)
    with console.capture() as capture:
        console.print(HeatMap([[1.0]], ["a\x1b]8;;x"], ["[red]\x9b2J"]))
    assert "\x1b]" not in capture.get()
    assert "\x9b" not in capture.get()
    assert "a\\x1b]8;;x" in capture.get()


def test_the_extra_of_the_lectures_is_another_name_for_that_of_pictures() -> None:
    extras = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]
    assert extras["optional-dependencies"]["lectures"] == ["regard[pictures]"]


@pytest.mark.parametrize(
    ("token", "shown"),
    [("▁Samstag", "Samstag"), ("▁", "␣"), ("\u00a0€", "␣€"), ("</s>", "end"), ("", "␣"), ("▁▁a", "␣a"), ("年", "年")],
)
def test_a_label_drops_the_space_that_begins_a_word_and_shows_others(token: str, shown: str) -> None:
    assert pictures.label(token) == shown


def test_weights_must_fit_the_tokens_and_be_weights() -> None:
    with pytest.raises(ValueError, match=r"\(target tokens, source tokens\), here \(9, 10\)"):
        pictures.heatmap(weights().T, TARGET, SOURCE)
    with pytest.raises(ValueError, match="from 0 to 1"):
        pictures.heatmap(weights() * np.nan, TARGET, SOURCE)
    with pytest.raises(ValueError, match="before the softmax"):
        pictures.heatmap(weights() - 1, TARGET, SOURCE)


def test_nothing_to_show_is_shown() -> None:
    root_of(pictures.heatmap(np.zeros((0, 0)), [], []))
    root_of(pictures.heatmap(np.zeros((1, 2)), ["c"], ["a", "b"]))


def test_pictures_need_no_torch_and_their_module_nothing_at_all() -> None:
    for program in (
        "import sys, regard.apps.use; sys.exit('torch' in sys.modules)",
        "import sys, regard.pictures; sys.exit('matplotlib' in sys.modules or 'numpy' in sys.modules)",
    ):
        assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
