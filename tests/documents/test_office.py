"""Documents of offices as people make them: made and opened again by their own libraries, compared part by part."""

from __future__ import annotations

import io
import struct
import time
import zipfile
import zlib
from typing import Any

import pytest
from turned import turned

from regard.documents.formats import translate_document
from regard.tasks.translation import Translation

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
PICTURE = b"\x89PNG\r\n\x1a\n" + b"".join(
    struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    for kind, data in (
        (b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(b"\0\0")),
        (b"IEND", b""),
    )
)


def made(data: bytes, suffix: str) -> bytes:
    return translate_document(data, suffix, turned)


def saved(document: Any) -> bytes:
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def parts(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as packed:
        return {name: packed.read(name) for name in packed.namelist()}


def changed(before: bytes, after: bytes) -> set[str]:
    one, other = parts(before), parts(after)
    assert list(one) == list(other)
    return {name for name in one if one[name] != other[name]}


# -- Word --------------------------------------------------------------------------------------------------------------


def with_body(*paragraphs: str, **others: str) -> bytes:
    """A document of Word with these paragraphs, as XML, and with parts put in the place of others."""
    docx = pytest.importorskip("docx")
    whole = parts(saved(docx.Document()))
    body = "".join(f"<w:p>{inner}</w:p>" for inner in paragraphs)
    whole["word/document.xml"] = (
        f'<?xml version="1.0"?><w:document xmlns:w="{W}"><w:body>{body}<w:sectPr/></w:body></w:document>'.encode()
    )
    for name, content in others.items():
        whole[f"word/{name}.xml"] = content.encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as packed:
        for name, content in whole.items():
            packed.writestr(name, content)
    return out.getvalue()


def body_of(data: bytes) -> list[str]:
    from lxml import etree

    docx = pytest.importorskip("docx")
    document = docx.Document(io.BytesIO(data))
    return [etree.tostring(p._p).decode().split(">", 1)[1].removesuffix("</w:p>") for p in document.paragraphs]


def run(text: str, looks: str = "") -> str:
    return f'<w:r>{looks}<w:t xml:space="preserve">{text}</w:t></w:r>'


ENGLISH = '<w:rPr><w:lang w:val="en-GB"/></w:rPr>'
BOLD = "<w:rPr><w:b/></w:rPr>"


@pytest.mark.parametrize(
    ("inner", "wanted"),
    [
        # A word that an editor cut: spelling marks, and runs that differ in language alone.
        (f'{run("He")}<w:proofErr w:type="spellStart"/>{run("llo", ENGLISH)}{run(" you")}', run("YOU HELLO")),
        # Pages that Word reckoned, in front of text.
        ("<w:r><w:lastRenderedPageBreak/><w:t>one two</w:t></w:r>", run("TWO ONE")),
        # A tab and a soft line break keep their places.
        (
            "<w:r><w:t>one two</w:t><w:tab/><w:t>three four</w:t><w:br/><w:t>five</w:t></w:r>",
            f"{run('TWO ONE')}<w:r><w:tab/></w:r>{run('FOUR THREE')}<w:r><w:br/></w:r>{run('FIVE')}",
        ),
        # A bookmark stays around its words.
        (
            f'{run("one ")}<w:bookmarkStart w:id="1" w:name="a"/>{run("two")}<w:bookmarkEnd w:id="1"/>{run(" three")}',
            f'{run("THREE ")}<w:bookmarkStart w:id="1" w:name="a"/>{run("TWO")}<w:bookmarkEnd w:id="1"/>{run(" ONE")}',
        ),
        # Deleted text is not translated, inserted text is.
        (
            f'{run("one ")}<w:ins w:id="2" w:author="x">{run("two")}</w:ins>'
            '<w:del w:id="3" w:author="x"><w:r><w:delText>gone</w:delText></w:r></w:del>',
            None,
        ),
        # A field that Word computes stays whole, with what it shows.
        (
            f'{run("page ")}<w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r><w:instrText> DATE </w:instrText></w:r>'
            f'<w:r><w:fldChar w:fldCharType="separate"/></w:r>{run("May")}<w:r><w:fldChar w:fldCharType="end"/></w:r>'
            f"{run(' here')}",
            None,
        ),
        # Right to left and left to right.
        (f"{run('one ', '<w:rPr><w:rtl/></w:rPr>')}{run('two', BOLD)}", None),
    ],
)
def test_what_word_writes(inner: str, wanted: str | None) -> None:
    [found] = body_of(made(with_body(inner), ".docx"))
    if wanted is not None:
        assert found == wanted
    elif "gone" in inner:
        assert "<w:delText>gone</w:delText>" in found
        assert "TWO" in found.split("</w:ins>")[0]
    elif "DATE" in inner:
        order = ["begin", "DATE", "separate", "May", '"end"']
        assert [found.index(each) for each in order] == sorted(found.index(each) for each in order)
        assert "PAGE" in found
    else:
        assert '<w:rtl/></w:rPr><w:t xml:space="preserve">ONE' in found.replace(" </w:t>", "</w:t>")


def test_a_link_that_is_a_field_stays_one() -> None:
    inner = (
        f'{run("see ")}<w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r><w:instrText>HYPERLINK "http://a"</w:instrText>'
        f'</w:r><w:r><w:fldChar w:fldCharType="separate"/></w:r>{run("this page", BOLD)}'
        f'<w:r><w:fldChar w:fldCharType="end"/></w:r>{run(" now")}'
    )
    [found] = body_of(made(with_body(inner), ".docx"))
    order = ["NOW", "begin", "HYPERLINK", "separate", "PAGE THIS", '"end"', "SEE"]
    assert [found.index(each) for each in order] == sorted(found.index(each) for each in order)


@pytest.mark.parametrize(
    "piece",
    [
        "<w:r><w:t>a </w:t></w:r>",
        '<w:r><w:fldChar w:fldCharType="begin"/></w:r>',
        '<w:bookmarkStart w:id="1" w:name="a"/>',
        "<w:r><w:tab/><w:t>a</w:t></w:r>",
        "<w:proofErr/>",
    ],
)
def test_a_long_paragraph_takes_no_longer_than_many(piece: str) -> None:
    def as_it_was(lines: list[str]) -> list[Translation]:
        return [Translation(line) for line in lines]

    data = with_body(piece * 20_000)
    start = time.process_time()
    translate_document(data, ".docx", as_it_was)
    assert time.process_time() - start < 20


def test_a_whole_document_of_word() -> None:
    docx = pytest.importorskip("docx")
    document = docx.Document()
    paragraph = document.add_paragraph("one ")
    paragraph.add_run("two").italic = True
    document.add_comment(paragraph.runs[1], text="a comment", author="me")
    document.add_picture(io.BytesIO(PICTURE))
    inner = document.add_table(2, 2).cell(1, 1).add_table(1, 1)
    inner.cell(0, 0).text = "in a table"
    section = document.sections[0]
    section.different_first_page_header_footer = True
    section.first_page_header.paragraphs[0].text = "first head"
    section.footer.paragraphs[0].text = "a foot"
    document.settings.odd_and_even_pages_header_footer = True
    section.even_page_footer.paragraphs[0].text = "even foot"
    before = saved(document)
    after = made(before, ".docx")
    found = docx.Document(io.BytesIO(after))
    assert [r.text.strip() for r in found.paragraphs[0].runs if r.italic] == ["TWO"]
    assert [c.text for c in found.comments] == ["COMMENT A"]
    assert len(found.inline_shapes) == 1
    assert found.tables[0].cell(1, 1).tables[0].cell(0, 0).text == "TABLE A IN"
    section = found.sections[0]
    assert section.first_page_header.paragraphs[0].text == "HEAD FIRST"
    assert section.footer.paragraphs[0].text == "FOOT A"
    assert section.even_page_footer.paragraphs[0].text == "FOOT EVEN"
    assert all(name.startswith("word/") and name.endswith(".xml") for name in changed(before, after))
    assert "word/styles.xml" not in changed(before, after)


def test_text_boxes_and_footnotes() -> None:
    box = f"<w:r><w:pict><w:txbxContent><w:p>{run('in a box')}</w:p></w:txbxContent></w:pict></w:r>"
    note = '<w:r><w:footnoteReference w:id="2"/></w:r>'
    data = with_body(f"{run('one two')}{box}{note}")
    whole = parts(data)
    whole["word/footnotes.xml"] = (
        f'<?xml version="1.0"?><w:footnotes xmlns:w="{W}"><w:footnote w:id="2"><w:p><w:r><w:footnoteRef/></w:r>'
        f"{run(' a note')}</w:p></w:footnote></w:footnotes>"
    ).encode()
    whole["[Content_Types].xml"] = whole["[Content_Types].xml"].replace(
        b"</Types>",
        b'<Override PartName="/word/footnotes.xml" ContentType="application/vnd.openxmlformats-officedocument.'
        b'wordprocessingml.footnotes+xml"/></Types>',
    )
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as packed:
        for name, content in whole.items():
            packed.writestr(name, content)
    found = parts(made(out.getvalue(), ".docx"))
    assert b"TWO ONE" in found["word/document.xml"]
    assert b"BOX A IN" in found["word/document.xml"]
    assert found["word/document.xml"].count(b"footnoteReference") == 1
    assert b"NOTE A" in found["word/footnotes.xml"]
    assert found["word/footnotes.xml"].index(b"footnoteRef/") < found["word/footnotes.xml"].index(b"NOTE A")


# -- PowerPoint --------------------------------------------------------------------------------------------------------


def test_a_whole_presentation() -> None:
    pptx = pytest.importorskip("pptx")
    from pptx.chart.data import CategoryChartData
    from pptx.enum.chart import XL_CHART_TYPE
    from pptx.util import Inches

    deck = pptx.Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[5])
    slide.shapes.title.text = "one two"
    box = (Inches(1),) * 4
    table = slide.shapes.add_table(1, 2, *box).table
    table.cell(0, 0).text, table.cell(0, 1).text = "a cell", "7"
    group = slide.shapes.add_group_shape()
    group.shapes.add_textbox(*box).text_frame.text = "in a group"
    data = CategoryChartData()
    data.categories = ["east", "west"]
    data.add_series("first", (1, 2))
    chart = slide.shapes.add_chart(XL_CHART_TYPE.PIE, *box, data).chart
    chart.has_title = True
    chart.chart_title.text_frame.text = "a chart"
    paragraph = slide.shapes.add_textbox(*box).text_frame.paragraphs[0]
    link = paragraph.add_run()
    link.text = "a link"
    link.hyperlink.address = "http://example.org"
    paragraph.add_line_break()
    paragraph.add_run().text = "second line"
    slide.notes_slide.notes_text_frame.text = "a note"
    before = saved(deck)
    after = made(before, ".pptx")
    found = pptx.Presentation(io.BytesIO(after)).slides[0]
    shapes = list(found.shapes)
    assert [type(shape) for shape in shapes] == [type(shape) for shape in slide.shapes]
    assert found.shapes.title.text == "TWO ONE"
    assert [cell.text for cell in shapes[1].table.rows[0].cells] == ["CELL A", "7"]
    assert shapes[2].shapes[0].text_frame.text == "GROUP A IN"
    assert shapes[3].chart.chart_title.text_frame.text == "CHART A"
    assert list(shapes[3].chart.plots[0].categories) == ["east", "west"]
    runs = shapes[4].text_frame.paragraphs[0].runs
    assert [run.text for run in runs] == ["LINK A", "LINE SECOND"]
    assert runs[0].hyperlink.address == "http://example.org"
    assert found.notes_slide.notes_text_frame.text == "NOTE A"
    assert all("/slide" in name or "/notesSlide" in name or "/chart" in name for name in changed(before, after))


