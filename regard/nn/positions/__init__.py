"""Position schemes, by where they act: added to the embeddings, added to the scores, or turning queries and keys."""

from .added import POSITIONS, Learned, NoPosition, Sinusoidal, SinusoidalHalves, sinusoids
from .bias import BIASES, Bias, biases
from .rotary import ROTARY, Rotary

__all__ = [
    "BIASES",
    "POSITIONS",
    "ROTARY",
    "Bias",
    "Learned",
    "NoPosition",
    "Rotary",
    "Sinusoidal",
    "SinusoidalHalves",
    "biases",
    "sinusoids",
]
