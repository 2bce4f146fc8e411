"""What a config may name: whatever parts there are, so that a new part is one entry in its own dict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from regard.nn import ACTIVATIONS, GATES, NORM_KINDS
from regard.nn.attention import NORMALIZERS, SCORES
from regard.nn.positions import BIASES, POSITIONS, ROTARY

__all__ = ["ActivationName", "NormName", "NormalizerName", "PositionName", "ScoreName", "capacity", "listed"]

if TYPE_CHECKING:
    ActivationName = str
    NormName = str
    NormalizerName = str
    PositionName = str
    ScoreName = str
else:
    ActivationName = Literal[(*ACTIVATIONS, *GATES)]
    NormName = Literal[tuple(NORM_KINDS)]
    NormalizerName = Literal[tuple(NORMALIZERS)]
    PositionName = Literal[(*POSITIONS, *BIASES, *ROTARY)]
    ScoreName = Literal[tuple(SCORES)]


def capacity(score: str, score_width: int, positions: str = "none", max_positions: int = 0) -> int | None:
    """The most positions that a line may have, for which a score and a position scheme have weights; None: any number.

    Both have the widths and positions that a config gives them.
    """
    known = [SCORES[score](1, size=score_width).capacity]
    if positions in POSITIONS:
        known.append((POSITIONS[positions].limited and max_positions) or None)
    return min((n for n in known if n is not None), default=None)


def listed(*names: object) -> str:
    """Names for a description: "a, b or c"."""
    *most, last = map(str, names)
    return f"{', '.join(most)} or {last}" if most else last
