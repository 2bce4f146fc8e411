"""Correct and learn on the page, as somebody uses it, in Chromium; and the matches of a translation memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serving import serving
from test_page import page_of, write

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install '.[dev]'")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")


@pytest.fixture
def teachable(tmp_path: Path) -> Iterator[str]:
    table = tmp_path / "memory.tsv"
    table.write_text("abc df\tFD CBA\n", encoding="utf-8")
    with serving(corrections=tmp_path / "kept", memory=[table]) as found:
        yield found


def test_a_translation_is_corrected_learnt_and_taken_back(chromium: Any, teachable: str) -> None:
    with page_of(chromium, teachable) as page:
        write(page, "abc de", "ED CBA")
        page.click("#correct")
        assert page.input_value("#corrected") == "ED CBA"
        page.click("#learn")
        playwright.expect(page.locator("#taught")).to_have_text("Nothing was changed.")
        page.fill("#corrected", "EDE ABC")
        page.click("#learn")
        playwright.expect(page.locator("#taught")).to_contain_text("Learnt")
        playwright.expect(page.locator("#target")).to_have_text("EDE ABC")
        assert page.locator("#teach").is_hidden()
        page.reload()
        write(page, "abc de", "EDE ABC")
        page.click("#corrections summary")
        playwright.expect(page.locator("#learnt li")).to_contain_text("abc de → EDE ABC")
        page.click("#learnt button")
        playwright.expect(page.locator("#target")).to_have_text("ED CBA")
        playwright.expect(page.locator("#learnt li")).to_have_text("None so far.")


def test_what_was_just_taught_is_a_press_away(chromium: Any, teachable: str) -> None:
    with page_of(chromium, teachable) as page:
        write(page, "hab\nabc de", "BAH\nED CBA")
        page.focus("#correct")
        page.keyboard.press("Enter")
        page.fill("#corrected", "BAH\nEDE ABC\nA")
        page.click("#learn")
        playwright.expect(page.locator("#taught")).to_have_text("Keep the lines: there are 2.")
        page.fill("#corrected", "BAH\nEDE ABC")
        page.click("#learn")
        playwright.expect(page.locator("#target")).to_have_text("BAH\nEDE ABC")
        page.click("#untaught")
        playwright.expect(page.locator("#target")).to_have_text("BAH\nED CBA")
        assert page.locator("#untaught").is_hidden()


def test_what_was_translated_before_is_shown(chromium: Any, teachable: str) -> None:
    with page_of(chromium, teachable) as page:
        write(page, "abc de", "ED CBA")
        playwright.expect(page.locator("#near li")).to_have_text("83 % abc df → FD CBA memory.tsv")
        write(page, "hab", "BAH")
        assert page.locator("#matches").is_hidden()


def test_a_server_that_takes_none_shows_no_button(chromium: Any, address: str) -> None:
    with page_of(chromium, address) as page:
        write(page, "abc de", "ED CBA")
        assert page.locator("#correct").is_hidden()
        assert page.locator("#corrections").is_hidden()


@pytest.mark.parametrize(
    "options", [{}, {"color_scheme": "dark"}, {"viewport": {"width": 360, "height": 700}}, {"locale": "zh-CN"}]
)
def test_everybody_can_teach(chromium: Any, teachable: str, options: dict[str, Any]) -> None:
    with page_of(chromium, teachable, **options) as page:
        write(page, "abc de", "ED CBA")
        page.click("#correct")
        page.fill("#corrected", "EDE ABC")
        page.click("#learn")
        playwright.expect(page.locator("#target")).to_have_text("EDE ABC")
        page.click("#correct")
        page.eval_on_selector_all("details", "all => all.forEach((each) => { each.open = true; })")
        found = axe.Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
