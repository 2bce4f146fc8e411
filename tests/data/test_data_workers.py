"""Encoding over several processes: the same files as by one, and nothing left when it ends early."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from regard.data import shards
from regard.data.store import Store
from regard.errors import DataError, TextError
from regard.settings import Filters
from regard.text import Tokenizer, write_lines
from regard.text.lines import read_pairs

Pair = tuple[str, str]
WORDS = ["the", "old", "man", "sees", "a", "young", "dog", "in", "der", "Stadt", "und", "kauft", "Äpfel", "你好"]
STRICT = Filters(max_length=60, max_ratio=6, drop_duplicates=True, drop_identical=True)


def some_pairs(count: int) -> list[Pair]:
    """Pairs of which some are empty, long, identical, and one in three occurs again later."""
    rng = random.Random(0)
    pairs: list[Pair] = []
    for _ in range(count):
        pair = tuple(" ".join(rng.choices(WORDS, k=rng.randint(0, 25))) for _ in "st")
        pairs.append((pair[0], rng.choice([pair[0], pair[1], pair[1], pair[1]])))
        if rng.random() < 0.3:
            pairs.append(rng.choice(pairs))
    return pairs


@pytest.fixture(scope="module")
def tokenizer() -> tuple[Tokenizer, Tokenizer]:
    pairs = some_pairs(300)
    made = [Tokenizer.train([pair[side] for pair in pairs], size=310, shrink=True) for side in (0, 1)]
    return made[0], made[1]


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "_LARGE", 5_000)


@pytest.mark.usefixtures("small_shards")
def test_the_store_is_the_same_however_many_made_it(tmp_path: Path, tokenizer: tuple[Tokenizer, Tokenizer]) -> None:
    pairs = some_pairs(1500)
    told: dict[int, list[int]] = {}

    def build(workers: int) -> Store:
        told[workers] = []
        return Store.build(
            tmp_path / str(workers),
            (pair if "你好 a" not in pair[0] else None for pair in pairs),
            *tokenizer,
            STRICT,
            "f",
            workers=workers,
            progress=lambda _, count: told[workers].append(count),
        )

    one, several = build(1), build(2)
    names = sorted(path.name for path in one.path.iterdir())
    assert len(names) > 10
    assert names == sorted(path.name for path in several.path.iterdir())
    for name in names:
        assert (several.path / name).read_bytes() == (one.path / name).read_bytes(), name
    assert set(one.report.dropped) == {"empty", "identical", "long", "ratio", "duplicate"}
    assert str(several.report) == str(one.report)
    assert told[2] == sorted(told[2])
    assert told[2][-1] == told[1][-1] == one.report.read
    kept = [(one.source.text(line), one.target.text(line)) for line in range(len(one))]
    assert len(set(kept)) == len(kept)
    assert kept == sorted(kept, key=pairs.index), "in order, and each where it first stood"
    reasons = one.report.examples
    assert pairs.index(pairs[reasons["duplicate"] - 1]) < reasons["duplicate"] - 1
    assert not all(pairs[reasons["empty"] - 1])


@pytest.mark.usefixtures("small_shards")
def test_a_corpus_of_one_shard_needs_no_processes(
    tmp_path: Path, tokenizer: tuple[Tokenizer, Tokenizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("regard.data.shards.get_context")
    assert len(Store.build(tmp_path / "s", some_pairs(20), *tokenizer, Filters(), "f", workers=8)) > 5


@pytest.mark.usefixtures("small_shards")
def test_bad_text_and_a_worker_that_is_killed_are_told(tmp_path: Path, tokenizer: tuple[Tokenizer, Tokenizer]) -> None:
    lines = [" ".join(WORDS)] * 400
    for name in ("good", "bad"):
        write_lines(tmp_path / name, lines)
    with (tmp_path / "bad").open("ab") as stream:
        stream.write(b"\xff\n")

    def killing() -> Iterator[Pair]:
        for number, pair in enumerate(some_pairs(600)):
            if number == 400:
                multiprocessing.active_children()[0].kill()
            yield pair

    place = tmp_path / "store" / "s"
    for pairs, kind, words in (
        (read_pairs(tmp_path / "bad", tmp_path / "good"), TextError, "bad: line 401 is not UTF-8: byte 0xFF"),
        (killing(), DataError, "killed by signal 9.*fewer workers"),
    ):
        with pytest.raises(kind, match=words):
            Store.build(place, pairs, *tokenizer, Filters(), "f", workers=2)
        assert list(place.parent.iterdir()) == []
        assert multiprocessing.active_children() == []


SCRIPT = """
import fcntl, os, signal, sys, time

# What a shell starts in the background is born deaf to Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

from regard.apps.cli import main
from regard.data import shards

# The workers read this file too: they never come to an end with a shard, and each holds a lock as long as it lives.
shards._LARGE = 1000

def encode(self, number, raw, tell):
    mark = open(self.folder.parent.parent.parent / f"worker-{os.getpid()}.mark", "w")
    fcntl.flock(mark, fcntl.LOCK_EX)
    while True:
        tell(0)
        time.sleep(0.02)

shards.Encoder.encode = encode

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
"""


def lives(mark: Path) -> bool:
    with mark.open() as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_stopping_stops_every_worker(tmp_path: Path, stop: signal.Signals) -> None:
    lines = [pair[0] or "x" for pair in some_pairs(200)]
    write_lines(tmp_path / "a", lines)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(f'[data]\nsource = "{tmp_path}/a"\ntarget = "{tmp_path}/a"\n[text]\nsize = 300\nshrink = true\n')
    (tmp_path / "script.py").write_text(SCRIPT)
    out = tmp_path / "run"
    command = ["prepare", str(recipe), "--out", str(out), "--workers", "2"]
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py"), *command],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a process group of its own, like the one that a terminal sends Ctrl-C to
    )

    marks: list[Path] = []
    limit = time.monotonic() + 240
    while len(marks) < 2 or not all(map(lives, marks)):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < limit
        time.sleep(0.02)
        marks = list(tmp_path.glob("worker-*.mark"))
    if stop == signal.SIGINT:
        os.killpg(process.pid, stop)
    else:
        process.send_signal(stop)
    said = process.communicate(timeout=120)[1]
    assert process.returncode == (130 if stop == signal.SIGINT else -stop)
    assert "Traceback" not in said
    while any(map(lives, marks)):
        assert time.monotonic() < limit, "a worker goes on"
        time.sleep(0.02)

    assert not (out / "prepared" / "train").exists()
    assert bool(list((out / "prepared").glob(".train.*.part"))) == (stop == signal.SIGKILL)
    if stop == signal.SIGKILL:
        again = subprocess.run([sys.executable, "-m", "regard", *command], capture_output=True, text=True, timeout=240)
        assert again.returncode == 0, again.stderr
        assert not list((out / "prepared").glob(".*"))
