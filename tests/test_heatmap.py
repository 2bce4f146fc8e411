"""Heat maps: the right weight in the right cell, well-formed, complete in themselves, legible without fonts."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console

from regard.apps import heatmap
from regard.studies.demo.corpus import characters

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


def picture(matrix: np.ndarray) -> ElementTree.Element:
    return ElementTree.fromstring(heatmap.svg(matrix, SOURCE, TARGET).encode())


def group(root: ElementTree.Element, name: str) -> ElementTree.Element:
    return next(g for g in root.iter(f"{SVG}g") if g.get("class") == name)


def test_source_is_on_columns_and_target_on_rows() -> None:
    matrix = weights()
    cells = list(group(picture(matrix), "weights"))
    assert len(cells) == matrix.size
    xs = sorted({float(cell.attrib["x"]) for cell in cells})
    ys = sorted({float(cell.attrib["y"]) for cell in cells})
    assert (len(ys), len(xs)) == matrix.shape
    for cell in cells:
        row, column = ys.index(float(cell.attrib["y"])), xs.index(float(cell.attrib["x"]))
        said = cell.findtext(f"{SVG}title") or ""
        target, source = heatmap.label(TARGET[row]), heatmap.label(SOURCE[column])
        assert said == f"{target} ← {source}: {matrix[row, column]:.3f}"


def test_a_larger_weight_is_darker() -> None:
    matrix = weights()
    cells = list(group(picture(matrix), "weights"))
    ordered = [cells[at].attrib["fill"] for at in np.argsort(matrix.ravel(), kind="stable")]
    assert all(brightness(first) >= brightness(second) for first, second in pairwise(ordered))
    assert ordered[-1] == heatmap.BLUES[-1]


def test_labels_stand_at_their_columns_and_rows() -> None:
    root = picture(weights())
    columns, rows = list(group(root, "source")), list(group(root, "target"))
    assert [g.get("aria-label") for g in columns] == [heatmap.label(token) for token in SOURCE]
    assert [g.get("aria-label") for g in rows] == [heatmap.label(token) for token in TARGET]
    cells = list(group(root, "weights"))
    for g, cell in zip(columns, cells[: len(SOURCE)], strict=True):
        x = float(re.findall(r"[-0-9.]+", g.attrib["transform"])[0])
        assert float(cell.attrib["x"]) < x < float(cell.attrib["x"]) + heatmap.CELL
    for g, cell in zip(rows, cells[:: len(SOURCE)], strict=True):
        y = float(re.findall(r"[-0-9.]+", g.attrib["transform"])[1])
        assert float(cell.attrib["y"]) < y < float(cell.attrib["y"]) + heatmap.CELL


def test_the_picture_says_what_it_is() -> None:
    root = picture(weights())
    assert root.get("role") == "img"
    assert "星期六" in root.attrib["aria-label"]
    assert root.findtext(f"{SVG}title") == "Attention"
    assert "each target token looks most" in (root.findtext(f"{SVG}desc") or "")


def test_every_character_of_the_corpus_has_an_outline() -> None:
    visible = {character for character in characters() if not character.isspace()}
    missing = {character for character in visible if not heatmap._glyphs().get(character, (0, ""))[1]}
    assert not missing, "run tools/glyphs.py"


def test_the_corpus_is_drawn_without_any_font() -> None:
    root = picture(weights())
    assert not list(root.iter(f"{SVG}text"))
    assert len(list(group(root, "target").iter(f"{SVG}path"))) == len("␣11月21日星期六end")


def test_a_character_without_an_outline_is_left_to_the_viewer_s_fonts() -> None:
    root = ElementTree.fromstring(heatmap.svg([[1.0]], ["猫"], ["a"]).encode())
    (text,) = root.iter(f"{SVG}text")
    assert text.text == "猫"
    assert "Noto Sans CJK SC" in text.attrib["font-family"]


@pytest.mark.parametrize("token", ["<&\">'", "\x00", "\x1b[31m", "\ud800", "\uffff", "]]>", "😀", "</svg><script>"])
def test_any_token_keeps_the_files_well_formed(token: str) -> None:
    ElementTree.fromstring(heatmap.svg([[1.0]], [token], [token], title=token).encode())
    page = heatmap.html([[1.0]], [token], [token], title=token, source=token)
    assert "<script" not in page
    page.encode()


class Balance(HTMLParser):
    """Checks that every tag is closed in order; keeps the text and the addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src", "xlink:href", "action")]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """`<path/>` opens nothing."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_holds_all_it_needs_and_its_text_can_be_selected() -> None:
    matrix = weights()
    page = heatmap.html(matrix, SOURCE, TARGET, title="One sentence")
    parser = Balance()
    parser.feed(page)
    assert not parser.open
    assert not parser.addresses
    assert "http" not in page
    assert "url(" not in page
    assert "@import" not in page
    assert '<meta charset="utf-8">' in page
    assert "Samstag, 21. November" in parser.text
    assert "11月21日 星期六" in parser.text
    numbers = [float(number) for number in re.findall(r"<td style=[^>]*>([0-9.]+)</td>", page)]
    assert np.allclose(np.reshape(numbers, matrix.shape), matrix, atol=0.0051)


