"""Makes docs/pictures/look-*.png, the explorer's page in use: `python tools/screenshots.py BUNDLE`; and, without a
bundle, docs/pictures/lecture-*.png, pages of lectures; `… BUNDLE server` makes server*.png, the server's own page.

The bundle translates English to German; Chromium and Playwright are needed, and a font with Chinese characters.
"""

from __future__ import annotations

import io
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image

from regard.explore.exploration import explore
from regard.explore.page import page
from regard.studies.lectures import interactive
from regard.studies.lectures.every import lecture
from regard.studies.lectures.slides import Decks

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


LECTURES: dict[str, dict[str, Any]] = {
    "scores": {"x": -0.4, "y": 1.1, "temperature": 0.7},
    "masks": {"causal": True},
    "rotation": {},
    "beams": {"width": 3},
    "decoding-steps": {"step": 4},
}
"""Lectures whose pages are pictured, and what their controls are set to."""
_SET = """([name, value]) => { const control = document.querySelector(`[name="${name}"]`);
  control[control.type === "checkbox" ? "checked" : "value"] = value;
  ["input", "change"].forEach((event) => control.dispatchEvent(new Event(event))); }"""


def saved(shown: Any, file: Path) -> None:
    """A picture in few colours, so that the file is small."""
    Image.open(io.BytesIO(shown.screenshot())).convert("RGB").quantize(128).save(file, optimize=True)


def lectures() -> None:
    """The part of each page that moves; the beams in Chinese, and in the dark."""
    with tempfile.TemporaryDirectory() as place, browser() as chromium:
        for name, values in LECTURES.items():
            made = interactive.page(name, interactive.recorded() if name == interactive.RECORDED else lecture(name))
            (Path(place) / "page.html").write_text(made, encoding="utf-8")
            scheme = "dark" if name == "beams" else "light"
            device = {"viewport": {"width": 1100, "height": 860}, "color_scheme": scheme}
            shown = chromium.new_context(**device).new_page()
            shown.goto((Path(place) / "page.html").as_uri())
            for setting in values.items():
                shown.evaluate(_SET, list(setting))
            if name == "beams":
                shown.click("#language")
            saved(shown, OUT / f"lecture-{name}.png")
        (Path(place) / "slides.html").write_text(Decks().deck("document-1"), encoding="utf-8")
        shown = chromium.new_context(viewport={"width": 1100, "height": 860}).new_page()
        shown.goto((Path(place) / "slides.html").as_uri())
        while "The linear layer" not in shown.inner_text("h1:visible"):
            shown.keyboard.press("PageDown")
        saved(shown, OUT / "lecture-slides.png")


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


def server(bundle: str) -> None:
    """The server's own page: what is typed is translated, shaded by confidence; a word is pointed at."""
    with tempfile.TemporaryDirectory() as place, socket.socket() as free, browser() as chromium:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
        free.close()
        words = [sys.executable, "-m", "regard", "serve", bundle, "--port", port, "--corrections", place]
        serving = subprocess.Popen(words, stderr=subprocess.DEVNULL)
        try:
            for name, device in (("server", LAPTOP), ("server-phone", PHONE | {"color_scheme": "dark"})):
                shown = chromium.new_context(**device).new_page()
                for _ in range(100):
                    try:
                        shown.goto(f"http://127.0.0.1:{port}/")
                        break
                    except Exception:
                        time.sleep(0.2)
                if name == "server-phone":
                    shown.select_option("#language", "zh")
                shown.check("#shade")
                shown.type("#source", f"{LINE}\n{SHORT}")
                shown.wait_for_timeout(4000)  # the page forbids scripts from outside, so nothing can be waited for
                shown.locator("#target [tabindex], #target span").nth(4).hover()
                shown.wait_for_timeout(300)
                saved(shown, OUT / f"{name}.png")
        finally:
            serving.terminate()
            serving.wait()


if __name__ == "__main__":
    if sys.argv[2:] == ["server"]:
        server(sys.argv[1])
    else:
        main(sys.argv[1]) if sys.argv[1:] else lectures()
