"""Batches: every line once an epoch, within the budget, the same from anywhere, packed as padded."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy import KEEP_ALL, WORDS

from regard.data.batches import Batch, Batches, Prefetcher, _permuted
from regard.data.sampling import Sampling
from regard.data.store import Store
from regard.errors import DataError
from regard.settings import Filters
from regard.text import BEGIN, END, PAD, Tokenizer
from regard.text.lines import read_pairs

LAYOUTS = ("padded", "packed")


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([" ".join(WORDS)] * 3 + WORDS, size=310, shrink=True)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Store:
    rng = random.Random(1)
    # Some empty lines, and one longer than most budgets.
    sides = [[" ".join(rng.choices(WORDS, k=rng.randint(0, 20))) for _ in range(300)] + ["old " * 200] for _ in "st"]
    return Store.build(
        tmp_path_factory.mktemp("data") / "s", zip(*sides, strict=True), tokenizer, tokenizer, KEEP_ALL, "f"
    )


def epoch_of(batches: Batches) -> Iterator[Batch]:
    """The batches that are left of the epoch."""
    epoch = batches.epoch
    while batches.epoch == epoch:
        yield next(batches)


def rows(batch: Batch, name: str) -> list[list[int]]:
    """A side's rows without padding, from either layout."""
    array = getattr(batch, name)
    lengths = (batch.source_lengths if name == "source" else batch.target_lengths).tolist()
    if batch.layout == "packed":
        ends = np.cumsum(lengths).tolist()
        assert array.shape == (ends[-1],)
        return [array[end - length : end].tolist() for end, length in zip(ends, lengths, strict=True)]
    assert array.shape == (len(batch), max(lengths))
    assert all((row[length:] == PAD).all() for row, length in zip(array, lengths, strict=True))
    return [row[:length].tolist() for row, length in zip(array, lengths, strict=True)]


def same(one: Batch, other: Batch) -> bool:
    names = ("lines", "source", "source_lengths", "target_input", "target_output", "target_lengths")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


options = st.fixed_dictionaries(
    {
        "batch_tokens": st.integers(1, 2000),
        "layout": st.sampled_from(LAYOUTS),
        "seed": st.integers(0, 2**62),
        "pool": st.integers(1, 400),
    }
)
epochs = st.integers(0, 1000)


def begun(batches: Batches, epoch: int) -> Batches:
    """The batches from the first one of an epoch on."""
    batches.seek({"epoch": epoch, "pool": 0, "batch": 0})
    return batches


@settings(deadline=None)
@given(options=options, epoch=epochs, sampled=st.booleans())
def test_each_line_is_there_exactly_once_an_epoch_and_within_the_budget(
    store: Store, tokenizer: Tokenizer, options: dict[str, Any], epoch: int, sampled: bool
) -> None:
    sampling = Sampling(0.2, tokenizer, tokenizer) if sampled else None
    batches = begun(Batches(store, **options, sampling=sampling), epoch)
    seen: list[int] = []
    for batch in epoch_of(batches):
        seen += batch.lines.tolist()
        source, target = batch.source_lengths, batch.target_lengths
        size = [s.sum() if options["layout"] == "packed" else len(batch) * s.max() for s in (source, target)]
        assert len(batch) == 1 or max(size) <= options["batch_tokens"]
        assert batch.source.size == size[0]
        assert batch.target_input.size == batch.target_output.size == size[1]
        assert (batch.source_tokens, batch.target_tokens) == (source.sum(), target.sum())
    assert sorted(seen) == list(range(len(store)))
    assert batches.position() == {"epoch": epoch + 1, "pool": 0, "batch": 0}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_are_the_lines_with_their_ends(store: Store, layout: Any) -> None:
    for batch in epoch_of(Batches(store, batch_tokens=300, layout=layout)):
        for line, row in zip(batch.lines.tolist(), rows(batch, "source"), strict=True):
            assert row == [*store.source.line_ids(line), END]
        both = zip(batch.lines.tolist(), rows(batch, "target_input"), rows(batch, "target_output"), strict=True)
        for line, before, after in both:
            assert before == [BEGIN, *store.target.line_ids(line)]
            assert after == [*store.target.line_ids(line), END]
        assert batch.source.dtype == batch.target_input.dtype == batch.target_output.dtype == np.int64


def test_packed_holds_what_padded_holds(store: Store) -> None:
    def content(layout: Any) -> dict[int, list[list[int]]]:
        return {
            line: list(row)
            for batch in epoch_of(Batches(store, batch_tokens=200, layout=layout))
            for line, *row in zip(
                batch.lines.tolist(),
                *(rows(batch, name) for name in ("source", "target_input", "target_output")),
                strict=True,
            )
        }

    assert content("packed") == content("padded")


