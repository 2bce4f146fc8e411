"""The formats of corpora: what each reads, what it refuses and where, and one more from a user's own script."""

from __future__ import annotations

import contextlib
import csv
import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from regard.errors import RegardError, TextError
from regard.text import formats, read_lines, write_lines
from regard.text.lines import FORMATS, Format, holds_both, read_pairs, read_texts

PAIRS = [("Hello, world.", "Hallo, Welt."), ("你好 & <b>", "½ \u2028 é"), ("twice", "zweimal")]
LANGUAGES = ("en", "de")


def tmx(pairs: list[tuple[str, str]]) -> str:
    from xml.sax.saxutils import escape

    units = "".join(
        f'<tu><tuv xml:lang="en-GB"><seg>{escape(one)}</seg></tuv>'
        f'<tuv lang="deu"><seg>{escape(other)}</seg></tuv></tu>\n'
        for one, other in pairs
    )
    return f'<?xml version="1.0"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx><body>{units}</body></tmx>'


def write_tsv(path: Path) -> None:
    write_lines(path, ("\t".join(pair) for pair in PAIRS))


def write_jsonl(path: Path) -> None:
    write_lines(path, (json.dumps(dict(zip(("source", "target"), pair, strict=True))) for pair in PAIRS))


def write_tmx(path: Path) -> None:
    write_lines(path, tmx(PAIRS).split("\n"))


