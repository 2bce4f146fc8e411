"""Compare, weigh, mix."""

from .core import attend, mix, softmax, weigh
from .masks import AndMask, Causal, Lengths, Mask, Window
from .multihead import MultiHead
from .normalize import NORMALIZERS, Normalizer
from .scores import SCORES, Dot, ScaledDot, Score

__all__ = [
    "NORMALIZERS",
    "SCORES",
    "AndMask",
    "Causal",
    "Dot",
    "Lengths",
    "Mask",
    "MultiHead",
    "Normalizer",
    "ScaledDot",
    "Score",
    "Window",
    "attend",
    "mix",
    "softmax",
    "weigh",
]