def test_the_end_of_a_paragraph_stays_its_end() -> None:
    from lxml import etree

    from regard.documents.runs import translate_paragraphs

    space = "http://schemas.openxmlformats.org/drawingml/2006/main"
    root = etree.fromstring(
        f'<a:x xmlns:a="{space}"><a:p><a:pPr/><a:r><a:rPr lang="en"/><a:t>one </a:t></a:r>'
        '<a:r><a:rPr b="1"/><a:t>two</a:t></a:r><a:endParaRPr/></a:p></a:x>'
    )
    translate_paragraphs([root], turned)
    assert [etree.QName(node).localname for node in root[0]] == ["pPr", "r", "r", "endParaRPr"]
    assert "".join(root.itertext()) == "TWO ONE"


# -- Excel -------------------------------------------------------------------------------------------------------------


def workbook() -> bytes:
    """Strings are shared, as Excel writes them."""
    xlsxwriter = pytest.importorskip("xlsxwriter")
    out = io.BytesIO()
    with xlsxwriter.Workbook(out) as book:
        sheet = book.add_worksheet("first sheet")
        sheet.write("A1", "one two")
        sheet.write("A2", "first line\nsecond line here")
        sheet.write_rich_string("A3", "plain ", book.add_format({"bold": True}), "bold word", " after")
        sheet.write("B1", 3.5)
        sheet.write_formula("B2", '=IF(A1="one two",1,0)')
        sheet.merge_range("A4:C4", "merged cell")
        sheet.write("A5", "12 / 7")
        sheet.write("A6", "---")
        columns = [{"header": "name of it"}, {"header": "price"}]
        sheet.add_table("E1:F2", {"name": "T", "columns": columns, "data": [["thing one", 2]]})
        sheet.write_comment("A1", "a comment")
        sheet.insert_textbox("J1", "in a box")
        book.define_name("kept", "='first sheet'!$A$1")
        chart = book.add_chart({"type": "column"})
        chart.add_series({"values": "='first sheet'!$B$1:$B$2"})
        chart.set_title({"name": "a chart"})
        sheet.insert_chart("H1", chart)
        sheet.insert_image("H20", "a.png", {"image_data": io.BytesIO(PICTURE)})
    return out.getvalue()


