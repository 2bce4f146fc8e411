"""What each view of the explorer's page saves as SVG: the picture as it is on the screen, standing alone."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from bundles import ENGLISH, small_bundle
from chromium import offline

from regard.explore.exploration import explore
from regard.explore.page import page

image = pytest.importorskip("PIL.Image")
SPACE = "{http://www.w3.org/2000/svg}"
BUTTONS = {"attention": "#svg", "decoding": "#decoding-svg", "steps": "#steps-svg", "search": "#tree-svg"}
SCREENS = [
    ("free", {}),
    ("two", {"color_scheme": "dark"}),
    ("free", {"color_scheme": "dark", "viewport": {"width": 360, "height": 700}}),
]
on_screens = pytest.mark.parametrize("opened", SCREENS, indirect=True, ids=["light", "two, dark", "narrow, dark"])


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("svg")
    small_bundle(place / "one", search={"beam": 3, "extra_length": 4})
    one = explore(place / "one", ENGLISH[7])
    found = {"free": page(one), "two": page(one, explore(place / "one", "A <man> is smiling & …"))}
    files = {name: place / f"{name}.html" for name in found}
    for name, file in files.items():
        file.write_text(found[name], encoding="utf-8")
    return files


@pytest.fixture
def opened(chromium: Any, pages: dict[str, Path], request: pytest.FixtureRequest) -> Iterator[Any]:
    name, options = getattr(request, "param", SCREENS[0])
    with offline(chromium, pages[name], **{"viewport": {"width": 1280, "height": 900}, **options}) as shown:
        yield shown


def saved(shown: Any, name: str) -> str:
    with shown.expect_download() as waiting:
        shown.click(BUTTONS[name])
    return Path(waiting.value.path()).read_text(encoding="utf-8")


def joined(*texts: str | None) -> str:
    """Without spaces, at which lines are broken."""
    return "".join("".join((text or "").split()) for text in texts)


def alone(svg: str) -> None:
    """Nothing but plain shapes and words in attributes of their own, and all of them inside of the picture."""
    root = ElementTree.fromstring(svg)
    assert {each.tag.removeprefix(SPACE) for each in root.iter()} <= {"svg", "title", "rect", "line", "text"}
    assert not re.search(r"href|url\(|@import|style=|class=\"(?!weight)|NaN|undefined", svg)
    assert svg.count("http") == 1  # the name of SVG itself
    width, height = (float(root.get(name, "")) for name in ("width", "height"))
    for text in root.iter(f"{SPACE}text"):
        place = re.match(r"translate\(([-\d.]+) ([-\d.]+)\)", text.get("transform", ""))
        assert place is not None
        assert 0 <= float(place[1]) <= width
        assert 0 <= float(place[2]) <= height


def pixels(png: bytes) -> Any:
    return np.asarray(image.open(io.BytesIO(png)).convert("RGB")).astype(int)


def viewed(chromium: Any, svg: str) -> Any:
    """Its pixels as an image, in which a browser runs no script and loads nothing."""
    shown = chromium.new_page(viewport={"width": 1280, "height": 800})
    source = base64.b64encode(svg.encode()).decode()
    shown.set_content(f'<body style="margin:0"><img style="display:block" src="data:image/svg+xml;base64,{source}">')
    shown.wait_for_function("document.images[0].naturalWidth > 0")
    found = pixels(shown.locator("img").screenshot())
    shown.close()
    return found


@on_screens
@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_view_saves_what_it_shows(opened: Any, language: str) -> None:
    opened.select_option("#language", language)
    paper = opened.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--paper').trim()")
    tabs = [tab.get_attribute("id").removeprefix("tab-") for tab in opened.locator("[role=tab]").all()]
    assert {*tabs} == {*BUTTONS}
    for name in tabs:
        opened.click(f"#tab-{name}")
        if name == "decoding":
            for _ in range(4):
                opened.click("#on")
        svg = saved(opened, name)
        alone(svg)
        assert f'fill="{paper}"' in svg.split("\n")[1]
        written = joined(*(text.text for text in ElementTree.fromstring(svg).iter(f"{SPACE}text")))
        if name == "steps":
            assert written == joined(opened.inner_text("#tables"))
        if name == "decoding":
            assert all(joined(said) in written for said in opened.locator("#screens .readout").all_inner_texts())


@on_screens
def test_an_image_viewer_shows_the_same(chromium: Any, opened: Any) -> None:
    opened.click("#tab-steps")
    if opened.evaluate("innerWidth") > 400:  # else a part of the table is scrolled out of sight
        screen, again = pixels(opened.locator("#tables").screenshot()), viewed(chromium, saved(opened, "steps"))
        assert screen.shape == again.shape
        assert (np.abs(screen - again)[1:].max(axis=-1) > 64).mean() < 0.01  # the first row is that of the tabs, too
    opened.click("#tab-decoding")
    opened.focus("#time")
    opened.keyboard.press("End")
    opened.mouse.move(0, 0)
    again = viewed(chromium, saved(opened, "decoding"))
    source = opened.evaluate("document.getElementById('screen').toDataURL()")
    screen = pixels(base64.b64decode(source.split(",")[1]))
    tall, wide = screen.shape[:2]
    assert (np.abs(screen - again[:tall, :wide]).max(axis=-1) > 64).mean() < 0.01  # the edges of letters and lines


def test_a_table_is_saved_whole_however_it_is_scrolled(opened: Any) -> None:
    opened.set_viewport_size({"width": 360, "height": 700})
    opened.click("#tab-steps")
    before = saved(opened, "steps")
    opened.evaluate("document.querySelector('.scroll').scrollLeft = 90")
    assert opened.evaluate("document.querySelector('.scroll').scrollLeft") == 90
    assert saved(opened, "steps") == before


def test_another_theme_reaches_every_view(opened: Any) -> None:
    light = saved(opened, "attention")
    opened.click("#tab-search")
    opened.emulate_media(color_scheme="dark")
    opened.click("#tab-attention")
    svg = saved(opened, "attention")
    assert svg != light
    cell = next(each for each in ElementTree.fromstring(svg).iter(f"{SPACE}rect") if each.get("class") == "weight")
    x, y = (float(cell.get(name, "")) + 3 for name in ("x", "y"))
    drawn = opened.locator("#picture").evaluate(
        "(canvas, [x, y]) => [...canvas.getContext('2d').getImageData(x, y, 1, 1).data.slice(0, 3)]", [x, y]
    )
    assert tuple(drawn) == tuple(map(int, re.findall(r"\d+", cell.get("fill", ""))))
