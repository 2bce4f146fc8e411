"""Search: (step, state) -> sequences."""

from .automaton import MOST, Phrases, Spelling, occurs
from .beam import beam_search, beam_steps
from .candidates import Beams, Choose, best
from .config import MOST_HYPOTHESES, SearchConfig
from .constraints import ConstrainedState, Rule, Rules, allot, constrained_step, start_constrained
from .coverage import Covered, coverage_penalty, covered
from .diverse import diverse_search
from .ensemble import Together, ensemble
from .exhaustive import exhaustive_search
from .greedy import greedy_search
from .hypotheses import Hypothesis, Step, check_found
from .lists import Lists, MaskedState, listed, shortlist_union, start_masked
from .mbr import expected_utilities
from .penalties import PENALTIES, Penalty, penalty_of
from .refine import mask_predict
from .sample import Draw, sample_search, sample_steps

__all__ = [
    "MOST",
    "MOST_HYPOTHESES",
    "PENALTIES",
    "Beams",
    "Choose",
    "ConstrainedState",
    "Covered",
    "Draw",
    "Hypothesis",
    "Lists",
    "MaskedState",
    "Penalty",
    "Phrases",
    "Rule",
    "Rules",
    "SearchConfig",
    "Spelling",
    "Step",
    "Together",
    "allot",
    "beam_search",
    "beam_steps",
    "best",
    "check_found",
    "constrained_step",
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
    "sample_search",
    "sample_steps",
    "shortlist_union",
    "start_constrained",
    "start_masked",
]
