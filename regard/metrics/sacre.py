"""BLEU, chrF and TER of detokenised, cased text through sacrebleu (Post 2018), with its signatures.

BLEU (Papineni et al. 2002) is tokenised by 13a, the standard for text with spaces; Chinese by `zh`; Japanese and Korean
by MeCab where sacrebleu's extra for it is installed, else by `char`. chrF (Popović 2015) is F2 of character 1- to
6-grams; chrF++ (2017) adds words and word pairs. TER (Snover et al. 2006) counts edits and shifts for each hundred
reference words; Chinese and Japanese are split into characters first, or a sentence would be one word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.errors import DataError, install
from regard.text import languages

from .result import Counts, Metric, Values

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric as Implementation

_BY_MORPHEME = {"ja": "ja-mecab", "ko": "ko-mecab"}


def made(name: str, **settings: object) -> Implementation:
    """sacrebleu's metric of this name; DataError where the package is not installed, since translating needs none."""
    try:
        from sacrebleu import metrics
    except ModuleNotFoundError:
        raise DataError(f"{name} needs sacrebleu, which is not installed: {install('metrics')}.") from None
    made: Implementation = getattr(metrics, name)(**settings)
    return made


def primary(language: str) -> str:
    """A language code as metrics read it, without region or script: "zh-TW", "ZH", "zho" and "lzh" are all "zh"."""
    code = languages.primary(language)
    return "zh" if code in languages.CHINESE else code


def tokenizer_for(language: str) -> str:
    """The name of sacrebleu's tokenizer for a target language code ("" and unlisted codes give 13a)."""
    code = primary(language)
    if code not in _BY_MORPHEME:
        return "zh" if code == "zh" else "13a"
    try:
        made("BLEU", tokenize=_BY_MORPHEME[code])
    except (ImportError, RuntimeError):  # what sacrebleu raises without MeCab and its dictionary
        return "char"
    return _BY_MORPHEME[code]


def likeness(name: str, language: str = "") -> Callable[[str, str], float]:
    """utility(hypothesis, reference) of two sentences, out of 100, by which minimum Bayes risk compares outputs.

    chrF, or BLEU of the n-grams that so short a text has (effective order).
    """
    metric = made("CHRF") if name == "chrf" else made("BLEU", tokenize=tokenizer_for(language), effective_order=True)
    return lambda hypothesis, reference: float(metric.sentence_score(hypothesis, [reference]).score)


def counting(
    make: Callable[[str], Implementation], detail: Callable[[Any], dict[str, object]]
) -> Callable[[Sequence[str], list[list[str]], str], Counts]:
    """A metric's `count`: `make(language)` gives sacrebleu's metric, `detail(result)` the figures worth keeping."""

    def count(hypotheses: Sequence[str], sets: list[list[str]], language: str) -> Counts:
        metric = make(language)
        # sacrebleu has no public way to its statistics of single lines, the sums of which it scores; its own paired
        # test calls these two methods, and tests/metrics/test_metrics_sacre.py holds the figures equal to corpus_score.
        each = np.array(metric._extract_corpus_statistics(list(hypotheses), sets), dtype=np.float64)

        def result(sums: Values) -> Any:
            return metric._compute_score_from_stats(list(sums))

        signature = str(metric.get_signature())
        return Counts(each, lambda sums: float(result(sums).score), signature, detail(result(each.sum(axis=0))))

    return count


def _ter(language: str) -> Implementation:
    unspaced = primary(language) in ("zh", "ja")
    return made("TER", normalized=unspaced, asian_support=unspaced)


def of_bleu(result: Any) -> dict[str, object]:
    return {
        "precisions": [float(p) for p in result.precisions],
        "brevity_penalty": float(result.bp),
        "hypothesis_tokens": int(result.sys_len),
        "reference_tokens": int(result.ref_len),
    }


def _of_chrf(result: Any) -> dict[str, object]:
    return {"beta": int(result.beta)}


def _of_ter(result: Any) -> dict[str, object]:
    return {"edits": int(result.num_edits), "reference_words": float(result.ref_length)}


POINTS, _EDITS = "points of 100", "edits per 100 reference words"
_bleu = counting(lambda code: made("BLEU", tokenize=tokenizer_for(code)), of_bleu)
bleu = Metric("BLEU", _bleu, POINTS, default=True)
chrf = Metric("chrF", counting(lambda _: made("CHRF"), _of_chrf), POINTS, default=True)
chrf_plus_plus = Metric("chrF++", counting(lambda _: made("CHRF", word_order=2), _of_chrf), POINTS)
ter = Metric("TER", counting(_ter, _of_ter), _EDITS, higher_is_better=False, default=True)
