"""Position schemes, by where they act: added to the embeddings, added to the scores, or turning queries and keys."""

from .added import POSITIONS, Learned, Nowhere, Sinusoidal, SinusoidalHalves, sinusoids
from .bias import BIASES, Bias, biases
from .rotary import TURNS, Rotary

__all__ = [
    "BIASES",
    "POSITIONS",
    "TURNS",
    "Bias",
    "Learned",
    "Nowhere",
    "Rotary",
    "Sinusoidal",
    "SinusoidalHalves",
    "biases",
    "sinusoids",
]
