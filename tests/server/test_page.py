"""The page at /, as somebody uses it, in Chromium; it asks its own server and nobody else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from chromium import watched

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install '.[dev]'")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")
playwright.expect.set_options(timeout=30_000)  # a busy machine is slow


@contextmanager
def page_of(chromium: Any, address: str, **options: Any) -> Iterator[Any]:
    options = {"locale": "en-GB", "viewport": {"width": 1280, "height": 800}, **options}
    with watched(chromium, address, **options) as shown:
        playwright.expect(shown.locator("#count")).not_to_have_text("")
        yield shown


@pytest.fixture
def page(chromium: Any, address: str) -> Iterator[Any]:
    with page_of(chromium, address) as shown:
        yield shown


def write(page: Any, text: str, wanted: str) -> None:
    page.fill("#source", text)
    playwright.expect(page.locator("#target")).to_have_text(wanted)


def test_it_translates_while_one_types(page: Any) -> None:
    page.locator("#source").press_sequentially("abc de")
    playwright.expect(page.locator("#target")).to_have_text("ED CBA")
    write(page, "abc\n\nde", "CBA\n\nED")
    assert page.locator("#count").inner_text() == "7 of 50,000 characters"
    write(page, "", "")


def test_words_show_where_they_come_from(page: Any) -> None:
    write(page, "abc de", "ED CBA")
    page.hover("#target .word >> text=ED")
    assert page.locator("#mirror mark").all_inner_texts() == ["de"]
    page.focus("#target .word >> text=CBA")
    assert page.locator("#mirror mark").all_inner_texts() == ["abc"]


def test_other_words_are_offered_and_taken(page: Any) -> None:
    write(page, "dcdd be bhdg dfgdc", "DGDDC EBD DC")
    page.click("#target .word >> text=EBD")
    offered = page.locator("#others button")
    playwright.expect(offered.first).to_be_visible()
    other = offered.first.inner_text()
    assert other != "EBD"
    offered.first.click()
    playwright.expect(page.locator("#target")).to_have_text(re.compile(f"^DGDDC {re.escape(other)}"))
    page.keyboard.press("Escape")
    assert page.locator("#others").is_hidden()


def test_confidence_glossary_and_history(page: Any) -> None:
    write(page, "abc de", "ED CBA")
    assert set(page.eval_on_selector_all(".word", "all => all.map(each => each.dataset.sure)")) <= {"0", "1", "2"}
    page.check("#shade")
    assert "shaded" in page.get_attribute("#target", "class")
    page.click("#terms summary")
    page.fill("#glossary", "abc = GH")
    playwright.expect(page.locator("#target")).to_contain_text("GH")
    page.fill("#glossary", "abc = GH\nnothing")
    playwright.expect(page.locator("#terms-wrong")).to_have_text("Line 2 of the glossary has no =.")
    page.fill("#glossary", "")
    page.reload()
    page.click("#past summary")
    playwright.expect(page.locator("#history li").first).to_contain_text("abc de →")
    page.locator("#history button").first.click()
    playwright.expect(page.locator("#target")).to_have_text("ED CBA")
    page.click("#forget")
    assert page.locator("#history li").count() == 0


def test_the_attention_is_a_link_away(page: Any) -> None:
    write(page, "abc de", "ED CBA")
    with page.expect_popup() as opening:
        page.click("#look")
    opening.value.wait_for_selector("svg, canvas")


def test_a_document_is_translated(page: Any, tmp_path: Path) -> None:
    docx = pytest.importorskip("docx")
    document = docx.Document()
    document.add_heading("abc de", 1)
    document.save(tmp_path / "a.docx")
    page.click("#documents summary")
    page.set_input_files("#file", tmp_path / "a.docx")
    with page.expect_download() as waiting:
        page.click("#result")
    waiting.value.save_as(tmp_path / "made.docx")
    assert waiting.value.suggested_filename == "a.de.docx"
    assert docx.Document(tmp_path / "made.docx").paragraphs[0].text == "ED CBA"


def test_in_chinese(page: Any) -> None:
    page.select_option("#language", "zh")
    assert page.locator("#clear").inner_text() == "清空"
    assert page.get_attribute("html", "lang") == "zh"


@pytest.mark.parametrize(
    "options", [{}, {"color_scheme": "dark"}, {"viewport": {"width": 360, "height": 700}}, {"locale": "zh-CN"}]
)
def test_everybody_can_use_it(chromium: Any, address: str, options: dict[str, Any]) -> None:
    with page_of(chromium, address, **options) as page:
        write(page, "abc de", "ED CBA")
        for summary in page.locator("details:not([hidden]) summary").all():
            summary.click()
        found = axe.Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
