"""The store: what went in comes out, and a damaged one is noticed."""

from __future__ import annotations

import errno
import json
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy import KEEP_ALL, WORDS

from regard.data import shards
from regard.data import store as module
from regard.data.batches import Batches
from regard.data.store import Store
from regard.errors import DataError
from regard.settings import Filters
from regard.text import Tokenizer

Pair = tuple[str, str]

sides = st.text(st.sampled_from("abc é世\t\u2028▁"), max_size=20)


def some_pairs(count: int, seed: int = 0) -> list[Pair]:
    rng = random.Random(seed)
    return [
        (" ".join(rng.choices(WORDS, k=rng.randint(1, 30))), " ".join(rng.choices(WORDS, k=rng.randint(1, 30))))
        for _ in range(count)
    ]


@pytest.fixture(scope="module")
def tokenizer() -> tuple[Tokenizer, Tokenizer]:
    pairs = some_pairs(500)
    made = [Tokenizer.train([pair[side] for pair in pairs], size=310, shrink=True) for side in (0, 1)]
    return made[0], made[1]


@settings(deadline=None)
@given(pairs=st.lists(st.tuples(sides, sides), min_size=1, max_size=30))
def test_what_went_in_comes_out(
    tmp_path_factory: pytest.TempPathFactory, tokenizer: tuple[Tokenizer, Tokenizer], pairs: list[Pair]
) -> None:
    store = Store.build(tmp_path_factory.mktemp("store") / "s", iter(pairs), *tokenizer, KEEP_ALL, "f")
    assert len(store) == len(pairs)
    for line, (source, target) in enumerate(pairs):
        assert (store.source.text(line), store.target.text(line)) == (source, target)
        assert store.source.line_ids(line).tolist() == tokenizer[0].encode(source)
        assert store.target.line_ids(line).tolist() == tokenizer[1].encode(target)
    assert store.source.lengths.tolist() == [len(tokenizer[0].encode(pair[0])) for pair in pairs]
    assert store.target.lengths.tolist() == [len(tokenizer[1].encode(pair[1])) for pair in pairs]


