"""Codes of languages: every ISO 639 form of one is that one, for whoever asks."""

from __future__ import annotations

import pytest

from regard.metrics import score
from regard.metrics.sacre import tokenizer_for
from regard.text.languages import matches, name, primary
from regard.text.lines import is_code


@pytest.mark.parametrize(
    ("forms", "code"),
    [
        ("ja jpn JA ja-JP ja_JP", "ja"),
        ("ko kor ko-KR", "ko"),
        ("zh zho chi cmn zh-Hant ZH_tw", "zh"),
        ("de deu ger de-AT", "de"),
        ("fr fra fre", "fr"),
        ("en eng EN_us", "en"),
        ("nl nld dut", "nl"),
        ("cs ces cze", "cs"),
        ("lzh", "lzh"),
        ("xyz", "xyz"),
        ("", ""),
    ],
)
def test_every_form_of_a_code_is_the_shortest(forms: str, code: str) -> None:
    assert {primary(form) for form in forms.split() or [""]} == {code}


@pytest.mark.parametrize("forms", ["ja jpn", "ko kor", "zh zho chi cmn lzh"])
def test_scores_do_not_depend_on_how_the_language_is_written(forms: str) -> None:
    # As one word without spaces, what is nearly right would count for nothing.
    hypotheses, references = (
        ["今日は天気がとても良いですね。", "我喜欢吃苹果和香蕉。"],
        ["今日は天気が良いですね。", "我喜欢吃苹果。"],
    )
    found = [
        {
            name: value.value
            for name, value in score(hypotheses, references, ["bleu", "ter"], language=form, resamples=0).items()
        }
        for form in forms.split()
    ]
    assert all(each == found[0] for each in found)
    assert found[0]["bleu"] > 20
    assert {tokenizer_for(form) for form in forms.split()} != {"13a"}


def test_which_text_is_in_a_language() -> None:
    assert matches("de-AT", "de")
    assert matches("deu", "de-AT") is False
    assert matches("zh-Hant-TW", "zh-Hant")
    assert not matches("den", "de")
    assert name("deu") == "German"


def test_what_has_the_form_of_a_code() -> None:
    assert all(map(is_code, ("de", "zh-Hant", "pt_BR", "x-klingon"[2:])))
    assert not any(map(is_code, ("", "d", "<img onerror=x>", "de en", "de\n")))
