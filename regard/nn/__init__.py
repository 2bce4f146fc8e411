"""Parts of networks."""

from .dropout import Dropout
from .embedding import look_up
from .feedforward import FeedForward
from .layout import Layout, Packed, Padded
from .residual import NORMS, LayerNorm, PostNorm, PreNorm
from .state import Cache, KeysValues, State

__all__ = [
    "NORMS",
    "Cache",
    "Dropout",
    "FeedForward",
    "KeysValues",
    "LayerNorm",
    "Layout",
    "Packed",
    "Padded",
    "PostNorm",
    "PreNorm",
    "State",
    "look_up",
]