def test_chunks_leave_no_seam(
    tmp_path: Path, tokenizer: tuple[Tokenizer, Tokenizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = some_pairs(200)
    whole = Store.build(tmp_path / "whole", pairs, *tokenizer, KEEP_ALL, "f")
    monkeypatch.setattr(shards, "_CHUNK", 7)
    seen: list[tuple[str, int]] = []
    tokens = Store.build(
        tmp_path / "tokens", pairs, *tokenizer, KEEP_ALL, "f", progress=lambda what, done: seen.append((what, done))
    )
    assert {path.name for path in whole.path.iterdir()} == {"store.json", "00000.shard"}
    for file in (tmp_path / "whole").iterdir():
        assert (tokens.path / file.name).read_bytes() == (whole.path / file.name).read_bytes(), file.name
    assert seen[0] == ("pairs encoded", 7)
    assert seen[-1] == ("pairs encoded", 200)


def test_shards_leave_no_seam(
    tmp_path: Path, tokenizer: tuple[Tokenizer, Tokenizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [*some_pairs(60), *[("", "x")] * 300, *some_pairs(60, 1), ("last", "one")]
    whole = Store.build(tmp_path / "whole", pairs, *tokenizer, Filters(), "f")
    monkeypatch.setattr(shards, "_LARGE", 500)
    store = Store.build(tmp_path / "shards", pairs, *tokenizer, Filters(), "f")
    assert len(list(store.path.glob("*.shard"))) > 20
    assert 0 in [shard["lines"] for shard in json.loads((store.path / "store.json").read_text())["shards"]]
    assert (len(store), store.report) == (len(whole), whole.report)
    lines = np.random.default_rng(0).permutation(len(store))
    for side, same in ((store.source, whole.source), (store.target, whole.target)):
        assert side.lengths.tolist() == same.lengths.tolist()
        assert side.lengths[lines].tolist() == same.lengths[lines].tolist()
        assert side.ids_of(lines).tolist() == same.ids_of(lines).tolist()
        assert [side.text(line) for line in lines.tolist()] == [same.text(line) for line in lines.tolist()]
    batches, same_batches = (Batches(s, batch_tokens=200, pool=50).one_epoch(sort=True) for s in (store, whole))
    for batch, same_batch in zip(batches, same_batches, strict=True):
        assert np.array_equal(batch.source, same_batch.source)
        assert np.array_equal(batch.target_output, same_batch.target_output)


def test_filters_and_selection_are_reported_with_the_files_line_numbers(
    tmp_path: Path, tokenizer: tuple[Tokenizer, Tokenizer]
) -> None:
    pairs = [("a", "b"), ("skip", "x"), ("", "x"), ("c", "d"), ("a", "b")]
    filters = Filters(drop_duplicates=True)
    store = Store.build(
        tmp_path / "s", (pair if pair[0] != "skip" else None for pair in pairs), *tokenizer, filters, "f"
    )
    assert [store.source.text(line) for line in range(len(store))] == ["a", "c"]
    assert str(store.report) == "4 pairs read, 2 kept; dropped: 1 empty (line 3), 1 duplicate (line 5)"
    assert Store.open(tmp_path / "s").report == store.report


def test_the_same_fingerprint_is_used_again_and_another_replaces(
    tmp_path: Path, tokenizer: tuple[Tokenizer, Tokenizer]
) -> None:
    def never() -> Iterator[Pair]:
        raise AssertionError("read again")
        yield

    first = Store.build(tmp_path / "s", [("a", "b")], *tokenizer, KEEP_ALL, "one")
    assert len(Store.build(tmp_path / "s", never(), *tokenizer, KEEP_ALL, "one")) == 1
    assert Store.matching(tmp_path / "s", "two") is None
    second = Store.build(tmp_path / "s", some_pairs(3), *tokenizer, KEEP_ALL, "two")
    assert (len(second), second.fingerprint) == (3, "two")
    assert first.source.text(0) == "a", "whoever has the old one open still reads it"
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_a_build_that_fails_leaves_what_was_there(tmp_path: Path, tokenizer: tuple[Tokenizer, Tokenizer]) -> None:
    Store.build(tmp_path / "s", [("a", "b")], *tokenizer, KEEP_ALL, "one")

    def full() -> Iterator[Pair]:
        yield "c", "d"
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(DataError, match="disk is full"):
        Store.build(tmp_path / "s", full(), *tokenizer, KEEP_ALL, "two")
    with pytest.raises(DataError, match=r"no pair is left .* 1 empty \(line 1\)"):
        Store.build(tmp_path / "s", [("", "")], *tokenizer, Filters(), "three")
    with pytest.raises(DataError, match="no pair is left"):
        Store.build(tmp_path / "s", [], *tokenizer, Filters(), "four")
    assert Store.open(tmp_path / "s").fingerprint == "one"
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_what_killed_builds_left_is_removed(tmp_path: Path, tokenizer: tuple[Tokenizer, Tokenizer]) -> None:
    for name in (".s.12.part", ".s.12.old", ".other.12.part"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "00000.shard").write_bytes(b"half")
    Store.build(tmp_path / "s", [("a", "b")], *tokenizer, KEEP_ALL, "f")
    assert {path.name for path in tmp_path.iterdir()} == {"s", ".other.12.part"}


def test_of_two_that_build_at_once_one_does(tmp_path: Path, tokenizer: tuple[Tokenizer, Tokenizer]) -> None:
    def never() -> Iterator[Pair]:
        raise AssertionError("built twice")
        yield

    found: list[int] = []
    second = threading.Thread(
        target=lambda: found.append(len(Store.build(tmp_path / "s", never(), *tokenizer, KEEP_ALL, "f")))
    )

    def pairs() -> Iterator[Pair]:
        yield "a", "b"
        second.start()
        second.join(0.2)
        yield "c", "d"

    Store.build(tmp_path / "s", pairs(), *tokenizer, KEEP_ALL, "f")
    second.join()
    assert found == [2]


def test_ids_take_two_bytes_and_four_where_they_must(
    tmp_path: Path, tokenizer: tuple[Tokenizer, Tokenizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = Store.build(tmp_path / "small", some_pairs(5), *tokenizer, KEEP_ALL, "f")
    monkeypatch.setattr(Tokenizer, "__len__", lambda self: 70_000)
    large = Store.build(tmp_path / "large", some_pairs(5), *tokenizer, KEEP_ALL, "f")
    assert (small.source.line_ids(0).dtype, large.source.line_ids(0).dtype) == (np.uint16, np.uint32)
    lines = np.arange(5)
    assert np.array_equal(small.target.ids_of(lines), large.target.ids_of(lines))


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-8],
        lambda content: b"",
        lambda content: content + bytes(8),
        lambda content: bytes(8 * 6) + content[8 * 6 :],
    ],
    ids=["cut short", "empty", "longer", "zeros"],
)
def test_a_damaged_store_is_noticed(
    tmp_path: Path, tokenizer: tuple[Tokenizer, Tokenizer], damage: Callable[[bytes], bytes]
) -> None:
    Store.build(tmp_path / "s", some_pairs(5), *tokenizer, KEEP_ALL, "f")
    file = tmp_path / "s" / "00000.shard"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(DataError, match=r"00000\.shard.*prepare it again"):
        Store.open(tmp_path / "s")
    assert Store.matching(tmp_path / "s", "f") is None
    assert len(Store.build(tmp_path / "s", some_pairs(5), *tokenizer, KEEP_ALL, "f")) == 5, "and built anew"
    file.unlink()
    with pytest.raises(DataError, match=r"00000\.shard.*prepare it again"):
        Store.open(tmp_path / "s")


@pytest.mark.parametrize("header", ["{", "[]", "{}", '{"format": 1}', '{"format": 2}'])
def test_a_store_with_a_wrong_header_is_noticed(
    tmp_path: Path, tokenizer: tuple[Tokenizer, Tokenizer], header: str
) -> None:
    Store.build(tmp_path / "s", some_pairs(5), *tokenizer, KEEP_ALL, "f")
    (tmp_path / "s" / "store.json").write_text(header)
    with pytest.raises(DataError, match="prepare it again"):
        Store.open(tmp_path / "s")


def test_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no token store here"):
        Store.open(tmp_path / "nothing")


def test_the_header_is_plain_json(tmp_path: Path, tokenizer: tuple[Tokenizer, Tokenizer]) -> None:
    store = Store.build(tmp_path / "s", some_pairs(5), *tokenizer, KEEP_ALL, "f")
    header = json.loads((tmp_path / "s" / "store.json").read_text())
    assert header["format"] == module.FORMAT
    assert [shard["source"]["tokens"] for shard in header["shards"]] == [int(store.source.lengths.sum())]


def test_fingerprints_tell_settings_apart() -> None:
    print_of = module.fingerprint
    assert print_of("a", ["b"], {"x": 1, "y": 2}) == print_of("a", ("b",), {"y": 2, "x": 1})
    assert len({print_of("a", "b"), print_of("ab"), print_of(["a", "b"]), print_of("b", "a"), print_of("a", None)}) == 5


def test_shards_grow_with_the_corpus_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "_SMALL", 100)
    monkeypatch.setattr(shards, "_LARGE", 400)
    pairs = [("abc", "abcde")] * 2000  # 10 characters each, with one more for each line
    lengths = [len(raw.numbers) for raw in shards.cut(pairs, None)]
    assert lengths[:9] == [10] * 9
    assert lengths[:-1] == sorted(lengths[:-1])
    assert max(lengths) == 40
    assert sum(lengths) == 2000
