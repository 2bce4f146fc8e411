"""The store: what went in comes out, and a damaged one is noticed."""

from __future__ import annotations

import errno
import json
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data import Filters, Store
from regard.data import store as module
from regard.errors import DataError
from regard.text import Subwords

Pair = tuple[str, str]
WORDS = [
    "the",
    "old",
    "man",
    "sees",
    "a",
    "young",
    "dog",
    "in",
    "der",
    "Stadt",
    "und",
    "kauft",
    "Äpfel",
    "你好",
    "世界",
]
KEEP_ALL = Filters(max_length=10_000, max_ratio=10_000, drop_empty=False)

sides = st.text(st.sampled_from("abc é世\t\u2028▁"), max_size=20)


def some_pairs(count: int, seed: int = 0) -> list[Pair]:
    rng = random.Random(seed)
    return [
        (" ".join(rng.choices(WORDS, k=rng.randint(1, 30))), " ".join(rng.choices(WORDS, k=rng.randint(1, 30))))
        for _ in range(count)
    ]


@pytest.fixture(scope="module")
def subwords() -> tuple[Subwords, Subwords]:
    pairs = some_pairs(500)
    made = [Subwords.train([pair[side] for pair in pairs], size=310, shrink=True) for side in (0, 1)]
    return made[0], made[1]


@settings(deadline=None)
@given(pairs=st.lists(st.tuples(sides, sides), min_size=1, max_size=30))
def test_what_went_in_comes_out(
    tmp_path_factory: pytest.TempPathFactory, subwords: tuple[Subwords, Subwords], pairs: list[Pair]
) -> None:
    store = Store.build(tmp_path_factory.mktemp("store") / "s", iter(pairs), *subwords, KEEP_ALL, "f")
    assert len(store) == len(pairs)
    for line, (source, target) in enumerate(pairs):
        assert (store.source_text(line), store.target_text(line)) == (source, target)
        assert store.source_ids(line).tolist() == subwords[0].encode(source)
        assert store.target_ids(line).tolist() == subwords[1].encode(target)
    assert store.source_lengths.tolist() == [len(subwords[0].encode(pair[0])) for pair in pairs]
    assert store.target_lengths.tolist() == [len(subwords[1].encode(pair[1])) for pair in pairs]


