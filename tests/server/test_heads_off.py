"""Heads in the server: switched off, weights put by hand, one opened; and in the explorer's page in Chromium."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest
from chromium import watched

LINE = {"text": "a e ff", "source": "en", "target": "de"}


def asked(address: str, path: str, **more: object) -> httpx.Response:
    return httpx.post(f"{address}/v1/explore/{path}", json={**LINE, **more}, timeout=60)


def matters(address: str) -> str:
    """A head without which the line is translated otherwise."""
    for part in ("cross", "decoder", "encoder"):
        for head in (1, 2):
            found = asked(address, "changed", off=[f"{part}.1.{head}"]).json()
            if found["text"] != found["plain"]:
                return f"{part}.1.{head}"
    raise AssertionError("no head matters")


def test_a_head_off_changes_the_translation(address: str) -> None:
    found = asked(address, "changed", off=[matters(address)]).json()
    assert found["plain"] == "FF E A"
    assert found["text"] != "FF E A"
    assert asked(address, "changed").json()["text"] == "FF E A"
    one = {"part": "cross", "layer": 1, "head": 0, "row": 0, "column": 1, "weight": 1.0}
    assert asked(address, "changed", edits=[one]).json()["text"] != "FF E A"
    weaker = asked(address, "changed", strengths={"cross.1": 0.5}, parameters={"decoder.0.cross.output.bias": 2.0})
    assert weaker.status_code == 200
    assert httpx.post(f"{address}/v1/translate", json=LINE).json()["translations"][0]["text"] == "FF E A"


def test_an_opened_head_has_numbers(address: str) -> None:
    found = asked(address, "head", head="cross.1.2", translation="FF E A").json()
    assert len(found["weights"]) == len(found["rows"])
    assert all(abs(sum(row) - 1) < 1e-5 for row in found["weights"])
    assert len(found["keys"]) == len(found["values"]) == len(found["columns"])


@pytest.mark.parametrize(
    ("path", "more", "status"),
    [
        ("changed", {"off": ["cross.9.1"]}, 400),
        ("changed", {"off": ["x"] * 2000}, 400),
        ("changed", {"edits": [{"part": "cross", "layer": 1, "head": 1, "row": 1, "column": 0, "weight": 1}]}, 400),
        ("changed", {"parameters": {"none": 2.0}}, 400),
        ("changed", {"strengths": {"cross.1.1": 1e9}}, 400),
        ("changed", {"text": " "}, 400),
        ("changed", {"text": "a " * 300}, 413),
        ("changed", {"text": "a\nb"}, 400),
        ("head", {"head": "cross"}, 400),
        ("head", {}, 400),
    ],
)
def test_what_makes_no_sense_is_refused(address: str, path: str, more: dict[str, Any], status: int) -> None:
    answer = asked(address, path, **more)
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]


def test_a_head_off_changes_the_translation_shown(address: str, chromium: Any) -> None:
    from playwright.sync_api import expect

    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    head = matters(address)
    with watched(chromium, address, viewport={"width": 400, "height": 800}) as page:
        page.goto(f"{address}/explore#text=a+e+ff&source=en&target=de")
        page.click("#tab-heads")
        changed = page.locator("#changed-text")
        expect(page.locator("#plain-text")).to_have_text("FF E A")
        page.click(f"[data-head='{head}']")
        expect(changed).to_have_text(re.compile("."))
        expect(changed).not_to_have_text("FF E A")
        assert page.get_attribute(f"[data-head='{head}']", "aria-pressed") == "true"
        page.focus(f"[data-head='{head}']")
        page.keyboard.press("Enter")
        expect(changed).to_have_text("")
        page.select_option("#edit-head", "cross.1.0")
        page.click("#edit-put")
        expect(changed).to_have_text(re.compile("."))
        expect(changed).not_to_have_text("FF E A")
        page.click("#undo")
        expect(changed).to_have_text("")
        page.select_option("#open-head", "decoder.1.2")
        page.click("#open-it")
        page.wait_for_selector("#head-opened table")
        assert page.locator("#head-opened tbody tr").count() == 7
        page.select_option("#open-row", "3")
        assert page.locator("#head-opened td", has_text="hidden").count() == 4
        with page.expect_download() as waiting:
            page.click("#heads-svg")
        svg = ElementTree.parse(waiting.value.path())
        written = ["".join((each.text or "").split()) for each in svg.iter("{http://www.w3.org/2000/svg}text")]
        shown = [page.inner_text(f"#{part}") for part in ("switches", "changes", "head-opened")]
        assert "".join(written) == "".join("".join(shown).split())
        assert axe.Axe().run(page).response["violations"] == []
        page.select_option("#language", "zh")
        assert "按一个头" in page.inner_text("#view-heads")
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
