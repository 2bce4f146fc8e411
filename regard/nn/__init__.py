"""Parts of networks; those that a part or a family of one's own is made with can be had from here."""

from .layers import ACTIVATIONS, NORM_KINDS, Norm
from .state import Observer, Padded, whole

__all__ = ["ACTIVATIONS", "NORM_KINDS", "Norm", "Observer", "Padded", "whole"]
