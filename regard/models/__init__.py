"""Model families: one page each, one line here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import bahdanau, bert, convs2s, gpt, lstmn, luong, mask_predict, self_attentive, seq2seq, transformer
from .interface import EncoderDecoder, Kind
from .transformer import TransformerConfig, parameter_count

__all__ = ["KINDS", "MODELS", "EncoderDecoder", "Kind", "TransformerConfig", "parameter_count"]

MODELS: dict[str, tuple[type[Any], Callable[..., Any]]] = {
    "transformer": (TransformerConfig, transformer.build),
    "seq2seq": (seq2seq.Seq2SeqConfig, seq2seq.build),
    "bahdanau": (bahdanau.BahdanauConfig, bahdanau.build),
    "luong": (luong.LuongConfig, luong.build),
    "convs2s": (convs2s.ConvS2SConfig, convs2s.build),
    "lstmn-translator": (lstmn.LSTMNTranslatorConfig, lstmn.build_translator),
    "lstmn": (lstmn.LSTMNConfig, lstmn.build),
    "mask-predict": (mask_predict.MaskPredictConfig, mask_predict.build),
    "self-attentive": (self_attentive.SelfAttentiveConfig, self_attentive.build),
    "gpt": (gpt.GPTConfig, gpt.build),
    "bert": (bert.BERTConfig, bert.build),
    "bert-classifier": (bert.BERTClassifierConfig, bert.build_classifier),
}
"""Family -> its config and its builder."""

KINDS: dict[str, Kind] = {
    "mask-predict": "mask-predictor",
    "lstmn": "language-model",
    "self-attentive": "classifier",
    "gpt": "language-model",
    "bert": "reader",
    "bert-classifier": "classifier",
}
"""Family -> what it is, where it is no encoder-decoder."""
