"""Search: (step, state) -> sequences."""

from .beam import beam_search
from .config import SearchConfig
from .exhaustive import exhaustive_search
from .greedy import greedy_search
from .hypotheses import Hypothesis, Step
from .penalties import PENALTIES, Penalty, penalty_of

__all__ = [
    "PENALTIES",
    "Hypothesis",
    "Penalty",
    "SearchConfig",
    "Step",
    "beam_search",
    "exhaustive_search",
    "greedy_search",
    "penalty_of",
]
