"""Drawn segmentations: what SentencePiece gives where nothing is random, its probabilities where something is."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from math import exp
from pathlib import Path
from random import Random

import pytest
from bundles import ENGLISH, GERMAN
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.text import TextConfig, Tokenizer

LINES = [*ENGLISH, *GERMAN]
MODELS = {
    (kind, fallback): Tokenizer.train(
        LINES,
        size=400 if fallback else 150,
        kind=kind,
        settings=TextConfig(byte_fallback=fallback),
        symbols=["<2de>", "<2zh>"],
        shrink=True,
    )
    for kind in ("bpe", "unigram")
    for fallback in (True, False)
}
texts = st.one_of(
    st.text(max_size=40),
    st.lists(st.sampled_from([*"abehimnors Aäß日", "  ", "<2de>", "<2", "▁", "the", "ein"])).map("".join),
)


@settings(deadline=None)
@given(line=texts, fallback=st.booleans())
def test_bpe_that_leaves_nothing_out_is_sentencepieces(line: str, fallback: bool) -> None:
    tokenizer = MODELS["bpe", fallback]
    assert tokenizer.sample(line, alpha=0.0, seed=1) == tokenizer.encode(line)


@settings(deadline=None)
@given(line=texts, fallback=st.booleans())
def test_unigram_that_wants_the_likeliest_is_as_likely_as_sentencepieces(line: str, fallback: bool) -> None:
    tokenizer = MODELS["unigram", fallback]

    def likelihood(ids: list[int]) -> float:
        return sum(tokenizer._processor.get_score(i) for i in ids if i > 3)

    drawn, best = tokenizer.sample(line, alpha=1e6, seed=1), tokenizer.encode(line)
    assert tokenizer.decode(drawn) == tokenizer.decode(best)
    assert likelihood(drawn) == pytest.approx(likelihood(best), abs=1e-3)


@pytest.mark.parametrize("alpha", [0.2, 1.0])
def test_unigram_draws_by_probability(alpha: float) -> None:
    tokenizer = MODELS["unigram", True]
    line, draws = "and he", 6000
    all_of_them = tokenizer._processor.nbest_encode(line, nbest_size=500)
    assert len(all_of_them) < 500
    weights = {tuple(ids): exp(alpha * sum(tokenizer._processor.get_score(i) for i in ids)) for ids in all_of_them}
    found = Counter(tuple(tokenizer.sample(line, alpha=alpha, seed=seed)) for seed in range(draws))
    assert found.keys() <= weights.keys()
    total = sum(weights.values())
    for ids, weight in weights.items():
        expected = draws * weight / total
        assert abs(found[ids] - expected) < 5 * max(1.0, expected) ** 0.5 + 2


def test_bpe_leaves_out_its_share_of_merges() -> None:
    tokenizer = MODELS["bpe", True]
    characters, merged = len(tokenizer.sample("woman", alpha=1.0, seed=1)), len(tokenizer.encode("woman"))
    assert characters == 6  # with the space before it
    mean = sum(len(tokenizer.sample("woman", alpha=0.1, seed=seed)) for seed in range(2000)) / 2000
    assert merged < mean < characters


def _as_in_the_paper(word: str, scores: dict[str, float], alpha: float, draw: Callable[[], float]) -> tuple[str, ...]:
    """Provilkov et al. 2020, algorithm 1, as it is written there."""
    tokens = list(word)
    while True:
        pairs = [(-scores[a + b], i) for i, (a, b) in enumerate(pairwise(tokens)) if a + b in scores]
        kept = [pair for pair in pairs if draw() >= alpha]
        if not kept:
            return tuple(tokens)
        place = min(kept)[1]
        tokens[place : place + 2] = ["".join(tokens[place : place + 2])]


def test_bpe_leaves_merges_out_as_the_paper_does() -> None:
    sampler = MODELS["bpe", True]._sampler
    words = sorted((token for token in sampler._scores if token[0] == "▁"), key=len)[-3:]
    draws, alpha = 4000, 0.3
    for word in words:
        assert len(word) > 5
        wanted, found = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
        for seed in range(draws):
            wanted[_as_in_the_paper(word, sampler._scores, alpha, Random(seed).random)] += 1
            found[tuple(sampler._bpe(word, alpha, Random(seed + draws).random))] += 1
        for tokens in wanted.keys() | found.keys():
            assert abs(wanted[tokens] - found[tokens]) < 5 * (wanted[tokens] + found[tokens]) ** 0.5 + 2
    line = "".join(words)
    assert {"".join(sampler._bpe(line, alpha, Random(seed).random)) for seed in range(50)} == {line}


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_another_process_draws_the_same(kind: str, tmp_path: Path) -> None:
    """What SentencePiece's own generator does not promise, and resuming depends on."""
    tokenizer = MODELS[kind, True]
    tokenizer.save(tmp_path / "model")
    program = (
        "import sys; from regard.text import Tokenizer; s = Tokenizer.load(sys.argv[1]); "
        "print([s.sample(line, alpha=0.2, seed=n) for n, line in enumerate(sys.argv[2:])])"
    )
    said = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "model"), *LINES], capture_output=True, check=True, text=True
    )
    assert said.stdout.strip() == str([tokenizer.sample(line, alpha=0.2, seed=n) for n, line in enumerate(LINES)])
