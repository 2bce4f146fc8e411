"""The page of `regard look` as a reader has it, in Chromium: opened from a file, without a network."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from chromium import offline

from regard.apps.look import page
from regard.explore.look import Attention, Part, Side

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install '.[dev]'")
image = pytest.importorskip("PIL.Image")
LAYERS, HEADS = 2, 3
ROWS = ("▁Ein", "▁Mann", "▁läch", "elt", "</s>")
COLUMNS = ("▁A", "▁man", "▁is", "▁smil", "ing", ".", "</s>")
SPACE = "{http://www.w3.org/2000/svg}"


def attention() -> Attention:
    """Cross-attention (2, 3, 5, 7) and the encoder's own, (2, 3, 7, 7)."""
    draw = np.random.default_rng(0).dirichlet
    rows = Side(ROWS, ("Ein", "Mann", "lächelt", "</s>"), np.eye(4)[[0, 1, 2, 2, 3]])
    columns = Side(COLUMNS, ("A", "man", "is", "smiling", ".", "</s>"), np.eye(6)[[0, 1, 2, 3, 3, 4, 5]])
    own, cross = (draw(np.full(7, 0.3), (LAYERS, HEADS, T)).astype(np.float32) for T in (7, 5))
    parts = Part("encoder", own, columns, columns), Part("cross", cross, rows, columns)
    return Attention("A man is smiling.", "Ein Mann lächelt", parts)


ATTENTION = attention()
CROSS = ATTENTION.part("cross")