def write_parquet(path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    columns = {"id": [1, 2, 3], "source": [s for s, _ in PAIRS], "target": [t for _, t in PAIRS]}
    pa.parquet.write_table(pa.table(columns), path)


WRITERS: dict[str, Callable[[Path], None]] = {
    "a.tsv": write_tsv,
    "a.jsonl": write_jsonl,
    "a.tmx": write_tmx,
    "a.parquet": write_parquet,
}


@pytest.fixture(autouse=True)
def parquet() -> None:
    pytest.importorskip("pyarrow.parquet")


@pytest.mark.parametrize("name", [name + end for name in WRITERS for end in ("", ".gz", ".zst")][:-2])
def test_every_format_gives_the_same_pairs(tmp_path: Path, name: str) -> None:
    if name.endswith(".zst"):
        pytest.importorskip("backports.zstd" if __import__("sys").version_info < (3, 14) else "compression.zstd")
    plain = name.removesuffix(".gz").removesuffix(".zst")
    WRITERS[plain](tmp_path / name)
    assert holds_both(name)
    assert list(read_pairs(tmp_path / name, languages=LANGUAGES)) == PAIRS


def test_zstd_is_written_seen_by_itself_and_refused_where_damaged(tmp_path: Path) -> None:
    lines = [f"line {number} é" for number in range(10_000)]
    write_lines(tmp_path / "a.zst", lines)
    content = (tmp_path / "a.zst").read_bytes()
    assert content[:4] == b"\x28\xb5\x2f\xfd"
    assert len(content) < 40_000
    (tmp_path / "plain").write_bytes(content)
    assert read_lines(tmp_path / "plain") == lines
    (tmp_path / "two.zst").write_bytes(content + content)
    assert read_lines(tmp_path / "two.zst") == lines * 2
    (tmp_path / "cut").write_bytes(content[: len(content) // 2])
    with pytest.raises(TextError, match="zstd data is damaged or cut short"):
        read_lines(tmp_path / "cut")
    (tmp_path / "not.zst").write_bytes(b"no zstd at all\n")
    with pytest.raises(TextError, match=r"named \.zst but is not zstd"):
        read_lines(tmp_path / "not.zst")
    (tmp_path / "other.zst").write_bytes(gzip.compress(b"x\n"))
    assert read_lines(tmp_path / "other.zst") == ["x"]


def test_text_of_one_side_comes_from_every_format(tmp_path: Path) -> None:
    for name, write in WRITERS.items():
        write(tmp_path / name)
    sources = [source for source, _ in PAIRS]
    assert list(read_texts(tmp_path / "a.jsonl", fields=["source"])) == sources
    assert list(read_texts(tmp_path / "a.parquet", fields=["source"])) == sources
    assert list(read_texts(tmp_path / "a.tmx", language="en")) == sources
    assert list(read_texts(tmp_path / "a.tsv")) == ["\t".join(pair) for pair in PAIRS], "a line is a line"
    with pytest.raises(TextError, match="no field 'text'; its fields are: source, target"):
        list(read_texts(tmp_path / "a.jsonl"))


def test_fields_inside_of_records_and_lists_of_references(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    record = {"translation": {"en": "a  b", "de": ["x\n", "y"]}, "a.b": "dotted"}
    write_lines(tmp_path / "a.jsonl", [json.dumps(record)])
    pa.parquet.write_table(pa.Table.from_pylist([record]), tmp_path / "a.parquet")
    for name in ("a.jsonl", "a.parquet"):
        fields = ["translation.en", "translation.de"]
        assert list(read_pairs(tmp_path / name, fields=fields)) == [("a  b", "x"), ("a  b", "y")]
        assert list(read_texts(tmp_path / name, fields=["a.b"])) == ["dotted"]


def test_tmx_keeps_text_and_leaves_mark_up_and_other_languages_out(tmp_path: Path) -> None:
    body = """<tmx><body>
    <tu><tuv xml:lang="EN_us"><seg>A <bpt i="1">&lt;b&gt;<sub>hidden</sub></bpt>bold <hi>word</hi><ept i="1">/</ept>
        here</seg></tuv><tuv xml:lang="fr"><seg>Un</seg></tuv><tuv xml:lang="de"><seg>Ein</seg></tuv>
      <tuv xml:lang="de-AT"><seg>Noch ein</seg></tuv></tu>
    <tu><tuv xml:lang="en"><seg>no German</seg></tuv></tu></body></tmx>"""
    (tmp_path / "a.tmx").write_text(body, "utf-8")
    pairs = list(read_pairs(tmp_path / "a.tmx", languages=("eng", "ger")))
    assert pairs == [("A bold word here", "Ein"), ("A bold word here", "Noch ein")]
    assert list(read_pairs(tmp_path / "a.tmx", languages=("en", "de-at"))) == [("A bold word here", "Noch ein")]
    with pytest.raises(TextError, match="no unit of this file has text in en and it; its languages are: EN_us, de"):
        list(read_pairs(tmp_path / "a.tmx", languages=("en", "it")))
    with pytest.raises(TextError, match=r"source_language and data\.target_language"):
        list(read_pairs(tmp_path / "a.tmx"))


LAUGHS = "<!DOCTYPE t [" + "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 11))
"""Some 10^10 characters, were it expanded."""


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", ["line 1", "no element"]),
        ("<tmx>\n<tu></tmx>", ["line 2, column", "mismatched tag"]),
        (f"{LAUGHS}]><tmx>&a9;</tmx>", ["entity 'a1'"]),
        ('<!DOCTYPE t [<!ENTITY x SYSTEM "file:///etc/passwd">]><tmx>&x;</tmx>', ["entity 'x'"]),
        ('<!DOCTYPE t [<!ENTITY % x SYSTEM "file:///etc/passwd">%x;]><tmx/>', ["entity 'x'"]),
        (f'<tmx a="{"x" * (5 << 20)}"/>', ["larger than 4 MB"]),
        ("<tmx><tu><tuv xml:lang='en'><seg>" + "word " * (1 << 20) + "</seg>", ["4 million characters"]),
        ("<a>" * 1000, ["more than 100 elements are nested"]),
        ("<tmx>\0</tmx>", ["line 1, column 6"]),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_xml_that_is_wrong_or_would_harm_is_refused_with_its_place(
    tmp_path: Path, content: str, words: list[str]
) -> None:
    (tmp_path / "a.tmx").write_text(content, "utf-8")
    with pytest.raises(TextError) as caught:
        list(read_pairs(tmp_path / "a.tmx", languages=LANGUAGES))
    assert all(word in str(caught.value) for word in ["a.tmx", *words]), str(caught.value)


def test_a_tmx_file_is_read_as_a_stream(tmp_path: Path) -> None:
    (tmp_path / "a.tmx").write_text(tmx([("a", "b")] * 20_000).removesuffix("</body></tmx>"), "utf-8")
    pairs = read_pairs(tmp_path / "a.tmx", languages=LANGUAGES)
    assert next(pairs) == ("a", "b"), "before the end, which is missing, is met"
    with pytest.raises(TextError, match="line 20003"):
        list(pairs)


@pytest.mark.parametrize("name", WRITERS)
def test_damaged_files_raise_nothing_but_our_own_errors(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    WRITERS[name](path)
    whole, rng = path.read_bytes(), random.Random(name)
    for turn in range(300):
        content = bytearray(whole)
        if turn % 3 == 0:
            del content[rng.randrange(len(content)) :]
        for _ in range(rng.randint(1, 5)):
            if content:
                content[rng.randrange(len(content))] = rng.randrange(256)
        path.write_bytes(content)
        with contextlib.suppress(RegardError):
            list(read_pairs(path, languages=LANGUAGES))


def test_parquet_names_the_row_and_the_columns(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pa.parquet.write_table(pa.table({"en": ["a", None], "n": [1, 2]}), tmp_path / "a.parquet")
    with pytest.raises(TextError, match=r"a\.parquet: row 2, field 'en' is NoneType, not text"):
        list(read_texts(tmp_path / "a.parquet", fields=["en"]))
    with pytest.raises(TextError, match="row 1, field 'n' is int"):
        list(read_texts(tmp_path / "a.parquet", fields=["n"]))
    with pytest.raises(TextError, match=r"no field 'de'; its fields are: en, n"):
        list(read_pairs(tmp_path / "a.parquet", fields=["en", "de"]))
    with pytest.raises(TextError, match="no such file"):
        list(read_pairs(tmp_path / "b.parquet"))


@pytest.mark.parametrize(("name", "package"), [("a.parquet", "pyarrow"), ("a.jsonl.zst", "backports.zstd")])
def test_a_missing_package_is_named_with_what_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, package: str
) -> None:
    if name.endswith(".zst"):
        write_jsonl(tmp_path / name)
    else:
        write_parquet(tmp_path / name)
    for module in ("pyarrow", "backports", "compression", "backports.zstd"):
        monkeypatch.setitem(__import__("sys").modules, module, None)
    extra = "parquet" if package == "pyarrow" else "zstd"
    with pytest.raises(TextError, match=rf"{package}.*pip install '\.\[{extra}\]' in a checkout"):
        list(read_pairs(tmp_path / name))


def test_one_more_format_is_one_more_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_csv(source: formats.Source, names: object) -> object:
        with open(formats.name_of(source), encoding="utf-8", newline="") as file:
            yield from csv.reader(file)

    monkeypatch.setitem(FORMATS, "csv", Format(("csv",), read_csv))  # type: ignore[arg-type]
    (tmp_path / "a.csv").write_text('"one, two",eins\nx,y\n', "utf-8")
    assert list(read_pairs(tmp_path / "a.csv")) == [("one, two", "eins"), ("x", "y")]
    for wrong, words in (("a,b,c\n", "row 1 is"), ("a,b\nc\n", "row 2 is"), ('a,"b\nc"\n', "row 1 contains a line")):
        (tmp_path / "a.csv").write_text(wrong, "utf-8")
        with pytest.raises(TextError, match=words):
            list(read_pairs(tmp_path / "a.csv"))
