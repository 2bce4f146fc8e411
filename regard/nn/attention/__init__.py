"""Compare, weigh, mix."""

from .core import NORMALIZERS, AndMask, Causal, Lengths, Mask, Normalizer, Window, attend, mix, softmax, weigh
from .luong import LuongAttention
from .multihead import Heads, MultiHead
from .scores import SCORES, Dot, ScaledDot, Score

__all__ = ["NORMALIZERS", "SCORES", "AndMask", "Causal", "Dot", "Heads", "Lengths", "LuongAttention", "Mask"]
__all__ += ["MultiHead", "Normalizer", "ScaledDot", "Score", "Window", "attend", "mix", "softmax", "weigh"]
