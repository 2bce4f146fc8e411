"""Makes docs/pictures/look-*.png, the page of `regard look` on a laptop and on a phone: `python tools/look.py BUNDLE`.

The bundle translates English to German; Chromium and Playwright are needed, and a font with Chinese characters.
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

from PIL import Image

from regard.apps.look import page
from regard.explore.look import look

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from chromium import browser  # noqa: E402

OUT = ROOT / "docs" / "pictures"
LINE = "A young girl in a red dress is playing with two dogs in the garden."
LAPTOP = {"viewport": {"width": 1280, "height": 860}}
PHONE = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2, "is_mobile": True, "has_touch": True}


def main(bundle: str) -> None:
    OUT.mkdir(exist_ok=True)
    found = look(bundle, LINE)
    with tempfile.TemporaryDirectory() as place, browser() as chromium:
        file = Path(place) / "attention.html"
        file.write_text(page(found), encoding="utf-8")
        for name, device in (("laptop", LAPTOP), ("phone", PHONE)):
            shown = chromium.new_context(**device).new_page()
            shown.goto(file.as_uri())
            shown.click("#heads [data-layer='2'][data-head='1']")
            if name == "laptop":
                shown.focus("#picture")
                for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight", "Enter", "Space"):
                    shown.keyboard.press(key)
                shown.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
            else:
                shown.select_option("#view", "lines")
                shown.select_option("#head", "0")
                shown.evaluate("document.getElementById('title').scrollIntoView()")
            shown.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
            image = Image.open(io.BytesIO(shown.screenshot())).convert("RGB")
            image.quantize(192).save(OUT / f"look-{name}.png", optimize=True)  # few colours, so a small file


if __name__ == "__main__":
    main(sys.argv[1])