def printed(matrix: np.ndarray, width: int, *, colours: bool = False) -> list[str]:
    console = Console(width=width, force_terminal=colours, color_system="truecolor" if colours else None)
    with console.capture() as capture:
        console.print(heatmap.terminal(matrix, SOURCE, TARGET))
    return capture.get().splitlines()


def test_the_terminal_shows_the_heaviest_cell_of_a_row_densest() -> None:
    matrix = np.eye(len(TARGET), len(SOURCE))
    lines = printed(matrix, 80)
    first = next(number for number, line in enumerate(lines) if "██" in line)
    for row in range(len(TARGET)):
        line = lines[first + row]
        assert line.strip().startswith(heatmap.label(TARGET[row]))
        before = line[: line.index("██")]
        margin = max(cell_len(heatmap.label(token)) for token in TARGET) + 1
        assert cell_len(before) == margin + 2 * row


def test_a_narrow_terminal_gets_all_columns_in_blocks() -> None:
    lines = printed(np.eye(len(TARGET), len(SOURCE)), 20)
    assert max(cell_len(line) for line in lines) <= 20
    assert sum("██" in line for line in lines) == len(TARGET) + 1
    assert sum(line.strip().startswith("星期六") for line in lines) == 2


def test_the_terminal_has_colours_where_it_can() -> None:
    assert any("38;2;8;48;107" in line for line in printed(weights(), 80, colours=True))


@pytest.mark.parametrize(
    ("token", "shown"),
    [("▁Samstag", "Samstag"), ("▁", "␣"), ("\u00a0€", "␣€"), ("</s>", "end"), ("", "␣"), ("▁▁a", "␣a"), ("年", "年")],
)
def test_a_label_drops_the_space_that_begins_a_word_and_shows_others(token: str, shown: str) -> None:
    assert heatmap.label(token) == shown


def test_weights_must_fit_the_tokens_and_be_weights() -> None:
    with pytest.raises(ValueError, match=r"\(target tokens, source tokens\), here \(9, 10\)"):
        heatmap.svg(weights().T, SOURCE, TARGET)
    with pytest.raises(ValueError, match="from 0 to 1"):
        heatmap.svg(weights() * np.nan, SOURCE, TARGET)
    with pytest.raises(ValueError, match="before the softmax"):
        heatmap.svg(weights() - 1, SOURCE, TARGET)


def test_nothing_to_show_is_shown() -> None:
    ElementTree.fromstring(heatmap.svg(np.zeros((0, 0)), [], []).encode())
    ElementTree.fromstring(heatmap.svg(np.zeros((1, 2)), ["a", "b"], ["c"]).encode())


def test_a_heat_map_needs_no_torch() -> None:
    program = "import sys, regard.apps.heatmap; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
