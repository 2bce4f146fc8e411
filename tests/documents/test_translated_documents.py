"""Each format of document, translated and read again by its own library."""

from __future__ import annotations

import contextlib
import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from turned import turned

from regard.apps.cli import main
from regard.documents.formats import FORMATS, translate_document
from regard.errors import TextError


def made(data: bytes, suffix: str) -> bytes:
    return translate_document(data, suffix, turned)


def test_text_keeps_its_lines() -> None:
    assert (
        made("one two\r\n\r\n---\r\nthree\n".encode("utf-8-sig"), ".txt")
        == b"\xef\xbb\xbfTWO ONE\r\n\r\n---\r\nTHREE\n"
    )


def test_html_page() -> None:
    page = "<!doctype html><html><head><title>{}</title><style>b {{}}</style></head><body><p>{}</p></body></html>"
    wanted = page.format("TWO ONE", "<b>TWO</b> ONE")
    assert made(page.format("one two", "one <b>two</b>").encode(), ".html").decode() == wanted


def test_markdown() -> None:
    source = b"""# one two

A *little* [link here](http://example.org/a_b) and `code()`.

- first item
- **bold** snake_case word

```
kept as it is
```
"""
    found = made(source, ".md").decode()
    assert found.splitlines()[0] == "# TWO ONE"
    assert "`code()`" in found
    assert "*LITTLE*" in found
    assert "[HERE LINK](http://example.org/a_b)" in found
    assert "- ITEM FIRST" in found
    assert "**BOLD**" in found
    assert "SNAKE" in found
    assert "kept as it is" in found


def test_subtitles() -> None:
    source = (
        b"1\n00:00:01,000 --> 00:00:02,500\none two\nthree four\n\n2\n00:00:03,000 --> 00:00:04,000\n<i>five</i>\n\n"
    )
    pysubs2 = pytest.importorskip("pysubs2")
    found = pysubs2.SSAFile.from_string(made(source, ".srt").decode())
    assert [(event.start, event.end) for event in found] == [(1000, 2500), (3000, 4000)]
    assert [event.plaintext for event in found] == ["FOUR THREE\nTWO ONE", "FIVE"]
    web = made(b"WEBVTT\n\n00:01.000 --> 00:02.000\none two\n", ".vtt").decode()
    assert web.startswith("WEBVTT")
    assert "TWO ONE" in web


def test_gettext_fills_in_what_is_missing() -> None:
    po = pytest.importorskip("translate.storage.po")
    head = b'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'
    source = head + b'msgid "one two"\nmsgstr ""\n\nmsgid "old"\nmsgstr "alt"\n'
    units = {str(unit.source): unit for unit in po.pofile.parsestring(made(source, ".po")).units}
    assert str(units["one two"].target) == "TWO ONE"
    assert units["one two"].isfuzzy()
    assert str(units["old"].target) == "alt"


def test_xliff() -> None:
    xliff = pytest.importorskip("translate.storage.xliff")
    source = b"""<?xml version="1.0"?><xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
<file original="a" source-language="en" target-language="de" datatype="plaintext"><body>
<trans-unit id="1"><source>one two</source></trans-unit></body></file></xliff>"""
    for suffix in (".xlf", ".xliff"):
        [unit] = xliff.xlifffile.parsestring(made(source, suffix)).units
        assert unit.target == "TWO ONE"


def word() -> bytes:
    docx = pytest.importorskip("docx")
    document = docx.Document()
    document.add_heading("one two", 1)
    paragraph = document.add_paragraph("A lit")
    paragraph.add_run("tle ")
    paragraph.add_run("bold word").bold = True
    paragraph.add_run(" stands\there")
    document.add_paragraph("item one", style="List Bullet")
    table = document.add_table(1, 2)
    table.cell(0, 0).text, table.cell(0, 1).text = "cell one", "12"
    document.sections[0].header.paragraphs[0].text = "page head"
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def test_word() -> None:
    docx = pytest.importorskip("docx")
    before, found = docx.Document(io.BytesIO(word())), docx.Document(io.BytesIO(made(word(), ".docx")))
    texts = [paragraph.text for paragraph in found.paragraphs]
    assert [texts[0], texts[2]] == ["TWO ONE", "ONE ITEM"]
    assert [p.style.name for p in found.paragraphs] == [p.style.name for p in before.paragraphs]
    assert [run.text.strip() for run in found.paragraphs[1].runs if run.bold] == ["WORD BOLD"]
    assert "\t" in texts[1]
    assert set(texts[1].split()) == {"A", "LITTLE", "BOLD", "WORD", "STANDS", "HERE"}
    assert [cell.text for cell in found.tables[0].rows[0].cells] == ["ONE CELL", "12"]
    assert found.sections[0].header.paragraphs[0].text == "HEAD PAGE"


