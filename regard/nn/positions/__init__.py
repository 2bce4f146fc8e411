"""Position schemes, by where they act: added to the embeddings, added to the scores, or turning queries and keys."""

from .added import POSITIONS, Added, Learned, NoPosition, Sinusoidal, SinusoidalHalves, sinusoids
from .bias import BIASES, Bias, biases, shared_by_layers
from .rotary import ROTARY, Rotary

__all__ = [
    "BIASES",
    "POSITIONS",
    "ROTARY",
    "Added",
    "Bias",
    "Learned",
    "NoPosition",
    "Rotary",
    "Sinusoidal",
    "SinusoidalHalves",
    "biases",
    "shared_by_layers",
    "sinusoids",
]
