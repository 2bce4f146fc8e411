"""BLEU, chrF and TER are sacrebleu's, figure and signature; the counts and names a user can get wrong are refused."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import _bootstrap_resample

from regard.errors import DataError
from regard.metrics import (
    METRICS,
    Metric,
    bleu,
    chrf,
    chrf_plus_plus,
    paired_bootstrap,
    rate,
    score,
    ter,
    tokenizer_for,
)

GERMAN = [
    "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche.",
    "Mehrere Männer mit Schutzhelmen bedienen ein Antriebsradsystem.",
    "Ein kleines Mädchen klettert in ein Spielhaus aus Holz.",
    'Ein Mann in einem blauen Hemd sagt: "Ich putze das Fenster, 3,5 m hoch."',
    "Zwei Männer stehen am Herd und bereiten Essen zu.",
]
CHINESE = [
    "两个年轻的白人男子在户外，靠近许多灌木丛。",
    "一个小女孩爬进了木制的玩具屋。",
    "2026年11月21日 星期六 下午6:05",
]
OF_TEXT = [name for name, metric in METRICS.items() if metric.reads == "text"]


def damaged(lines: list[str], seed: int, share: float = 0.2) -> list[str]:
    """The lines with some words left out, as a system's output would be."""
    draw = random.Random(seed)
    return [" ".join(w for w in line.split(" ") if draw.random() > share) for line in lines]


@pytest.mark.parametrize(
    ("name", "ours", "theirs"),
    [
        ("bleu", bleu, BLEU),
        ("chrf", chrf, CHRF),
        ("chrf++", chrf_plus_plus, lambda: CHRF(word_order=2)),
        ("ter", ter, TER),
    ],
)
def test_equal_to_a_direct_call_of_sacrebleu(name, ours, theirs):
    references = GERMAN * 8
    hypotheses = damaged(references, seed=1)
    metric = theirs()
    expected = metric.corpus_score(hypotheses, [references], n_bootstrap=200)
    got = ours(hypotheses, references, resamples=200)
    assert got.value == expected.score
    assert got.signature == str(metric.get_signature())
    assert "bs:200|seed:" in got.signature
    low, high = got.interval
    assert low < got.value < high
    # The percentiles of sacrebleu's own draws; its own interval is their mean and half the width, which may lie
    # outside of what the metric can be.
    _, draws = _bootstrap_resample(metric._extract_corpus_statistics(hypotheses, [references]), metric, 200)
    assert (low, high) == pytest.approx(tuple(np.percentile([draw.score for draw in draws], [2.5, 97.5])), abs=1e-5)
    assert (high - low) / 2 == pytest.approx(expected._ci, rel=0.1)
    assert got == METRICS[name](hypotheses, references, resamples=200)


def test_signature_without_resamples_is_the_plain_one():
    metric = BLEU()
    metric.corpus_score(GERMAN, [GERMAN])
    got = bleu(GERMAN, GERMAN, resamples=0)
    assert got.interval is None
    assert got.signature == str(metric.get_signature())
    assert got.signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")


def test_several_reference_sets():
    hypotheses = damaged(GERMAN, seed=2)
    sets = [damaged(GERMAN, seed=3), GERMAN]
    metric = BLEU()
    got = bleu(hypotheses, sets, resamples=0)
    assert got.value == metric.corpus_score(hypotheses, sets).score
    assert "nrefs:2" in got.signature


@pytest.mark.parametrize(
    ("language", "tokenizer"),
    [
        ("", "13a"),
        ("de", "13a"),
        ("en-GB", "13a"),
        ("zh", "zh"),
        ("zh_CN", "zh"),
        ("ZH-Hant", "zh"),
        ("lzh", "zh"),
        ("zho", "zh"),
    ],
)
def test_tokenizer_follows_the_target_language(language, tokenizer):
    assert tokenizer_for(language) == tokenizer


@pytest.mark.parametrize(
    ("language", "first"), [("ja", "ja-mecab"), ("ko", "ko-mecab"), ("jpn", "ja-mecab"), ("kor-KR", "ko-mecab")]
)
def test_japanese_and_korean_are_scored_with_or_without_mecab(language, first):
    assert tokenizer_for(language) in (first, "char")
    assert (
        f"tok:{tokenizer_for(language)}"
        in bleu(["猫が好きです。"], ["犬が好きです。"], language=language, resamples=0).signature
    )


def test_chinese_bleu_counts_characters():
    hypotheses = [line.replace("女", "男") for line in CHINESE]
    expected = BLEU(tokenize="zh").corpus_score(hypotheses, [CHINESE]).score
    got = bleu(hypotheses, CHINESE, language="zh", resamples=0)
    assert got.value == expected
    # 13a sees 7 words in these three lines; zh sees every character and digit group
    assert bleu(hypotheses, CHINESE, resamples=0).detail["reference_tokens"] == 7
    assert got.detail["reference_tokens"] > 40
    assert "tok:zh" in got.signature


def test_chinese_ter_edits_characters_not_whole_lines():
    got = ter(["我喜欢黑猫。"], ["我喜欢白猫。"], language="zh", resamples=0)
    assert "asian:yes" in got.signature
    assert got.detail["edits"] == 1
    assert got.value == pytest.approx(100 / got.detail["reference_words"])
    assert got.detail["reference_words"] == 6