@pytest.fixture
def opened(chromium: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The page, opened; nothing may be asked of any network, and nothing may go wrong."""
    file = tmp_path / "attention.html"
    file.write_text(page(ATTENTION), encoding="utf-8")
    options = {"viewport": {"width": 1280, "height": 800}, **getattr(request, "param", {})}
    with offline(chromium, file, **options) as shown:
        yield shown


def exported(shown: Any) -> str:
    with shown.expect_download() as waiting:
        shown.click("#svg")
    return Path(waiting.value.path()).read_text(encoding="utf-8")


def cells(svg: str) -> list[dict[str, Any]]:
    """Place, colour and weight of each cell, row by row."""
    return [
        {
            **{name: float(cell.get(name, "")) for name in ("x", "y", "width", "height")},
            "fill": tuple(map(int, re.findall(r"\d+", cell.get("fill", "")))),
            "weight": float(cell.findtext(f"{SPACE}title") or ""),
        }
        for cell in ElementTree.fromstring(svg).iter(f"{SPACE}rect")
        if cell.get("class") == "weight"
    ]


def names(svg: str) -> list[tuple[str, float, float]]:
    """Each name and where it is anchored."""
    found = []
    for text in ElementTree.fromstring(svg).iter(f"{SPACE}text"):
        x, y = re.findall(r"-?[\d.]+", text.get("transform", ""))[:2]
        found.append((text.text or "", float(x), float(y)))
    return found


def pixels(png: bytes) -> Any:
    return np.asarray(image.open(io.BytesIO(png)).convert("RGB")).astype(int)


def canvas_at(shown: Any, x: float, y: float) -> tuple[float, float]:
    box = shown.locator("#picture").bounding_box()
    return box["x"] + x, box["y"] + y


def point(shown: Any, cell: dict[str, Any]) -> str:
    """What the page says of the cell that the mouse is on."""
    shown.mouse.move(*canvas_at(shown, cell["x"] + cell["width"] / 2, cell["y"] + cell["height"] / 2))
    shown.wait_for_function("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")
    return str(shown.inner_text("#readout"))


@pytest.mark.parametrize(
    "opened", [{}, {"color_scheme": "dark"}, {"device_scale_factor": 2}], ids=["light", "dark", "dense"], indirect=True
)
def test_it_opens(opened: Any) -> None:
    assert opened.inner_text("#title") == "Layer: mean Attention: Input - Output"
    assert opened.inner_text("#source") == "A man is smiling."
    assert opened.locator("#heads canvas").count() == LAYERS * HEADS


def test_source_is_on_columns_and_target_on_rows(opened: Any) -> None:
    opened.click("#heads [data-layer='2'][data-head='3']")
    svg = exported(opened)
    found = cells(svg)
    np.testing.assert_allclose([cell["weight"] for cell in found], CROSS.weights[1, 2].ravel(), atol=1e-4)
    for row, column in ((0, 6), (4, 0), (2, 3)):
        cell = found[row * len(COLUMNS) + column]
        assert point(opened, cell) == f"{label(ROWS[row])} ← {label(COLUMNS[column])}: {cell['weight']:.4f}"
    lefts, tops = sorted({cell["x"] for cell in found}), sorted({cell["y"] for cell in found})
    assert (len(lefts), len(tops)) == (len(COLUMNS), len(ROWS))
    rows, columns = names(svg)[: len(ROWS)], names(svg)[len(ROWS) :]
    assert [name for name, *_ in rows] == [label(name) for name in ROWS]
    assert [name for name, *_ in columns] == [label(name) for name in COLUMNS]
    assert all(x < lefts[0] and top < y < top + 40 for (_, x, y), top in zip(rows, tops, strict=True))
    assert all(y < tops[0] and left < x < left + 40 for (_, x, y), left in zip(columns, lefts, strict=True))


def label(token: str) -> str:
    return {"</s>": "end"}.get(token, token.removeprefix("▁"))


def test_layers_and_heads_by_mouse_and_by_keyboard(opened: Any) -> None:
    def title() -> str:
        return str(opened.inner_text("#title"))

    opened.click("#heads [data-layer='1'][data-head='2']")
    assert title() == "Layer: 1 Attention: Input - Output Head: 2"
    opened.keyboard.press("Tab")
    opened.keyboard.press("Enter")
    assert title() == "Layer: 1 Attention: Input - Output Head: 3"
    opened.focus("#layer")
    opened.keyboard.press("ArrowDown")
    assert title() == "Layer: 2 Attention: Input - Output Head: 3"
    opened.focus("#layers [data-toggle='1']")
    opened.keyboard.press("Space")
    opened.click("#toggles [data-toggle='1']")
    assert title() == "Layer: mean Attention: Input - Output Head: 1, 3"
    expected = CROSS.weights[:, [0, 2]].mean((0, 1))
    np.testing.assert_allclose([cell["weight"] for cell in cells(exported(opened))], expected.ravel(), atol=1e-4)
    opened.select_option("#combine", "sum")
    assert title() == "Layer: sum Attention: Input - Output Head: 1, 3"
    expected = CROSS.summed(heads=[1, 3])
    np.testing.assert_allclose([cell["weight"] for cell in cells(exported(opened))], expected.ravel(), atol=1e-4)
    opened.select_option("#part", "encoder")
    assert title() == "Layer: sum Attention: Input - Input"
    opened.click("#toggles [data-toggle='1']")
    opened.click("#toggles [data-toggle='2']")
    opened.click("#toggles [data-toggle='3']")  # the last one stays
    assert title() == "Layer: sum Attention: Input - Input Head: 3"


def test_a_weight_by_keyboard(opened: Any) -> None:
    opened.focus("#picture")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        opened.keyboard.press(key)
        opened.wait_for_function("new Promise((done) => requestAnimationFrame(() => done(1)))")
    weight = CROSS.matrix()[1, 1]
    said, _, figure = opened.inner_text("#readout").rpartition(": ")
    assert said == "Mann ← man"
    assert float(figure) == pytest.approx(weight, abs=1e-4)


def test_sums_over_chosen_names(opened: Any) -> None:
    opened.click("#heads [data-layer='2'][data-head='1']")
    found = {name: (x, y) for name, x, y in names(exported(opened))}
    for name in ("Mann", "elt"):
        opened.mouse.click(*canvas_at(opened, found[name][0] - 4, found[name][1]))
    x, y = found["smil"]
    opened.mouse.click(*canvas_at(opened, x + 4, y - 7))
    expected = CROSS.total(rows=[2, 4], columns=[4], layers=[2], heads=[1])
    playwright.expect(opened.locator("#sum")).to_have_text(
        f"Sum of what is chosen: {expected:.4f} (rows 2, columns 1, layers 1, heads 1)"
    )
    opened.select_option("#head", "0")
    expected = CROSS.total(rows=[2, 4], columns=[4], layers=[2])
    playwright.expect(opened.locator("#sum")).to_contain_text(f"{expected:.3f}"[:-1])
    opened.focus("#picture")
    opened.keyboard.press("Escape")
    playwright.expect(opened.locator("#sum")).to_contain_text("Click names")


def test_words_in_the_place_of_tokens(opened: Any) -> None:
    opened.select_option("#unit", "words")
    svg = exported(opened)
    np.testing.assert_allclose([cell["weight"] for cell in cells(svg)], CROSS.merged().matrix().ravel(), atol=1e-4)
    assert [name for name, *_ in names(svg)][:4] == ["Ein", "Mann", "lächelt", "end"]


def test_every_weight_that_is_shown_has_its_line(opened: Any) -> None:
    opened.select_option("#view", "lines")
    opened.select_option("#layer", "1")
    svg = exported(opened)
    lines = list(ElementTree.fromstring(svg).iter(f"{SPACE}line"))
    shown = CROSS.weights[0][CROSS.weights[0] >= 0.02]
    np.testing.assert_allclose([float(line.get("opacity", "")) for line in lines], shown, atol=1e-4)
    assert len({line.get("stroke") for line in lines}) == HEADS


@pytest.mark.parametrize("view", ["matrix", "lines"])
def test_what_is_exported_is_what_is_on_the_screen(chromium: Any, opened: Any, view: str) -> None:
    opened.select_option("#view", view)
    opened.click("#heads [data-layer='1'][data-head='2']")
    svg = exported(opened)
    opened.mouse.move(0, 0)
    screen = pixels(opened.locator("#picture").screenshot())
    for cell in cells(svg):
        x, y = int(cell["x"] + cell["width"] / 2), int(cell["y"] + cell["height"] / 2)
        assert tuple(screen[y, x]) == cell["fill"]
    with opened.expect_download() as waiting:
        opened.click("#png")
    saved = pixels(Path(waiting.value.path()).read_bytes())
    drawn = chromium.new_page(viewport={"width": 1280, "height": 800})
    drawn.set_content(f'<body style="margin:0">{svg}</body>')
    again = pixels(drawn.locator("svg").screenshot())
    drawn.close()
    assert saved.shape == again.shape
    different = np.abs(saved - again).max(axis=-1)
    assert (different > 64).mean() < 0.002  # the edges of letters, which are drawn in two ways


PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True, "device_scale_factor": 2}


@pytest.mark.parametrize("opened", [PHONE, {"viewport": {"width": 320, "height": 600}}], indirect=True)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_phone_has_nothing_to_scroll_sideways(opened: Any, language: str) -> None:
    opened.select_option("#language", language)
    for view in ("matrix", "lines"):
        opened.select_option("#view", view)
        assert opened.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        widths = "[...document.querySelectorAll('select, button')].map((one) => one.getBoundingClientRect().right)"
        assert max(opened.evaluate(widths)) <= opened.evaluate("innerWidth") + 0.5


def test_it_speaks_chinese(opened: Any) -> None:
    opened.select_option("#language", "zh")
    assert opened.inner_text("h1") == "模型做了什么"
    assert opened.evaluate("document.documentElement.lang") == "zh-Hans"
    said = opened.evaluate("document.body.innerText")
    assert "undefined" not in said
    assert "点击行名" in said