@settings(deadline=None, max_examples=40)
@given(options=options, epoch=epochs, steps=st.integers(0, 60), sampled=st.booleans())
def test_going_on_from_any_position_is_exact(
    store: Store, tokenizer: Tokenizer, options: dict[str, Any], epoch: int, steps: int, sampled: bool
) -> None:
    options = {**options, "batch_tokens": max(100, options["batch_tokens"]), "pool": max(20, options["pool"])}
    sampling = Sampling(0.2, tokenizer, tokenizer) if sampled else None
    first = begun(Batches(store, **options, sampling=sampling), epoch)
    for _ in range(steps):
        next(first)
    position = json.loads(json.dumps(first.position()))
    second = begun(Batches(store, **options, sampling=sampling), 7)
    second.seek(position)
    assert second.position() == first.position()
    assert second.epoch == first.epoch
    for one, other in islice(zip(first, second, strict=False), 10):
        assert same(one, other)
        assert first.position() == second.position()


def test_the_order_depends_on_seed_and_epoch_alone(store: Store) -> None:
    def order(seed: int, epoch: int) -> list[int]:
        return [
            line
            for batch in epoch_of(begun(Batches(store, batch_tokens=200, seed=seed), epoch))
            for line in batch.lines
        ]

    orders = [order(seed, epoch) for seed in (1, 2) for epoch in (0, 1)]
    assert len({tuple(order) for order in orders}) == 4
    assert order(2, 1) == orders[3]
    going_on = Batches(store, batch_tokens=200, seed=2)
    list(epoch_of(going_on))
    assert [line for batch in epoch_of(going_on) for line in batch.lines] == orders[3]


def test_batches_of_an_epoch_come_in_no_order_of_length(store: Store) -> None:
    widths = [batch.source.shape[1] for batch in epoch_of(Batches(store, batch_tokens=200))]
    assert widths != sorted(widths)
    assert widths != sorted(widths, reverse=True)


def test_sorting_keeps_padding_small(store: Store) -> None:
    def filled(batches: Iterator[Batch]) -> float:
        made = list(batches)
        tokens = sum(batch.source_tokens + batch.target_tokens for batch in made)
        return tokens / sum(batch.source.size + batch.target_input.size for batch in made)

    batches = Batches(store, batch_tokens=400)
    assert filled(epoch_of(batches)) > filled(batches.one_epoch()) + 0.1
    assert filled(batches.one_epoch(sort=True)) > filled(batches.one_epoch()) + 0.1


@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_epoch_is_in_order_and_leaves_the_position(store: Store, tokenizer: Tokenizer, layout: Any) -> None:
    batches = Batches(store, batch_tokens=300, layout=layout, pool=70, sampling=Sampling(0.5, tokenizer, tokenizer))
    next(batches)
    position = batches.position()
    made = list(batches.one_epoch())
    assert [line for batch in made for line in batch.lines] == list(range(len(store)))
    assert [row for batch in made for row in rows(batch, "source")] == [
        [*store.source.line_ids(line), END] for line in range(len(store))
    ]
    assert sorted(line for batch in batches.one_epoch(sort=True) for line in batch.lines) == list(range(len(store)))
    assert batches.position() == position


def test_sampling_changes_the_tokens_but_not_the_text(store: Store, tokenizer: Tokenizer) -> None:
    def sampled(seed: int, epoch: int, **other: Any) -> dict[int, tuple[list[int], list[int]]]:
        sampling = Sampling(0.3, tokenizer, tokenizer)
        batches = begun(Batches(store, batch_tokens=500, seed=seed, sampling=sampling, **other), epoch)
        return {
            line: (source, target)
            for batch in epoch_of(batches)
            for line, source, target in zip(
                batch.lines.tolist(), rows(batch, "source"), rows(batch, "target_output"), strict=True
            )
        }

    found = sampled(1, 0)
    for line, (source, target) in found.items():
        assert tokenizer.decode(source) == store.source.text(line)
        assert tokenizer.decode(target) == store.target.text(line)
    plain = [line for line in found if found[line][0] == [*store.source.line_ids(line), END]]
    assert len(plain) < len(store) / 2
    assert sampled(1, 0, pool=50, layout="packed") == found, "a line's tokens do not depend on how lines are batched"
    for other in (sampled(1, 1), sampled(2, 0)):
        assert sum(other[line] != found[line] for line in found) > len(store) / 2
    alike = [line for line in found if store.source.text(line) == store.target.text(line)]
    assert all(found[line][0] != found[line][1] for line in alike if len(store.source.text(line)) > 50)


