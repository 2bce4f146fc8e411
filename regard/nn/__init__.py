"""Parts of networks."""

from .dropout import Dropout
from .embedding import Embedding, look_up
from .feedforward import ACTIVATIONS, GATES, FeedForward, GatedFeedForward
from .layout import Layout, Packed, Padded, whole
from .residual import NORM_KINDS, NORMS, BatchNorm, LayerNorm, PostNorm, PreNorm, RMSNorm, Unnormed
from .state import Cache, KeysValues, State

__all__ = [
    "ACTIVATIONS",
    "GATES",
    "NORMS",
    "NORM_KINDS",
    "BatchNorm",
    "Cache",
    "Dropout",
    "Embedding",
    "FeedForward",
    "GatedFeedForward",
    "KeysValues",
    "LayerNorm",
    "Layout",
    "Packed",
    "Padded",
    "PostNorm",
    "PreNorm",
    "RMSNorm",
    "State",
    "Unnormed",
    "look_up",
    "whole",
]
