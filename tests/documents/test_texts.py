"""Documents that are text, as people write them: what is not text comes out as it went in."""

from __future__ import annotations

import io
import time
import zipfile
from pathlib import Path

import pytest
from turned import turned

from regard.apps.cli import main
from regard.documents.formats import translate_document
from regard.errors import TextError
from regard.tasks.translation import Translation

BUNDLE = Path(__file__).resolve().parents[1] / "bundle" / "made-by-0.1" / "transformer"


def as_it_was(lines: list[str]) -> list[Translation]:
    return [Translation(line) for line in lines]


def made(text: str, suffix: str, to: str = "") -> str:
    return translate_document(text.encode(), suffix, turned, to).decode()


def test_all_lines_of_a_document_come_together() -> None:
    calls: list[int] = []

    def counted(lines: list[str]) -> list[Translation]:
        calls.append(len(lines))
        return turned(lines)

    translate_document(b"<p>one</p><p title='a'>two</p><p>3</p><p>---</p>", ".html", counted)
    assert calls == [4]


# -- HTML --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('<img alt="one two" src="a b.png">x y', '<img alt="TWO ONE" src="a b.png">Y X'),
        ("<a title='one \"two\"'>x</a>", '<a title="&quot; TWO &quot; ONE">X</a>'),
        ('<input placeholder="one two" name="one two">', '<input placeholder="TWO ONE" name="one two">'),
        ('<p title="one two" translate="no">kept as is</p>', None),
        ("<code title='a b'>x y</code> z", "<code title='a b'>x y</code> Z"),
        ("<pre>one\n  two</pre>three", "<pre>one\n  two</pre>THREE"),
        ("<script>var a = '<p>one two</p>';</script>x y", "<script>var a = '<p>one two</p>';</script>Y X"),
        ("<style>p > a { x: y }</style>x y", "<style>p > a { x: y }</style>Y X"),
        ("one&nbsp;two &copy; &eacute;", None),
        ('<a href="?a=1&b=2">one two</a>', '<a href="?a=1&b=2">TWO ONE</a>'),
        ('<a title="1 < 2" href=x>one two</a>', '<a title="2 &lt; 1" href=x>TWO ONE</a>'),
        ("<p>one<br/>two three</p>", "<p>ONE<br/>THREE TWO</p>"),
        ("<P>One <B>two</B></P>", "<P><B>TWO</B> ONE</P>"),
        ("<!DOCTYPE html><html lang='en'><body>a b", '<!DOCTYPE html><html lang="de"><body>B A'),
    ],
)
def test_html(text: str, wanted: str | None) -> None:
    found = made(text, ".html", "de")
    if wanted is not None:
        assert found == wanted
    elif "translate" in text:
        assert 'title="one two"' in found
    else:
        assert "\xa0" in found or "É" in found


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "iso-8859-1"])
def test_encodings_of_html(encoding: str) -> None:
    head = f'<meta charset="{encoding}">' if encoding.startswith("iso") else ""
    found = translate_document(f"{head}<p>é b</p>\r\n".encode(encoding), ".html", turned)
    assert found.decode(encoding) == f"{head}<p>B É</p>\r\n"


def test_a_character_that_the_encoding_lacks_is_written_as_a_reference() -> None:
    def chinese(lines: list[str]) -> list[Translation]:
        return [Translation("你", words=(), source_words=(), alignment=()) for _ in lines]

    assert translate_document(b'<meta charset="ascii"><p>a</p>', ".html", chinese).endswith(b"<p>&#20320;</p>")


def test_wrong_encodings_are_refused() -> None:
    for data in (b"caf\xe9 one", "one".encode("utf-16-le"), b'<meta charset="none-such">'):
        with pytest.raises(TextError):
            translate_document(data, ".html", turned)


# -- Markdown ----------------------------------------------------------------------------------------------------------


def test_markdown() -> None:
    source = (
        "---\ntitle: kept as it is\n---\n\n# one two\n\nSee [the page](http://a.b/c_d 'x') and ![a picture](p.png).\n\n"
        "| head one | head two |\n| --- | --- |\n| cell one | `code` |\n\n> quoted text\n\n```python\nkept = 1\n```\n\n"
        "    indented code\n\n1. first item\n2. second item\n\n<div>html here</div>\n"
    )
    found = made(source, ".md")
    for kept in ("title: kept as it is", "`code`", "kept = 1", "    indented code", "http://a.b/c_d", "p.png", "| ---"):
        assert kept in found, kept
    for said in ("# TWO ONE", "ONE HEAD", "TWO HEAD", "ONE CELL", "> TEXT QUOTED", "1. ITEM FIRST"):
        assert said in found, said
    assert made(source.replace("\n", "\r\n"), ".md") == found.replace("\n", "\r\n")


