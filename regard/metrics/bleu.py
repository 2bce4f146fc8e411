"""BLEU (Papineni et al. 2002) of detokenised, cased text through sacrebleu.

Tokenised by 13a, the standard for text with spaces; Chinese by `zh`; Japanese and Korean by MeCab where sacrebleu's
extra for it is installed, else by `char`. The signature always says which.
"""

from __future__ import annotations

from typing import Any

from sacrebleu.metrics.bleu import BLEU

from .languages import CHINESE, primary
from .sacre import SacreMetric

__all__ = ["BY_MORPHEME", "bleu", "tokenizer_for"]

BY_MORPHEME = {"ja": "ja-mecab", "ko": "ko-mecab"}


def tokenizer_for(language: str) -> str:
    """sacrebleu's tokenizer for a target language code ("zh-TW" counts as "zh"; "" and unlisted codes give 13a)."""
    code = primary(language)
    if code in CHINESE:
        return "zh"
    if code not in BY_MORPHEME:
        return "13a"
    try:
        BLEU(tokenize=BY_MORPHEME[code])
    except (ImportError, RuntimeError):  # what sacrebleu raises without MeCab and its dictionary
        return "char"
    return BY_MORPHEME[code]


def _make(language: str) -> BLEU:
    return BLEU(tokenize=tokenizer_for(language))


def _detail(result: Any) -> dict[str, Any]:
    return {
        "precisions": [float(p) for p in result.precisions],
        "brevity_penalty": float(result.bp),
        "hypothesis_tokens": int(result.sys_len),
        "reference_tokens": int(result.ref_len),
    }


bleu = SacreMetric("BLEU", "points of 100", _make, _detail)
