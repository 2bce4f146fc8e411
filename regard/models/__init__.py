"""Model families: one page each, one line here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import bahdanau, convs2s, luong, seq2seq, transformer
from .interface import EncoderDecoder
from .transformer import TransformerConfig, parameter_count

__all__ = ["MODELS", "EncoderDecoder", "TransformerConfig", "parameter_count"]

MODELS: dict[str, tuple[type[Any], Callable[..., Any]]] = {
    "transformer": (TransformerConfig, transformer.build),
    "seq2seq": (seq2seq.Seq2SeqConfig, seq2seq.build),
    "bahdanau": (bahdanau.BahdanauConfig, bahdanau.build),
    "luong": (luong.LuongConfig, luong.build),
    "convs2s": (convs2s.ConvS2SConfig, convs2s.build),
}
"""Family -> its config and its builder."""