@pytest.mark.parametrize("code", ["ja", "jpn", "JPN_JP"])
def test_every_code_of_japanese_is_scored_alike(code):
    hypotheses, references = ["猫が好きです。"] * 3, ["犬が好きです。"] * 3
    for metric in (bleu, ter):
        assert metric(hypotheses, references, language=code, resamples=0) == metric(
            hypotheses, references, language="ja", resamples=0
        )
    assert bleu(hypotheses, references, language=code, resamples=0).value > 0


@pytest.mark.parametrize("metric", OF_TEXT)
def test_no_interval_leaves_what_the_metric_can_be(metric):
    """Mean plus and minus half a width did: of these, BLEU 98.5 to 100.3."""
    hypotheses = ["a b c d e f g h", *["the cat sat on the mat and slept"] * 49]
    references = ["a b c d x f g h", *["the cat sat on the mat and slept"] * 49]
    low, high = METRICS[metric](hypotheses, references).interval
    assert 0 <= low <= high <= 100 + 1e-9  # sacrebleu rounds a BLEU of 100 in its last digit


def test_a_metric_of_a_users_own_is_one_entry(monkeypatch):
    def length_ratio(hypotheses, sets, language):
        return rate([len(h) for h in hypotheses], [len(r) for r in sets[0]], len(sets), "len:characters")

    monkeypatch.setitem(METRICS, "length", Metric("length ratio", length_ratio))
    (got,) = score(["abc", "d"], ["ab", "ef"], ["length"], resamples=100).values()
    assert got.value == 100
    assert got.signature == "nrefs:1|bs:100|seed:12345|len:characters"
    assert paired_bootstrap(["abc", "d"], ["ab", "e"], ["ab", "ef"], ["length"])["length"].difference == -25


@pytest.mark.parametrize(("name", "of"), [("perplexity", "probabilities"), ("brackets", "trees")])
def test_what_is_not_measured_on_text_says_on_what(name, of):
    with pytest.raises(DataError, match=f"measured on {of}"):
        score(["a"], ["a"], [name])


def test_perfect_and_hopeless():
    assert bleu(GERMAN, GERMAN, resamples=0).value == pytest.approx(100)
    assert ter(GERMAN, GERMAN, resamples=0).value == 0
    nothing = bleu([""] * 5, GERMAN, resamples=100)
    assert nothing.value == 0
    assert not ter.higher_is_better


def test_score_gives_what_was_asked_for_and_plain_json():
    got = score(GERMAN, GERMAN, ["bleu", "exact-match", "bleu"], resamples=100)
    assert list(got) == ["bleu", "exact-match"]
    again = json.loads(json.dumps({name: s.to_dict() for name, s in got.items()}))
    assert again["bleu"]["interval"] == [pytest.approx(100), pytest.approx(100)]
    assert "BLEU 100.00" in str(got["bleu"])
    assert "tok:13a" in str(got["bleu"])


@pytest.mark.parametrize(
    ("hypotheses", "references", "named"),
    [
        (["a", "b"], ["a"], ["2 hypotheses", "1 lines"]),
        (["a"], [["a"], ["a", "b"]], ["reference set 2", "2 lines"]),
        ([], [], ["nothing to score"]),
        ("a line", "a line", ["not one string"]),
    ],
)
@pytest.mark.parametrize("metric", OF_TEXT)
def test_bad_input_is_refused_by_every_metric(metric, hypotheses, references, named):
    for call in (
        lambda: score(hypotheses, references, [metric]),
        lambda: paired_bootstrap(hypotheses, hypotheses, references, [metric]),
    ):
        with pytest.raises(DataError) as caught:
            call()
        assert all(part in str(caught.value) for part in named)


def test_unknown_metric_names_the_known_ones():
    with pytest.raises(DataError, match=r"'blue'; choose from bleu, chrf"):
        score(["a"], ["a"], ["blue"])


def test_references_are_left_alone():
    references = ["  Spaces, “quotes” and\ttabs  "]
    kept = list(references)
    score(["x"], references, OF_TEXT, resamples=0)
    assert references == kept


@pytest.mark.parametrize("metric", OF_TEXT)
def test_paired_bootstrap_tells_systems_apart(metric):
    references = GERMAN * 12
    good = damaged(references, seed=4, share=0.02)
    bad = damaged(references, seed=5, share=0.4)
    (got,) = paired_bootstrap(bad, good, references, [metric], resamples=200).values()
    assert got.p_value < 0.05
    low, high = got.interval
    assert low < got.difference < high
    assert low * high > 0
    assert (got.difference > 0) == got.higher_is_better
    assert got.system == METRICS[metric](good, references, resamples=0).value
    assert "bs:200|seed:12345" in got.signature
    assert got == paired_bootstrap(bad, good, references, [metric], resamples=200)[metric]
    json.dumps(got.to_dict())


@pytest.mark.parametrize("metric", OF_TEXT)
def test_a_system_does_not_differ_from_itself(metric):
    hypotheses = damaged(GERMAN * 4, seed=6)
    (got,) = paired_bootstrap(hypotheses, hypotheses, GERMAN * 4, [metric], resamples=100).values()
    assert got.difference == 0
    assert got.interval == (0, 0)
    assert got.p_value == 1


@pytest.mark.parametrize("name", ["bleu", "chrf", "chrf++", "ter"])
def test_resamples_in_which_nothing_matches_are_counted_too(name):
    hypotheses, references = ["a cat sat"] + ["xxxx yyyy zzzz"] * 3, ["a cat sat", *["1 2 3 4 5"] * 3]
    found = score(hypotheses, references, [name])[name]
    assert found.interval is None or found.interval[0] < found.interval[1]
