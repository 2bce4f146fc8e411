"""Compare, weigh, mix."""

from .core import attend, mix, softmax, weigh
from .masks import Both, Causal, Lengths, Mask, Window
from .multihead import MultiHead
from .scores import SCORES, Dot, ScaledDot, Score

__all__ = [
    "SCORES",
    "Both",
    "Causal",
    "Dot",
    "Lengths",
    "Mask",
    "MultiHead",
    "ScaledDot",
    "Score",
    "Window",
    "attend",
    "mix",
    "softmax",
    "weigh",
]