# -- subtitles ---------------------------------------------------------------------------------------------------------


def test_subtitles_keep_all_but_their_text() -> None:
    pysubs2 = pytest.importorskip("pysubs2")
    source = (
        "WEBVTT - a title\n\nNOTE\nnothing to say\n\nSTYLE\n::cue { color: red }\n\nintro\n"
        "00:01.000 --> 00:02.000 position:10% align:start\n<v Bob>one <i>two</i></v>\n\n"
        "00:03.000 --> 00:04.000\n- one two\n- three &amp; four\n"
    )
    found = made(source, ".vtt")
    lines = found.splitlines()
    assert lines[:9] == source.splitlines()[:9]
    assert lines[9] == "00:01.000 --> 00:02.000 position:10% align:start"
    assert lines[10] == "<v Bob><i>TWO</i> ONE</v>"
    assert "&amp;" in found
    assert len(pysubs2.SSAFile.from_string(found, format_="vtt")) == 2


def test_a_sentence_over_several_cues_is_one() -> None:
    cues = ["1\n00:00:01,000 --> 00:00:02,000\none two", "2\n00:00:02,100 --> 00:00:03,000\nthree four\nfive."]
    later = "3\n00:00:09,000 --> 00:00:10,000\nnine ten"
    source = "\r\n".join("\n\n".join([*cues, later, ""]).split("\n"))
    seen: list[str] = []

    def noted(lines: list[str]) -> list[Translation]:
        seen.extend(lines)
        return [Translation(line.upper(), words=(), source_words=(), alignment=()) for line in lines]

    found = translate_document(source.encode(), ".srt", noted).decode()
    assert seen == ["one two three four five.", "nine ten"]
    assert found == source.upper()


@pytest.mark.parametrize(
    "inside", ["<b>" * 60_000, "</b>" * 60_000, "a\n" * 60_000, "a " * 60_000, "<b>a</b>" * 20_000]
)
def test_no_cue_takes_long(inside: str) -> None:
    start = time.process_time()
    translate_document(f"1\n00:00:01,000 --> 00:00:02,000\n{inside}\n".encode(), ".srt", as_it_was)
    assert time.process_time() - start < 10


def test_subtitles_without_cues_are_refused() -> None:
    with pytest.raises(TextError, match="no cue"):
        made("just some text", ".srt")


# -- catalogues --------------------------------------------------------------------------------------------------------

PO = r"""msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\nPlural-Forms: nplurals=3; plural=n%10;\n"

#. a comment
#: file.c:1
msgctxt "menu"
msgid "one two"
msgstr ""

msgid "one file"
msgid_plural "%d files here"
msgstr[0] ""
msgstr[1] ""
msgstr[2] ""

#, fuzzy
msgid "three four"
msgstr "an old one"

msgid "first line\n"
"  second line\n"
msgstr ""

#~ msgid "gone away"
#~ msgstr ""
"""


def test_catalogues() -> None:
    po = pytest.importorskip("translate.storage.po")
    found = made(PO, ".po", "de")
    units = {str(unit.source): unit for unit in po.pofile.parsestring(found.encode()).units}
    assert units["one two"].target == "TWO ONE"
    assert units["one two"].getcontext() == "menu"
    assert [str(each) for each in units["one file"].target.strings] == ["FILE ONE", *["HERE FILES D %"] * 2]
    assert units["three four"].target == "an old one"
    assert units["first line\n  second line\n"].target == "LINE FIRST\n  LINE SECOND\n"
    assert '#~ msgid "gone away"\n#~ msgstr ""' in found
    assert "#. a comment\n#: file.c:1\n" in found


XLIFF_1 = """<?xml version="1.0" encoding="UTF-8"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file original="a" source-language="en"
 target-language="de" datatype="html"><body>
<trans-unit id="1"><source>one <g id="1">two</g><x id="2"/> <bpt id="3">&lt;b&gt;</bpt>three<ept id="3">/b</ept>\
</source><note>a note</note></trans-unit>
<trans-unit id="2"><source>done here</source><target state="final">fertig</target></trans-unit>
<trans-unit id="3" translate="no"><source>kept so</source></trans-unit>
<trans-unit id="4"><source>five six</source>\
<alt-trans><source>five</source><target>funf</target></alt-trans></trans-unit>
</body></file></xliff>"""
XLIFF_2 = """<?xml version="1.0"?><xliff version="2.0" srcLang="en" trgLang="de"
 xmlns="urn:oasis:names:tc:xliff:document:2.0"><file id="f"><unit id="u"><segment id="s">
<source>one <pc id="1">two</pc> <ph id="2"/></source></segment>\
<segment state="final"><source>a</source><target>b</target></segment></unit></file></xliff>"""


