"""Reading comprehension: questions answered by a span of a passage, or by nothing, as SQuAD asks them."""

from __future__ import annotations

from .score import Scores, exact, f1, normalized, scores_of
from .squad import Question, read_questions, write_questions

__all__ = ["Question", "Scores", "exact", "f1", "normalized", "read_questions", "scores_of", "write_questions"]