def check_workbook(data: bytes) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.load_workbook(io.BytesIO(data), rich_text=True)
    sheet = book.active
    assert sheet["A1"].value == "TWO ONE"
    assert sheet["A2"].value == "LINE FIRST\nHERE LINE SECOND"
    rich = sheet["A3"].value
    assert str(rich) == "AFTER WORD BOLD PLAIN"
    assert [str(piece).strip() for piece in rich if not isinstance(piece, str) and piece.font.b] == ["WORD BOLD"]
    assert (sheet["B1"].value, sheet["B2"].value) == (3.5, '=IF(A1="one two",1,0)')
    assert sheet["A4"].value == "CELL MERGED"
    assert [sheet["A5"].value, sheet["A6"].value] == ["7 / 12", "---"]
    assert [str(each) for each in sheet.merged_cells.ranges] == ["A4:C4"]
    assert (sheet["E1"].value, sheet["E2"].value) == ("name of it", "ONE THING")
    assert sheet.title == "first sheet"
    assert book.defined_names["kept"].attr_text == "'first sheet'!$A$1"


def test_a_whole_workbook() -> None:
    before = workbook()
    after = made(before, ".xlsx")
    assert changed(before, after) == {"xl/sharedStrings.xml"}
    assert {"xl/charts/chart1.xml", "xl/drawings/drawing1.xml", "xl/media/image1.png"} <= set(parts(after))
    check_workbook(after)


