"""Parts of networks."""

from .dropout import Dropout
from .embedding import Embedding, look_up
from .feedforward import ACTIVATIONS, GATES, FeedForward, GatedFeedForward
from .layout import Layout, Packed, Padded, whole
from .residual import NORM_KINDS, NORMS, BatchNorm, Identity, LayerNorm, PostNorm, PreNorm, RMSNorm
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
    "Identity",
    "KeysValues",
    "LayerNorm",
    "Layout",
    "Packed",
    "Padded",
    "PostNorm",
    "PreNorm",
    "RMSNorm",
    "State",
    "look_up",
    "whole",
]
