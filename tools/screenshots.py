"""Makes docs/pictures/look-*.png, the explorer's page in use: `python tools/screenshots.py BUNDLE`.

The bundle translates English to German; Chromium and Playwright are needed, and a font with Chinese characters.
"""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image

from regard.explore.exploration import explore
from regard.explore.page import page

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from chromium import browser  # noqa: E402

OUT = ROOT / "docs" / "pictures"
LINE = "A young girl in a red dress is playing with two dogs in the garden."
SHORT = "A man is smiling at two dogs."
LAPTOP = {"viewport": {"width": 1280, "height": 860}}
PHONE = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2, "is_mobile": True, "has_touch": True}


def laptop(shown: Any) -> None:
    """A layer and a head, with a row and a column chosen."""
    shown.click("#heads [data-layer='2'][data-head='1']")
    shown.focus("#picture")
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight", "Enter", "Space"):
        shown.keyboard.press(key)


def phone(shown: Any) -> None:
    """Lines of all heads of a layer."""
    shown.click("#heads [data-layer='2'][data-head='1']")
    shown.select_option("#view", "lines")
    shown.select_option("#head", "0")


def search(shown: Any) -> None:
    """The beam search as a tree, with a token that was pruned pointed at."""
    shown.click("#tab-search")
    shown.focus("#tree")
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        shown.keyboard.press(key)


def decoding(shown: Any) -> None:
    """Decoding in the middle of the sentence, in the dark."""
    shown.click("#tab-decoding")
    shown.focus("#time")
    for _ in range(9):
        shown.keyboard.press("ArrowRight")


SHOTS: dict[str, tuple[dict[str, Any], Callable[[Any], None]]] = {
    "laptop": (LAPTOP, laptop),
    "phone": (PHONE, phone),
    "search": ({"viewport": {"width": 1290, "height": 920}}, search),
    "decoding": ({"viewport": {"width": 1000, "height": 780}, "color_scheme": "dark"}, decoding),
}


def main(bundle: str) -> None:
    OUT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as place, browser() as chromium:
        file = Path(place) / "explored.html"
        for name, (device, act) in SHOTS.items():
            file.write_text(page(explore(bundle, SHORT if name == "search" else LINE)), encoding="utf-8")
            shown = chromium.new_context(**device).new_page()
            shown.goto(file.as_uri())
            act(shown)
            start = "document.getElementById('title').scrollIntoView()" if name == "phone" else "scrollTo(0, 0)"
            shown.evaluate(f"document.activeElement.blur(); {start}")
            shown.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
            image = Image.open(io.BytesIO(shown.screenshot())).convert("RGB")
            image.quantize(192).save(OUT / f"look-{name}.png", optimize=True)  # few colours, so a small file


if __name__ == "__main__":
    main(sys.argv[1])