def test_xliff() -> None:
    xliff = pytest.importorskip("translate.storage.xliff")
    found = made(XLIFF_1, ".xlf", "de")
    assert '<bpt id="3">&lt;b&gt;</bpt>' in found.split("<target")[1]
    assert '<g id="1">TWO</g>' in found
    assert '<target state="final">fertig</target>' in found
    assert "KEPT" not in found
    assert found.index('<target state="needs-review-translation">SIX FIVE</target>') < found.index("<alt-trans>")
    units = xliff.xlifffile.parsestring(found.encode()).units
    assert [unit.getid().split("\x04")[-1] for unit in units] == ["1", "2", "3", "4"]
    found = made(XLIFF_2, ".xliff", "de")
    assert '<segment id="s" state="translated">' in found
    assert '<pc id="1">TWO</pc>' in found.split("<target>")[1]
    assert "<target>b</target>" in found


def test_xliff_that_would_harm() -> None:
    with pytest.raises(TextError):
        made('<!DOCTYPE x [<!ENTITY a "b">]><xliff>&a;</xliff>', ".xlf")
    with pytest.raises(TextError):
        made("<html/>", ".xlf")


# -- books -------------------------------------------------------------------------------------------------------------


def test_books() -> None:
    parts = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": "<container/>",
        "a.opf": '<package xml:lang="en"><metadata><dc:title id="t">one two</dc:title>'
        "<dc:creator>Some Body</dc:creator><dc:language>en</dc:language></metadata></package>",
        "toc.ncx": "<ncx><docTitle><text>one two</text></docTitle><navPoint><navLabel><text>part &amp; one</text>"
        "</navLabel><content src='one.xhtml'/></navPoint></ncx>",
        "one.xhtml": '<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE html>\n<html xml:lang="en" lang="en">'
        "<head><title>a b</title></head><body><p>one <em>two</em><br/>x</p></body></html>",
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as packed:
        for name, content in parts.items():
            packed.writestr(name, content)
    with zipfile.ZipFile(io.BytesIO(translate_document(out.getvalue(), ".epub", turned, "de"))) as packed:
        found = {name: packed.read(name).decode() for name in packed.namelist()}
    assert list(found) == list(parts)
    assert '<dc:title id="t">TWO ONE</dc:title><dc:creator>Some Body</dc:creator>' in found["a.opf"]
    assert "<dc:language>de</dc:language>" in found["a.opf"]
    assert "<text>ONE &amp; PART</text>" in found["toc.ncx"]
    assert 'xml:lang="de" lang="de"' in found["one.xhtml"]
    assert "<title>B A</title>" in found["one.xhtml"]
    assert "<p><em>TWO</em> ONE<br/>X</p>" in found["one.xhtml"]


# -- files -------------------------------------------------------------------------------------------------------------


def test_memories_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.html").write_text("<p>abc <b>de</b></p><p>abc de</p>\n")
    (tmp_path / "a.txt").write_text("abc de\n---\ncab\n")
    words = ["translate", str(BUNDLE)]
    assert main([*words, str(tmp_path / "a.html"), "--output", str(tmp_path / "b.tmx")]) == 0
    assert main([*words, str(tmp_path / "a.txt"), "--format", "tmx"]) == 0
    (tmp_path / "c.tmx").write_text(capsys.readouterr().out)
    for name, count in (("b.tmx", 1), ("c.tmx", 2)):
        text = (tmp_path / name).read_text()
        (tmp_path / name).write_text(text.replace('"und"', '"en"', 2).replace('xml:lang="und"', 'xml:lang="de"'))
        text = (tmp_path / name).read_text()
        assert text.count("<tu>") == count
        assert "abc de" in text


def test_a_memory_is_in_the_order_of_the_document(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("<p>ab</p><p>abc de abc</p><p>abc</p>")
    assert main(["translate", str(BUNDLE), str(tmp_path / "a.html"), "-o", str(tmp_path / "b.tmx")]) == 0
    text = (tmp_path / "b.tmx").read_text()
    places = [text.index(f"<seg>{each}</seg>") for each in ("ab", "abc de abc", "abc")]
    assert places == sorted(places)


def test_nothing_half_written_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.documents import files

    (tmp_path / "a.html").write_text("<p>abc</p>")
    (tmp_path / "b.html").write_text("old")

    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "atomic_rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        files.translate_file(__import__("regard").load(BUNDLE), tmp_path / "a.html", tmp_path / "b.html")
    assert (tmp_path / "b.html").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "b.html"]
