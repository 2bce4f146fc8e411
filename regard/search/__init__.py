"""Search: (step, state) -> sequences."""

from .automaton import MOST, Phrases, Spelling, occurs
from .beam import beam_search, beam_steps
from .candidates import Beams, Choose, best
from .config import SearchConfig
from .constraints import Rule, Ruled, Rules, allot, ruled, start_ruled
from .coverage import Covered, coverage_penalty, covered
from .diverse import diverse_search
from .ensemble import Together, ensemble
from .exhaustive import exhaustive_search
from .greedy import greedy_search
from .hypotheses import Hypothesis, Step
from .lists import Listed, Lists, listed, start_listed, united
from .mbr import expected_utilities
from .penalties import PENALTIES, Penalty, penalty_of
from .refine import mask_predict
from .sample import Draw, sample_search, sample_steps

__all__ = [
    "MOST",
    "PENALTIES",
    "Beams",
    "Choose",
    "Covered",
    "Draw",
    "Hypothesis",
    "Listed",
    "Lists",
    "Penalty",
    "Phrases",
    "Rule",
    "Ruled",
    "Rules",
    "SearchConfig",
    "Spelling",
    "Step",
    "Together",
    "allot",
    "beam_search",
    "beam_steps",
    "best",
    "coverage_penalty",
    "covered",
    "diverse_search",
    "ensemble",
    "exhaustive_search",
    "expected_utilities",
    "greedy_search",
    "listed",
    "mask_predict",
    "occurs",
    "penalty_of",
    "ruled",
    "sample_search",
    "sample_steps",
    "start_listed",
    "start_ruled",
    "united",
]
