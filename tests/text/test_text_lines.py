"""Lines of text: read as they are, refused with a name, a place and a way out."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import TextError
from regard.text import iter_lines, read_lines, write_lines
from regard.text.lines import read_pairs

Write = Callable[[bytes, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def put(content: bytes, name: str = "some.txt") -> Path:
        path = tmp_path / name
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    return put


def test_only_the_newline_separates(write: Write) -> None:
    line = "one\u2028two\u2029three\x85four\x0bfive\x0csix\x1cseven\rstill seven"
    assert read_lines(write(f"{line}\n\nlast".encode(), "a")) == [line, "", "last"]


def test_a_final_newline_adds_no_line(write: Write) -> None:
    assert read_lines(write(b"a\nb\n", "a")) == read_lines(write(b"a\nb", "b")) == ["a", "b"]


def test_windows_line_ends_and_a_byte_order_mark_are_dropped(write: Write) -> None:
    content = "\ufeffGuten Tag\r\n\ufeffzwei\r\r\n".encode()
    assert read_lines(write(content, "a")) == ["Guten Tag", "\ufeffzwei\r"], (
        "only one of each, and only where it belongs"
    )


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_files_compressed_or_not_and_streams_give_the_same(write: Write, name: str) -> None:
    content = "你好，世界\n".encode() * 3
    path = write(content, name)
    assert read_lines(path) == read_lines(str(path)) == read_lines(io.BytesIO(content)) == ["你好，世界"] * 3


def test_gzip_is_seen_whatever_the_name(write: Write) -> None:
    assert read_lines(write(gzip.compress(b"x\n"), "plain.txt")) == ["x"]


@pytest.mark.parametrize(
    ("content", "name", "words"),
    [
        (b"", "empty.txt", ["empty.txt", "is empty"]),
        (b"", "empty.txt.gz", ["empty.txt.gz", "is empty"]),
        (b"fine\ncaf\xe9 x\n", "latin.txt", ["latin.txt", "line 2", "0xE9", "position 4", "iconv"]),
        ("word".encode("utf-16"), "wide.txt", ["wide.txt", "UTF-16", "iconv -f UTF-16"]),
        (b"a\nb\0c\n", "nul.txt", ["nul.txt", "line 2", "NUL", "character 2"]),
        (b"a\n" + b"x" * 100_000 + b"\nb\n", "long.txt", ["long.txt", "line 2", "100,000 characters", "50,000"]),
        (b"x" * 300_000, "endless.txt", ["endless.txt", "line 1", "more than 50,000 characters"]),
    ],
)
def test_text_that_cannot_be_used_is_refused_by_name(write: Write, content: bytes, name: str, words: list[str]) -> None:
    with pytest.raises(TextError) as caught:
        read_lines(write(content, name))
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_damaged_gzip_is_refused(write: Write, tmp_path: Path) -> None:
    whole = gzip.compress("\n".join(map(str, range(10_000))).encode())
    with pytest.raises(TextError, match="damaged or cut short"):
        read_lines(write(whole[: len(whole) // 2], "cut"))
    (tmp_path / "b.gz").write_bytes(b"no gzip at all")
    with pytest.raises(TextError, match=r"named \.gz"):
        read_lines(tmp_path / "b.gz")


def test_missing_files_and_directories_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TextError, match="no such file"):
        read_lines(tmp_path / "nothing")
    with pytest.raises(TextError, match="directory"):
        read_lines(tmp_path)


def test_an_empty_stream_is_no_mistake_when_allowed() -> None:
    assert read_lines(io.BytesIO(b""), allow_empty=True) == []


def test_lines_come_before_a_later_mistake_is_met(write: Write) -> None:
    lines = iter_lines(write(b"good\n\xff\n", "a"))
    assert next(lines) == "good"
    with pytest.raises(TextError, match="line 2"):
        next(lines)


def test_pairs_of_two_files(write: Write) -> None:
    assert list(read_pairs(write(b"a\nb\n", "s"), write(b"c\nd", "t.gz"))) == [("a", "c"), ("b", "d")]


@pytest.mark.parametrize(("source", "target"), [(3, 5), (5, 3)])
def test_unequal_counts_name_both(write: Write, source: int, target: int) -> None:
    paths = write(b"x\n" * source, "one"), write(b"x\n" * target, "other")
    with pytest.raises(TextError, match=rf"one has {source} lines but .*other has {target}"):
        list(read_pairs(*paths))


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_pairs_of_one_file(write: Write, ending: str) -> None:
    records = [{"en": "a\tb", "de": "c", "id": 1}, {"en": "d", "de": "é"}]
    jsonl = write("\n".join(map(json.dumps, records)).encode(), "a.jsonl" + ending)
    assert list(read_pairs(jsonl, fields=("en", "de"))) == [("a\tb", "c"), ("d", "é")]
    tsv = write("a\tb\r\nc\té\n".encode(), "a.tsv" + ending)
    assert list(read_pairs(tsv)) == [("a", "b"), ("c", "é")]


@pytest.mark.parametrize(
    ("content", "name", "words"),
    [
        (b"a\tb\na\tb\tc\n", "a.tsv", ["line 2", "3 tab-separated columns"]),
        (b"alone\n", "a.tsv", ["line 1", "1 tab-separated", "without a tab"]),
        (b"{\n", "a.jsonl", ["line 1", "not JSON"]),
        (b"[1]\n", "a.jsonl", ["line 1", "list"]),
        (b'{"source": "x"}\n', "a.jsonl", ["line 1", "'target'", "source"]),
        (b'{"source": "x", "target": 3}\n', "a.jsonl", ["line 1", "'target'", "int"]),
        (b'{"source": "x\\ny", "target": ""}\n', "a.jsonl", ["line 1", "'source'", "line break"]),
        (b'{"source": "x\\u0000y", "target": ""}\n', "a.jsonl", ["line 1", "NUL"]),
        (b'{"source": "\\ud800", "target": ""}\n', "a.jsonl", ["line 1", "surrogate"]),
        (b"x\n", "a.txt", ["a.txt", ".tsv", ".jsonl"]),
    ],
)
def test_one_file_that_holds_no_pairs_is_refused(write: Write, content: bytes, name: str, words: list[str]) -> None:
    with pytest.raises(TextError) as caught:
        list(read_pairs(write(content, name)))
    assert all(word in str(caught.value) for word in words), str(caught.value)


@settings(deadline=None)
@given(st.lists(st.text(st.characters(exclude_characters="\0\n", exclude_categories=["Cs"])), min_size=1))
@pytest.mark.parametrize("name", ["some.txt", "some.txt.gz"])
def test_what_is_written_is_read_again(tmp_path_factory: pytest.TempPathFactory, name: str, lines: list[str]) -> None:
    # The two things that reading drops on purpose.
    lines = [line.removesuffix("\r").removeprefix("\ufeff") for line in lines]
    if any(line.endswith("\r") for line in lines) or lines[0].startswith("\ufeff"):
        return
    path = tmp_path_factory.mktemp("lines") / name
    assert write_lines(path, lines) == len(lines)
    assert read_lines(path) == lines


def test_a_line_with_a_newline_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("what was there\n")
    with pytest.raises(TextError, match="line 2 contains a line break"):
        write_lines(tmp_path / "a", ["fine", "one\ntwo"])
    with pytest.raises(TextError, match="surrogate"):
        write_lines(tmp_path / "a", ["\ud800"])
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "what was there\n", "nothing is lost"


def test_equal_lines_give_equal_compressed_files(tmp_path: Path) -> None:
    for name in ("a.gz", "b.gz"):
        write_lines(tmp_path / name, ["same"])
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()
