"""Compare, weigh, mix."""

from .core import AndMask, Causal, Lengths, Mask, Window, attend, mix, softmax, weigh
from .luong import LuongAttention
from .multihead import Heads, MultiHead
from .normalize import NORMALIZERS, Normalizer
from .scores import SCORES, Dot, ScaledDot, Score

__all__ = ["NORMALIZERS", "SCORES", "AndMask", "Causal", "Dot", "Heads", "Lengths", "LuongAttention", "Mask"]
__all__ += ["MultiHead", "Normalizer", "ScaledDot", "Score", "Window", "attend", "mix", "softmax", "weigh"]
