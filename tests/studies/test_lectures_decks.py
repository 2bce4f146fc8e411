"""Slides of lectures and of documents: every slip is on a slide, every slide can be reached and read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from chromium import offline

from regard.apps.cli import main
from regard.errors import DataError
from regard.studies.lectures import slides
from regard.studies.lectures.every import LECTURES, lecture
from regard.studies.lectures.interactive import RECORDED
from regard.studies.lectures.page import Lecture
from regard.studies.lectures.slides import DOCUMENTS, Decks, names_of

SHOWN = ("document-2", "beams", RECORDED)


@pytest.fixture(scope="module")
def decks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some decks; their pictures, which are tested elsewhere, are words."""
    place = tmp_path_factory.mktemp("decks")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slides, "picture", lambda one, name: f"<p>{name}</p>")
        made = Decks({name: Lecture({"one": 1.0}, ()) for name in LECTURES if name != "beams"})
        for name in SHOWN:
            (place / f"{name}.html").write_text(made.deck(name), encoding="utf-8")
    return place


def test_every_slip_and_every_slide_of_a_document_is_in_its_deck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slides, "picture", lambda one, name: f"<p>picture of {name}</p>")
    made = Decks({name: Lecture({"one": 1.0}, ()) for name in LECTURES})
    slips = slides.errata()
    whole = ""
    for number, name in enumerate(DOCUMENTS, 1):
        page = made.deck(name)
        assert set(re.findall(r'aria-label="(\w+)"><strong>', page)) == {
            s["id"] for s in slips if s["document"] == number
        }
        [found] = [one for one in slides.documents()["document"] if one["number"] == number]
        for entry in found["slides"]:
            assert slides.html.escape(slides._plain(entry["zh"])) in page
        whole += page
    assert all(f"picture of {name}<" in whole for name in LECTURES)
    alone = [made.deck(name) for name in LECTURES]
    assert [slip["id"] for slip in slips if not any(f'"{slip["id"]}"' in page for page in alone)] == []


def test_a_link_leads_to_the_slide_that_shows_the_lecture(decks: Path) -> None:
    page = (decks / "document-2.html").read_text("utf-8")
    sections = re.findall(r'<section class="slide".*?</section>', page, re.DOTALL)
    links = [(int(at), name) for at, name in re.findall(r'<a href="#(\d+)"><span lang="en">(.*?): slide', page)]
    assert links
    for at, name in links:  # the slide that first shows it says what it shows, and those behind it are its own
        assert f'<h1><span lang="en">{name}' in "".join(sections[at - 1 : at + 6])


def test_slides_are_led_through_by_keys_buttons_and_address(chromium: Any, decks: Path) -> None:
    with offline(chromium, decks / "document-2.html", viewport={"width": 1280, "height": 800}) as shown:
        count = shown.locator(".slide").count()
        where = shown.locator("#where")
        assert where.inner_text() == f"1 / {count}"
        for key, at in (
            ("ArrowRight", 2),
            ("Space", 3),
            ("PageDown", 4),
            ("ArrowLeft", 3),
            ("End", count),
            ("Home", 1),
        ):
            shown.keyboard.press(key)
            assert where.inner_text() == f"{at} / {count}"
            assert shown.locator(".slide:visible").count() == 1
        shown.click("#next")
        assert shown.url.endswith("#2")
        shown.evaluate("location.hash = '#5'")
        shown.wait_for_function("document.getElementById('where').textContent.startsWith('5 /')")
        shown.evaluate("location.hash = '#nowhere'")
        shown.wait_for_function("document.getElementById('where').textContent.startsWith('1 /')")
        shown.emulate_media(media="print")
        assert shown.locator(".slide:visible").count() == count


def test_a_figure_moves_inside_of_its_slide_and_keeps_its_keys(chromium: Any, decks: Path) -> None:
    with offline(chromium, decks / "beams.html", viewport={"width": 1280, "height": 900}) as shown:
        shown.keyboard.press("ArrowRight")
        slider = shown.locator(".slide:visible input[type=range]").first
        before = slider.input_value()
        slider.focus()
        shown.keyboard.press("ArrowRight")
        assert slider.input_value() != before
        assert shown.locator("#where").inner_text().startswith("2 /")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_slides_fit_and_are_accessible(chromium: Any, decks: Path, width: int, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed: .[dev]")
    for name in SHOWN:
        file = decks / f"{name}.html"
        with offline(chromium, file, viewport={"width": width, "height": 800}, color_scheme=scheme) as shown:
            count = shown.locator(".slide").count()
            for _ in range(count):
                assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth"), shown.url
                shown.keyboard.press("PageDown")
            for at in (1, 2, count // 2):
                shown.evaluate(f"location.hash = '#{at}'")
                shown.wait_for_function(f"document.getElementById('where').textContent.startsWith('{at} /')")
                found = axe.Axe().run(shown)
                assert found.violations_count == 0, f"{name} {at}: {found.generate_report()}"


def test_the_command_writes_slides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lecture", "bleu", "--kind", "slides", "--out", str(tmp_path), "--language", "zh"]) == 0
    page = (tmp_path / "bleu-slides.html").read_text("utf-8")
    assert page.startswith('<!doctype html>\n<html lang="zh">')
    assert all(str(f"{value:.6g}") in page for value in lecture("bleu").numbers.values() if isinstance(value, float))
    capsys.readouterr()
    assert main(["lecture", "document-9", "--kind", "slides", "--out", str(tmp_path)]) == 2
    assert "document-5" in capsys.readouterr().err
    assert main(["lecture", "bleu", "--kind", "slides"]) == 2
    assert "--out" in capsys.readouterr().err


def test_all_are_the_documents_and_the_lectures() -> None:
    assert names_of(["all"]) == [*DOCUMENTS, *LECTURES, RECORDED]
    with pytest.raises(DataError, match="document-1"):
        names_of(["beam"])
