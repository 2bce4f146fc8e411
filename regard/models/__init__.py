"""Model families: one page each, one line here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import convs2s, transformer
from .interface import EncoderDecoder
from .transformer import TransformerConfig, parameter_count

__all__ = ["MODELS", "EncoderDecoder", "TransformerConfig", "parameter_count"]

MODELS: dict[str, tuple[type[Any], Callable[..., Any]]] = {
    "transformer": (TransformerConfig, transformer.build),
    "convs2s": (convs2s.ConvS2SConfig, convs2s.build),
}
"""Family -> its config and its builder."""