def test_powerpoint() -> None:
    pptx = pytest.importorskip("pptx")
    document = pptx.Presentation()
    slide = document.slides.add_slide(document.slide_layouts[1])
    slide.shapes.title.text = "one two"
    frame = slide.placeholders[1].text_frame
    frame.text = "three "
    run = frame.paragraphs[0].add_run()
    run.text, run.font.bold = "four", True
    slide.notes_slide.notes_text_frame.text = "a note"
    out = io.BytesIO()
    document.save(out)
    found = pptx.Presentation(io.BytesIO(made(out.getvalue(), ".pptx"))).slides[0]
    assert found.shapes.title.text == "TWO ONE"
    assert found.placeholders[1].text_frame.text.split() == ["FOUR", "THREE"]
    assert [run.text.strip() for run in found.placeholders[1].text_frame.paragraphs[0].runs if run.font.bold] == [
        "FOUR"
    ]
    assert found.notes_slide.notes_text_frame.text == "NOTE A"


def test_excel() -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["one two", 3, "=A1&B1", "a\nb c"])
    out = io.BytesIO()
    book.save(out)
    found = openpyxl.load_workbook(io.BytesIO(made(out.getvalue(), ".xlsx"))).active
    assert [cell.value for cell in found[1]] == ["TWO ONE", 3, "=A1&B1", "A\nC B"]


def test_opendocument() -> None:
    odfdo = pytest.importorskip("odfdo")
    document = odfdo.Document("text")
    document.body.clear()
    document.body.append(odfdo.Header(1, "one two"))
    paragraph = odfdo.Paragraph("three four five")
    paragraph.set_span("T1", regex="four")
    document.body.append(paragraph)
    out = io.BytesIO()
    document.save(out)
    found = odfdo.Document(io.BytesIO(made(out.getvalue(), ".odt")))
    assert [found.body.headers[0].inner_text, found.body.paragraphs[0].inner_text] == ["TWO ONE", "FIVE FOUR THREE"]
    assert [span.inner_text for span in found.body.spans] == ["FOUR"]


def book() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as packed:
        packed.writestr("mimetype", "application/epub+zip")
        packed.writestr("META-INF/container.xml", "<container/>")
        packed.writestr("one.xhtml", "<!DOCTYPE html><html><body><h1>one two</h1><p>a <em>b</em></p></body></html>")
        packed.writestr("picture.png", b"\x89PNG")
    return out.getvalue()


def test_epub() -> None:
    with zipfile.ZipFile(io.BytesIO(made(book(), ".epub"))) as packed:
        assert packed.namelist() == ["mimetype", "META-INF/container.xml", "one.xhtml", "picture.png"]
        assert b"<h1>TWO ONE</h1><p><em>B</em> A</p>" in packed.read("one.xhtml")
        assert packed.read("picture.png") == b"\x89PNG"


def bomb(content: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("content.xml", content)
        packed.writestr("word/document.xml", content)
        packed.writestr("[Content_Types].xml", content)
    return out.getvalue()


LAUGHS = b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "%s"><!ENTITY c "&b;&b;&b;&b;">]><a>&c;</a>' % (b"x" * 1000)
DAMAGED: list[Callable[[], bytes]] = [
    lambda: b"",
    lambda: b"\xff\xfe\x00",
    lambda: b"PK\x03\x04" + b"\0" * 100,
    lambda: bomb(b"\0" * 150_000_000),
    lambda: bomb(LAUGHS),
    lambda: bomb(b"<a>" * 20_000),
    lambda: word()[:-500],
]


@pytest.mark.parametrize("suffix", [suffix for suffix, kind in FORMATS.items() if kind.packed])
@pytest.mark.parametrize("damaged", DAMAGED, ids=range(len(DAMAGED)))
def test_damaged_and_hostile_documents(damaged: Callable[[], bytes], suffix: str) -> None:
    with contextlib.suppress(TextError):
        made(damaged(), suffix)


@pytest.mark.parametrize("suffix", [suffix for suffix, kind in FORMATS.items() if not kind.packed])
def test_bytes_that_are_no_text(suffix: str) -> None:
    with pytest.raises(TextError):
        made(b"\xff\xff\x00<a", suffix)


def test_unknown_formats() -> None:
    with pytest.raises(TextError, match="are not known"):
        made(b"", ".pdf")


def test_files_from_the_command_line(tmp_path: Path) -> None:
    bundle = Path(__file__).resolve().parents[1] / "bundle" / "made-by-0.1" / "transformer"
    (tmp_path / "a.html").write_text("<p>abc <b>de</b></p>\n")
    words = ["translate", str(bundle), str(tmp_path / "a.html")]
    assert main([*words, "--output", str(tmp_path / "b.html")]) == 0
    assert (tmp_path / "b.html").read_text() == "<p><b>ED</b> CBA</p>\n"
    assert main(words) == 2
    assert main([*words, "--output", str(tmp_path / "b.txt")]) == 2
    assert main([*words, "--lines"]) == 0
    assert not list(tmp_path.glob("*.part"))