@settings(deadline=None)
@given(n=st.integers(1, 3000), key=st.integers(0, 2**64 - 1))
def test_the_permutation_is_one(n: int, key: int) -> None:
    places = np.arange(n)
    lines = _permuted(places, n, key)
    assert np.array_equal(np.sort(lines), places)
    assert np.array_equal(_permuted(places[n // 3 : n // 2], n, key), lines[n // 3 : n // 2]), "a part needs no other"


def test_the_permutation_looks_random() -> None:
    n, trials = 40, 4000
    counts = np.zeros((n, n))
    for key in range(trials):
        counts[np.arange(n), _permuted(np.arange(n), n, key * 7919)] += 1
    expected = trials / n
    # Chi-square with (n - 1)^2 degrees of freedom: mean 1521, standard deviation 55.
    assert abs(((counts - expected) ** 2 / expected).sum() - (n - 1) ** 2) < 5 * 55


@pytest.mark.parametrize(
    "position",
    [
        {"epoch": 0, "pool": 0},
        {"epoch": -1, "pool": 0, "batch": 0},
        {"epoch": 0, "pool": 99, "batch": 0},
        {"epoch": 0, "pool": 0, "batch": 10_000},
        {"epoch": 0, "pool": 0, "batch": -1},
    ],
)
def test_a_position_that_is_not_there_is_refused(store: Store, position: dict[str, int]) -> None:
    batches = Batches(store, batch_tokens=300)
    next(batches)
    before = batches.position()
    with pytest.raises(DataError, match="position"):
        batches.seek(position)
    assert batches.position() == before


@pytest.mark.parametrize(
    "wrong", [{"batch_tokens": 0}, {"pool": 0}, {"layout": "square"}], ids=lambda wrong: next(iter(wrong))
)
def test_wrong_settings_are_refused(store: Store, wrong: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=next(iter(wrong))):
        Batches(store, **{"batch_tokens": 100, **wrong})


def test_batches_made_ahead_are_the_same_and_their_position_is_the_readers(store: Store) -> None:
    def new() -> Batches:
        return Batches(store, batch_tokens=300, seed=3, pool=90)

    plain, ahead = new(), Prefetcher(new(), depth=3)
    for _ in range(40):
        assert ahead.position() == plain.position()
        assert ahead.epoch == plain.epoch
        assert next(ahead).lines.tolist() == next(plain).lines.tolist()
    held = ahead.position()
    left = [next(ahead).lines.tolist() for _ in range(5)]
    ahead.seek(held)
    assert [next(ahead).lines.tolist() for _ in range(5)] == left
    after = ahead.position()
    ahead.close()
    assert ahead.position() == after
    ahead.seek(held)
    ahead.close()
    assert [next(ahead).lines.tolist() for _ in range(5)] == left
    ahead.close()


def test_what_fails_in_the_thread_is_raised_where_the_batch_is_wanted(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = Batches(store, batch_tokens=300, pool=90)
    ahead = Prefetcher(batches)
    next(ahead)

    def broken(epoch: int, pool: int) -> Any:
        raise DataError("the disk is gone")

    monkeypatch.setattr(batches, "_planned", broken)
    with pytest.raises(DataError, match="the disk is gone"):
        list(islice(ahead, 1000))


@pytest.mark.skipif("REGARD_DATA" not in os.environ, reason="needs REGARD_DATA, a directory with multi30k/ in it")
def test_real_batches_are_full(tmp_path: Path) -> None:
    data = Path(os.environ["REGARD_DATA"]) / "multi30k"
    pairs = list(read_pairs(data / "train.en.gz", data / "train.de.gz"))
    tokenizer = Tokenizer.train((line for pair in pairs for line in pair), size=8000)
    store = Store.build(tmp_path / "s", pairs, tokenizer, tokenizer, Filters(), "f")
    for layout, least in (("padded", 0.9), ("packed", 1.0)):
        made = list(epoch_of(Batches(store, batch_tokens=4096, layout=layout)))  # type: ignore[arg-type]
        tokens = sum(batch.source_tokens + batch.target_tokens for batch in made)
        assert tokens / sum(batch.source.size + batch.target_input.size for batch in made) >= least
        assert tokens / (2 * len(made)) > 0.8 * 4096


def test_a_line_drawn_longer_than_a_model_takes_keeps_its_tokens(store: Store, tokenizer: Tokenizer) -> None:
    longest = int(store.source.lengths.max()) + 1, int(store.target.lengths.max()) + 1
    free, bound = (
        Batches(store, batch_tokens=4000, seed=1, sampling=Sampling(0.9, tokenizer, tokenizer, most))
        for most in ((0, 0), longest)
    )
    assert max(batch.source_lengths.max() for batch in epoch_of(free)) > longest[0]
    kept = 0
    for batch in epoch_of(bound):
        assert batch.source_lengths.max() <= longest[0]
        assert batch.target_lengths.max() <= longest[1]
        kept += sum(
            row == [*store.source.line_ids(line), END]
            for line, row in zip(batch.lines.tolist(), rows(batch, "source"), strict=True)
        )
    assert 0 < kept < len(store)
