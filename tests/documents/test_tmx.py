"""Translation memories: what is written is read again, by us and by another library; what would harm is not."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from regard.documents.tmx import read_tmx, tmx_lines
from regard.errors import TextError
from regard.text import write_lines

PAIRS = [("Hello, world.", "Hallo, Welt."), ("a & <b>", "ü \u2028 é"), ("你好", "一 二")]


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    for name in ("a.tmx", "a.tmx.gz"):
        write_lines(tmp_path / name, tmx_lines([*PAIRS, ("", "empty")], "en", "de"))
        assert list(read_tmx(tmp_path / name, "en", "de")) == [(a, " ".join(b.split())) for a, b in PAIRS]
        assert next(read_tmx(str(tmp_path / name), "de", "en")) == PAIRS[0][::-1]
    tmx = pytest.importorskip("translate.storage.tmx")
    store = tmx.tmxfile.parsefile(str(tmp_path / "a.tmx"))
    assert (store.units[0].source, store.units[0].target) == PAIRS[0]
    assert [unit.source for unit in store.units] == ["Hello, world.", "a & <b>", "你好", ""]


def test_characters_that_xml_cannot_hold_and_encodings() -> None:
    text = "\n".join(tmx_lines([("a\0b\x07", "c")], "en", "de"))
    assert list(read_tmx(io.BytesIO(text.encode()), "en", "de")) == [("a\ufffdb\ufffd", "c")]
    wide = text.replace('encoding="UTF-8"', 'encoding="UTF-16"').encode("utf-16")
    assert list(read_tmx(io.BytesIO(wide), "en", "de")) == [("a\ufffdb\ufffd", "c")]


def test_one_pair_is_in_memory_at_a_time() -> None:
    drawn = 0

    def pairs() -> object:
        nonlocal drawn
        for _ in range(1000):
            drawn += 1
            yield "a", "b"

    lines = tmx_lines(pairs(), "en", "de")  # type: ignore[arg-type]
    for _ in range(6):
        next(lines)
    assert drawn == 1


@pytest.mark.parametrize(("source", "target"), [("", "de"), ("en", "en"), ("en", "en-GB"), ("en", "fr")])
def test_languages_that_make_no_pair(source: str, target: str) -> None:
    data = "\n".join(tmx_lines(PAIRS, "en", "de")).encode()
    with pytest.raises(TextError):
        list(read_tmx(io.BytesIO(data), source, target))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no xml",
        b'<!DOCTYPE t [<!ENTITY a "bbbb"><!ENTITY c "&a;&a;">]><tmx>&c;</tmx>',
        b'<!DOCTYPE t [<!ENTITY x SYSTEM "file:///etc/passwd">]><tmx>&x;</tmx>',
        b"<a>" * 10_000,
        b"<tmx><body><tu><tuv xml:lang='en'><seg>" + b"a" * 60_000 + b"</seg></tuv>"
        b"<tuv xml:lang='de'><seg>b</seg></tuv></tu></body></tmx>",
    ],
)
def test_hostile_files_are_refused(data: bytes) -> None:
    with pytest.raises(TextError):
        list(read_tmx(io.BytesIO(data), "en", "de"))
