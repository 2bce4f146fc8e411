"""Position schemes, by where they act."""

from .added import POSITIONS, Learned, Nowhere, Sinusoidal, SinusoidalHalves, sinusoids

__all__ = ["POSITIONS", "Learned", "Nowhere", "Sinusoidal", "SinusoidalHalves", "sinusoids"]