def test_a_workbook_whose_strings_stand_in_the_sheet() -> None:
    openpyxl = pytest.importorskip("openpyxl")
    before = saved(openpyxl.load_workbook(io.BytesIO(workbook()), rich_text=True))
    assert b"<is>" in parts(before)["xl/worksheets/sheet1.xml"]
    after = made(before, ".xlsx")
    assert changed(before, after) <= {"xl/worksheets/sheet1.xml", "xl/sharedStrings.xml"}
    check_workbook(after)


# -- OpenDocument ------------------------------------------------------------------------------------------------------


def test_a_whole_text_of_opendocument() -> None:
    odfdo = pytest.importorskip("odfdo")
    document = odfdo.Document("text")
    document.body.clear()
    paragraph = odfdo.Paragraph("three four five")
    paragraph.set_span("T1", regex="four")
    paragraph.insert_note(after="three", note_id="n1", citation="1", body="a note")
    paragraph.insert_annotation(after="five", body="a remark", creator="Some Body")
    document.body.append(paragraph)
    link = odfdo.Paragraph("one ")
    link.append(odfdo.Link("http://example.org", text="two"))
    document.body.append(link)
    items = odfdo.List(["first item"])
    document.body.append(items)
    document.body.append(odfdo.Paragraph("before\tbehind here"))
    before = saved(document)
    after = made(before, ".odt")
    found = odfdo.Document(io.BytesIO(after))
    assert [span.inner_text for span in found.body.spans if span.style == "T1"] == ["FOUR"]
    [note] = found.body.get_notes()
    assert note.note_body.strip() == "NOTE A"
    [remark] = found.body.get_annotations()
    assert remark.creator == "Some Body"
    assert remark.note_body.strip() == "REMARK A"
    assert [each.inner_text for each in found.body.get_links()] == ["TWO"]
    assert "ITEM FIRST" in found.body.inner_text
    text = parts(after)["content.xml"].decode()
    assert "BEFORE<text:tab/>HERE BEHIND" in text
    assert changed(before, after) <= {"content.xml", "styles.xml"}
    assert parts(after)["mimetype"] == parts(before)["mimetype"]
