"""Makes docs/pictures/lineage-*.png, the report of `regard lineage` on a laptop and on a phone, and the page itself
beside its figures: `python tools/lineage.py results/lineage/report.json`.

Chromium and Playwright are needed, and a font with Chinese characters.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

from look import LAPTOP, OUT, PHONE, browser
from PIL import Image

from regard.studies.lineage.report_page import page


def main(report: Path) -> None:
    file = report.with_suffix(".html").resolve()
    file.write_text(page(json.loads(report.read_text("utf-8"))), encoding="utf-8")
    OUT.mkdir(exist_ok=True)
    with browser() as chromium:
        for name, device in (("laptop", LAPTOP), ("phone", PHONE)):
            shown = chromium.new_context(**device).new_page()
            shown.goto(file.as_uri())
            image = Image.open(io.BytesIO(shown.screenshot(full_page=name == "laptop"))).convert("RGB")
            image.quantize(192).save(OUT / f"lineage-{name}.png", optimize=True)  # few colours, so a small file


if __name__ == "__main__":
    main(Path(sys.argv[1]))
