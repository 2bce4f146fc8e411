"""What a model could have written at each step of a translation: probabilities and alternatives.

Sizes: T steps, the end counted; V vocabulary.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass

import numpy as np

from regard.errors import TextError
from regard.search.arrays import like, numpy
from regard.search.table import Options
from regard.tasks.decode import problem_of
from regard.tasks.lines import encode_targets
from regard.tasks.translate import Translator
from regard.text.tokenizer import END


@dataclass(frozen=True)
class Alternative:
    """A token and its probability."""

    token: str
    probability: float


@dataclass(frozen=True)
class Step:
    """One token of the target, after the source and the tokens before it."""

    token: str
    """What was written; U+2581 stands for a space."""
    log_probability: float
    """Of the token; natural logarithm."""
    rank: int
    """From 1: how many tokens are at least as likely, itself counted."""
    entropy: float
    """Of all that could have been written, in nats: 0 where only one token could."""
    alternatives: tuple[Alternative, ...]
    """The likeliest tokens, likeliest first; what was written is among them if its rank is."""


@dataclass(frozen=True)
class Steps:
    """All steps of a translation."""

    source: str
    target: str
    steps: tuple[Step, ...]
    """The last writes the end, unless the length limit cut the translation off."""

    def to_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        return asdict(self)

    def to_text(self) -> str:
        """A line a step: the token, its probability, rank and entropy in bits, and what else was likely."""
        lines = []
        for step in self.steps:
            others = ", ".join(f"{each.token} {each.probability:.3f}" for each in step.alternatives)
            bits = step.entropy / math.log(2)
            lines.append(
                f"{step.token}  {math.exp(step.log_probability):.3f}  #{step.rank}  {bits:.2f} bits  ({others})"
            )
        return "\n".join(lines).replace("\u2581", "␣")

    def to_json(self) -> str:
        """`to_dict` as JSON, all digits kept."""
        return json.dumps(self.to_dict(), ensure_ascii=False)


def step_by_step(
    translator: Translator,
    line: str,
    *,
    target: str | None = None,
    from_: str | None = None,
    to: str | None = None,
    beam: int | None = None,
    top: int = 8,
) -> Steps:
    """The steps of a line's translation, or of a given target: each with the `top` likeliest tokens.

    They are those that the search chooses from, without the rules that it may have to keep.
    Raises TextError for lines that cannot be read.
    """
    translator.check_steps("a step writes one token")
    [ids] = translator.encode([line], from_=from_, to=to)
    if not ids:
        raise TextError("the line has no text to translate; give one that has.")
    if target is None:
        options = Options.of(from_=from_, to=to, beam=beam)
        best = translator.translate([line], options)[0].hypotheses[0]
        text, written = best.text, [*best.ids, *[END] * best.ended]
    else:
        text, [plain] = target, encode_targets(translator.target, [target], translator.limit)
        written = [*plain, END]
    return Steps(line, text, tuple(_steps(translator, ids, written, top)))


def _steps(translator: Translator, ids: list[int], written: list[int], top: int) -> list[Step]:
    """Each token of `written`, end included, with its alternatives."""
    free = {"min_length": 0, "max_length": 0, "no_repeat_ngram_size": 0, "coverage": 0.0, "shortlist": False}
    settings = translator.recipe.search.model_copy(update={**free, "extra_length": len(written)})
    problem = problem_of(translator.backend(settings), [ids], settings, None, [(0, None)], [1])
    tokens, state, found = problem.first, problem.state, []
    for wanted in written:
        values, state = problem.step(tokens, state)  # (1, V)
        row = numpy(values)[0].astype(np.float64)
        likeliest = np.argsort(-row, kind="stable")[:top]
        chances = np.exp(row)
        found.append(
            Step(
                translator.target.tokens([wanted])[0],
                float(row[wanted]),
                int((row > row[wanted]).sum()) + 1,
                float(-(chances[chances > 0] * row[chances > 0]).sum()),
                tuple(
                    Alternative(name, float(chances[i]))
                    for name, i in zip(translator.target.tokens(likeliest.tolist()), likeliest, strict=True)
                ),
            )
        )
        tokens = like(problem.first, np.array([wanted]))
    return found
