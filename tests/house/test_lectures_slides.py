"""The table of slides holds: every slide is there in its order; every lecture, code line, test and exercise exists."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from regard.studies.homework.exercise import exercises
from regard.studies.lectures.every import LECTURES
from regard.studies.lectures.trained import TRAINED
from tests.house.test_lectures_docs import symbols
from tests.studies.test_lectures_paper import document, squeezed

ROOT = Path(__file__).resolve().parents[2]
TABLE = tomllib.loads((ROOT / "regard" / "studies" / "lectures" / "slides.toml").read_text("utf-8"))
SLIDES = [(d["number"], slide) for d in TABLE["document"] for slide in d["slides"]]


def plain(title: str) -> str:
    """A heading without its marks."""
    return squeezed(title).strip("#*")


LONGEST = 1020
"""Characters of a document without a row of their own: what is longer would be a slide that was left out."""
ELSEWHERE = {3: 4500}
"""Of the article's page, links to other articles follow."""


def test_every_slide_has_lectures_or_a_reason():
    wrong = []
    for number, slide in SLIDES:
        names = slide.get("see", [])
        reason = slide.get("none")
        known = {*LECTURES, *TRAINED}
        if bool(names) == bool(reason) or not set(names) <= known or (reason and reason not in TABLE["reasons"]):
            wrong.append((number, slide["zh"]))
    assert wrong == []
    assert [d["number"] for d in TABLE["document"]] == [1, 2, 3, 4, 5]
    assert len(SLIDES) > 250


def test_every_lecture_has_a_test_that_exists_and_a_slide():
    assert set(TABLE["tests"]) == {*LECTURES, *TRAINED}
    gone = []
    for place in TABLE["tests"].values():
        file, _, name = place.partition(":")
        if name not in symbols(ROOT / "tests" / "studies" / file):
            gone.append(place)
    assert gone == []
    assert {name for _, slide in SLIDES for name in slide.get("see", ())} == {*LECTURES, *TRAINED}


def test_every_named_code_exists():
    gone = []
    for _, slide in SLIDES:
        file, _, name = slide.get("code", "").partition(":")
        if file and not ((ROOT / file).exists() and (not name or name in symbols(ROOT / file))):
            gone.append(slide["code"])
    assert gone == []


def test_every_formula_of_a_document_is_on_a_slide_of_it():
    """The lecture of each row of formulas.toml is named by a slide of each of the row's documents."""
    seen = {n: {name for m, slide in SLIDES if m == n for name in slide.get("see", ())} for n in range(1, 6)}
    groups = tomllib.loads((ROOT / "docs" / "lectures" / "formulas.toml").read_text("utf-8"))["group"]
    missing = [
        (number, row["form"])
        for row in (row for group in groups for row in group["rows"])
        for number in row["documents"]
        if (name := row.get("lecture") or row.get("model")) and name not in seen[number]
    ]
    assert missing == []


def test_exercises_are_about_lectures_and_name_slides_that_there_are():
    titles = {(number, plain(slide["zh"]).replace("*", "")) for number, slide in SLIDES}
    for exercise in exercises().values():
        assert set(exercise.lectures) <= {*LECTURES, *TRAINED}
        assert exercise.lectures, exercise.name
        for source in exercise.sources:
            title = plain(source.slide)
            assert any(n == source.document and title in quoted for n, quoted in titles), source


def test_slides_are_quoted_in_their_order_and_none_is_left_out():
    for number in (d["number"] for d in TABLE["document"]):
        text, at, last = document(number), 0, 0
        for quoted in (slide["zh"] for n, slide in SLIDES if n == number):
            found = text.find(squeezed(quoted), at)
            assert found >= 0, f"document {number} has no {quoted!r} here"
            assert found - last < LONGEST, f"document {number}: much stands before {quoted!r}"
            at, last = found + 1, found
        assert len(text) - last < ELSEWHERE.get(number, LONGEST)


def test_headings_of_the_documents_that_have_them_all_have_a_row():
    """Titles of slides are headings of the first level in document 4, of the first three in document 5."""
    missing = []
    for number, levels in ((4, "#"), (5, "#{1,3}")):
        quoted = "\n".join(plain(slide["zh"]) for n, slide in SLIDES if n == number)
        titles = re.findall(rf"^{levels} (?=\S)(.+)$", document(number, whole=True), re.MULTILINE)
        assert len(titles) > 15
        missing += [(number, title) for title in titles if plain(title) not in quoted]
    assert missing == []


def test_a_reason_is_told_in_both_languages():
    assert all(re.search("[\u4e00-\u9fff]", reason["zh"]) and reason["en"] for reason in TABLE["reasons"].values())
