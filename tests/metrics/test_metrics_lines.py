"""ROUGE in every script, exact match, perplexity and the seeded bootstrap, against cases worked out by hand."""

from __future__ import annotations

import builtins
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer
from rouge_score.tokenize import tokenize

from regard.errors import DataError
from regard.metrics import exact_match, perplexity, rouge_1, rouge_2, rouge_l, score
from regard.metrics.lines import words
from regard.metrics.result import FEWEST, PICKS, interval_of, resampled, resamples_for, two_sided_p

ENGLISH = ["The cat sat on the mat.", "A quick brown fox, quicker than most."]
GUESSES = ["The cat is on a mat", "A quick brown dog"]


@pytest.mark.parametrize("language", ["en", "en-GB", ""])
@pytest.mark.parametrize(("ours", "kind"), [(rouge_1, "rouge1"), (rouge_2, "rouge2"), (rouge_l, "rougeL")])
def test_rouge_is_the_mean_of_rouge_score(ours, kind, language):
    scorer = RougeScorer([kind])
    each = [scorer.score(right, guess)[kind].fmeasure for right, guess in zip(ENGLISH, GUESSES, strict=True)]
    got = ours(GUESSES, ENGLISH, language=language, resamples=0)
    assert got.value == pytest.approx(100 * sum(each) / len(each))
    assert ("tok:rouge-score" if language else "tok:unicode") in got.signature


def test_rouge_by_hand():
    # 4 words each; "a b" and "d" in common and in order; one bigram of three in common
    got = score(["a b x d"], ["a b c d"], ["rouge"], resamples=0)
    assert got["rouge-1"].value == pytest.approx(75)
    assert got["rouge-2"].value == pytest.approx(100 / 3)
    assert got["rouge-l"].value == pytest.approx(75)


@pytest.mark.parametrize("language", ["", "zh", "zh-TW"])
def test_rouge_reads_chinese(language):
    got = score(["我喜欢黑猫。"], ["我喜欢白猫！"], ["rouge"], language=language, resamples=0)
    assert got["rouge-1"].value == pytest.approx(80)  # 4 of 5 characters
    assert got["rouge-2"].value == pytest.approx(50)  # 2 of 4 pairs
    assert got["rouge-l"].value == pytest.approx(80)
    assert "tok:unicode" in got["rouge-1"].signature
    assert rouge_1(["我喜欢黑猫。"], ["我喜欢白猫！"], language="en", resamples=0).value == 0  # what is avoided


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Das Mädchen läuft.", ["das", "mädchen", "läuft"]),
        ("l'été dernier", ["l", "été", "dernier"]),
        ("e\u0301te\u0301", ["\u00e9t\u00e9"]),  # decomposed and composed are one word
        ("2026年11月21日 PyTorch很好", ["2026", "年", "11", "月", "21", "日", "pytorch", "很", "好"]),
        ("カタカナ、ひらがな", list("カタカナひらがな")),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),  # vowel signs stay in the word
        ("𠀀𠀁", ["𠀀", "𠀁"]),
        ("a_b - \u0301 --", ["a", "b"]),
        ("", []),
    ],
)
def test_words(text, expected):
    assert words(text) == expected


@given(st.text(st.characters(max_codepoint=127)))
def test_words_of_ascii_are_those_of_rouge_score(text):
    assert words(text) == tokenize(text, None)


def test_rouge_takes_the_best_reference():
    assert rouge_1(["a b"], [["x y"], ["a b"]], resamples=0).value == 100


def test_rouge_missing_says_how_to_install(monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **named):
        if name.startswith("rouge_score"):
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(DataError, match=r"pip install '\.\[rouge\]'"):
        rouge_1(["a"], ["a"])


def test_exact_match_is_exact():
    hypotheses = ["6,50 €", "6,50 €", "é", "Tag", " Tag", ""]
    references = ["6,50 €", "6,50\u00a0€", "e\u0301", "tag", "Tag", ""]
    got = exact_match(hypotheses, references, resamples=0)
    assert got.value == pytest.approx(100 * 2 / 6)
    assert got.unit == "percent"
    assert exact_match(["b"], [["a"], ["b"]]).value == 100


def test_exact_match_interval():
    hypotheses = ["a"] * 90 + ["b"] * 10
    got = exact_match(hypotheses, ["a"] * 100)
    low, high = got.interval
    assert low < 90 < high
    # the binomial's own: 90 +- 1.96 * sqrt(0.9 * 0.1 / 100)
    assert (high - low) / 2 == pytest.approx(5.88, abs=1.5)
    assert "bs:1000|seed:12345" in got.signature
    assert exact_match(hypotheses, ["a"] * 100) == got


def means(values, resamples, seed):
    """The means of seeded resamples of the values."""
    return resampled(lambda rows: float(values[rows].mean()), len(values), resamples, seed)


def test_no_spread_no_width():
    assert interval_of(means(np.full(7, 3.0), 100, seed=0)) == (3.0, 3.0)


def test_interval_covers_the_mean_about_as_often_as_it_says():
    generator = np.random.default_rng(0)
    draws = [interval_of(means(generator.normal(1.0, 1.0, size=60), 200, seed=i)) for i in range(300)]
    covered = sum(low <= 1.0 <= high for low, high in draws) / len(draws)
    assert 0.90 <= covered <= 0.98  # 95 %, give or take three standard errors and what 60 lines and 200 draws cost


def test_equal_systems_are_told_apart_as_seldom_as_p_says():
    generator = np.random.default_rng(1)
    alarms = 0
    for i in range(600):
        difference = generator.normal(size=100)
        alarms += two_sided_p(means(difference, 200, seed=i), float(difference.mean())) < 0.05
    assert alarms / 600 <= 0.08  # 5 % and three standard errors; the count that bootstrap.py warns of gives 12 %


def test_p_by_hand():
    # centred on the observed 2: -3, 0, -1, 2 -> two of four are at least 2 in size
    assert two_sided_p(np.array([-1.0, 2.0, 1.0, 4.0]), 2.0) == pytest.approx(3 / 5)
    assert two_sided_p(np.zeros(99), 0.0) == 1
    assert two_sided_p(np.full(99, 5.0), 5.0) == pytest.approx(1 / 100)


def test_resamples_shrink_with_the_lines():
    assert resamples_for(1000, 1000) == 1000
    assert FEWEST <= resamples_for(200_000, 1000) < 1000
    assert resamples_for(PICKS, 1000) == 0
    assert resamples_for(10, 0) == 0


@pytest.mark.parametrize("unit", ["token", "word", "character"])
def test_perplexity_by_hand(unit):
    got = perplexity(8 * math.log(1 / 4), 8, unit)  # eight choices among four
    assert got.value == pytest.approx(4)
    assert got.unit == f"per {unit}"
    assert got.detail["bits"] == pytest.approx(2)
    assert got.signature == f"unit:{unit}|ends:yes"
    assert not got.higher_is_better


def test_perplexity_at_the_edges():
    assert perplexity(0.0, 1).value == 1
    assert perplexity(-1e6, 1).value == math.inf
    assert perplexity(-1.0, 2, ends_counted=False).signature.endswith("ends:no")


@pytest.mark.parametrize(
    ("total", "count", "said"), [(-1.0, 0, "undefined"), (0.5, 3, "0.5"), (math.nan, 3, "diverged")]
)
def test_perplexity_refuses_what_is_none(total, count, said):
    with pytest.raises(DataError, match=said):
        perplexity(total, count)