def test_chunks_leave_no_seam(
    tmp_path: Path, subwords: tuple[Subwords, Subwords], monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = some_pairs(200)
    whole = Store.build(tmp_path / "whole", pairs, *subwords, KEEP_ALL, "f")
    monkeypatch.setattr(module, "_CHUNK", 7)
    seen: list[tuple[str, int]] = []
    pieces = Store.build(
        tmp_path / "pieces", pairs, *subwords, KEEP_ALL, "f", progress=lambda what, done: seen.append((what, done))
    )
    for file in (tmp_path / "whole").iterdir():
        assert (pieces.path / file.name).read_bytes() == (whole.path / file.name).read_bytes(), file.name
    assert seen[0] == ("pairs encoded", 7)
    assert seen[-1] == ("pairs encoded", 200)


def test_filters_and_selection_are_reported_with_the_files_line_numbers(
    tmp_path: Path, subwords: tuple[Subwords, Subwords]
) -> None:
    pairs = [("a", "b"), ("skip", "x"), ("", "x"), ("c", "d"), ("a", "b")]
    filters = Filters(drop_duplicates=True)
    store = Store.build(tmp_path / "s", pairs, *subwords, filters, "f", select=lambda pair: pair[0] != "skip")
    assert [store.source_text(line) for line in range(len(store))] == ["a", "c"]
    assert str(store.report) == "4 pairs read, 2 kept; dropped: 1 empty (line 3), 1 duplicate (line 5)"
    assert Store.open(tmp_path / "s").report == store.report


def test_the_same_fingerprint_is_used_again_and_another_replaces(
    tmp_path: Path, subwords: tuple[Subwords, Subwords]
) -> None:
    def never() -> Iterator[Pair]:
        raise AssertionError("read again")
        yield

    first = Store.build(tmp_path / "s", [("a", "b")], *subwords, KEEP_ALL, "one")
    assert len(Store.build(tmp_path / "s", never(), *subwords, KEEP_ALL, "one")) == 1
    assert Store.matching(tmp_path / "s", "two") is None
    second = Store.build(tmp_path / "s", some_pairs(3), *subwords, KEEP_ALL, "two")
    assert (len(second), second.fingerprint) == (3, "two")
    assert first.source_text(0) == "a", "whoever has the old one open still reads it"
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_a_build_that_fails_leaves_what_was_there(tmp_path: Path, subwords: tuple[Subwords, Subwords]) -> None:
    Store.build(tmp_path / "s", [("a", "b")], *subwords, KEEP_ALL, "one")

    def full() -> Iterator[Pair]:
        yield "c", "d"
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(DataError, match="disk is full"):
        Store.build(tmp_path / "s", full(), *subwords, KEEP_ALL, "two")
    with pytest.raises(DataError, match=r"no pair is left .* 1 empty \(line 1\)"):
        Store.build(tmp_path / "s", [("", "")], *subwords, Filters(), "three")
    with pytest.raises(DataError, match="no pair is left"):
        Store.build(tmp_path / "s", [], *subwords, Filters(), "four")
    assert Store.open(tmp_path / "s").fingerprint == "one"
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_ids_take_two_bytes_and_four_where_they_must(
    tmp_path: Path, subwords: tuple[Subwords, Subwords], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = Store.build(tmp_path / "small", some_pairs(5), *subwords, KEEP_ALL, "f")
    monkeypatch.setattr(Subwords, "__len__", lambda self: 70_000)
    large = Store.build(tmp_path / "large", some_pairs(5), *subwords, KEEP_ALL, "f")
    assert (small.source.ids.dtype, large.source.ids.dtype) == (np.uint16, np.uint32)
    assert np.array_equal(small.target.ids, large.target.ids)


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("ending", ["ids", "ids.offsets", "text", "text.offsets"])
def test_a_store_cut_short_is_noticed(
    tmp_path: Path, subwords: tuple[Subwords, Subwords], side: str, ending: str
) -> None:
    Store.build(tmp_path / "s", some_pairs(5), *subwords, KEEP_ALL, "f")
    file = tmp_path / "s" / f"{side}.{ending}"
    for content in (file.read_bytes()[:-8], b""):
        file.write_bytes(content)
        with pytest.raises(DataError, match="prepare it again"):
            Store.open(tmp_path / "s")
    assert Store.matching(tmp_path / "s", "f") is None
    assert len(Store.build(tmp_path / "s", some_pairs(5), *subwords, KEEP_ALL, "f")) == 5, "and built anew"


@pytest.mark.parametrize("header", ["{", "[]", "{}", '{"format": 0}', '{"format": 1}'])
def test_a_store_with_a_wrong_header_is_noticed(
    tmp_path: Path, subwords: tuple[Subwords, Subwords], header: str
) -> None:
    Store.build(tmp_path / "s", some_pairs(5), *subwords, KEEP_ALL, "f")
    (tmp_path / "s" / "store.json").write_text(header)
    with pytest.raises(DataError, match="prepare it again"):
        Store.open(tmp_path / "s")


def test_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no token store here"):
        Store.open(tmp_path / "nothing")


def test_the_header_is_plain_json(tmp_path: Path, subwords: tuple[Subwords, Subwords]) -> None:
    store = Store.build(tmp_path / "s", some_pairs(5), *subwords, KEEP_ALL, "f")
    header = json.loads((tmp_path / "s" / "store.json").read_text())
    assert header["format"] == module.FORMAT
    assert header["source_pieces"] == int(store.source_lengths.sum())


def test_fingerprints_tell_settings_apart() -> None:
    print_of = module.fingerprint
    assert print_of("a", ["b"], {"x": 1, "y": 2}) == print_of("a", ("b",), {"y": 2, "x": 1})
    assert len({print_of("a", "b"), print_of("ab"), print_of(["a", "b"]), print_of("b", "a"), print_of("a", None)}) == 5
