"""Parts of networks."""

from .dropout import Dropout
from .embedding import Embedding, look_up
from .feedforward import ACTIVATIONS, GATES, FeedForward, GatedFeedForward
from .layout import Layout, Packed, Padded, whole
from .residual import NORM_KINDS, NORMS, BatchNorm, Identity, LayerNorm, Norm, PostNorm, PreNorm, RMSNorm
from .state import AuxiliaryLoss, Cache, KeysValues, Observer, Part, State, wanted

__all__ = [
    "ACTIVATIONS",
    "GATES",
    "NORMS",
    "NORM_KINDS",
    "AuxiliaryLoss",
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
    "Norm",
    "Observer",
    "Packed",
    "Padded",
    "Part",
    "PostNorm",
    "PreNorm",
    "RMSNorm",
    "State",
    "look_up",
    "wanted",
    "whole",
]
