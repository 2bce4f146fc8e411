"""The report of the lineage in Chromium: opened from a file, without a network, on a laptop and on a phone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from chromium import offline
from test_lineage_page import report

from regard.studies.lineage.report_page import page

_EMPTY = """() => [...document.querySelectorAll("img")].filter((image) => !image.complete || !image.naturalWidth)
  .map((image) => image.alt)"""


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (340, "dark")])
def test_the_page_opens_offline_and_fits(chromium: Any, tmp_path: Path, width: int, scheme: str) -> None:
    file = tmp_path / "report.html"
    file.write_text(page(report()), encoding="utf-8")
    with offline(chromium, file, viewport={"width": width, "height": 800}, color_scheme=scheme) as shown:
        for heading in ("The lineage compared", "谱系比较"):
            assert shown.locator("h1:visible").all_inner_texts() == [heading]
            assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth"), "only boxes scroll sideways"
            assert shown.evaluate(_EMPTY) == [], "every picture is there"
            shown.click("#language")
