"""Rules for hypotheses, kept by every search: a step function that gives what breaks a rule no probability.

Log-probabilities stay the model's own. Required phrases are kept in reach: a token after which too few are left for the
phrases that are missing is not possible, and neither is an end before they are met. So whatever a search does, what
finishes has met them, as in the finite-state beams of Anderson et al. (2017).

Sizes: B sentences, K hypotheses a sentence, N rows, V vocabulary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from .arrays import Array, Indices, Numbers, likeliest, masked, numpy
from .hypotheses import StepFunction

if TYPE_CHECKING:
    from regard.nn.state import State


FAR = 1 << 30  # tokens to an end that cannot be reached


class Phrases(Protocol):
    """Required and forbidden phrases over a vocabulary: see `regard.terminology.automaton`."""

    full: int
    tokens: list[int]
    stays: NDArray[np.bool_]
    distance: NDArray[np.int64]
    after: NDArray[np.int64]
    gained: NDArray[np.int64]

    def move(self, state: int, met: int, token: int) -> tuple[int, int]: ...


class RuleState(Protocol):
    """Where one hypothesis stands among its rules."""

    def after(self, token: int) -> RuleState: ...
    def allowed(self, vocabulary: int, end: int) -> NDArray[np.bool_]: ...


class Rule(Protocol):
    """What the hypotheses of one sentence must keep: `Rules`, or a tree's `Bracketing`."""

    def refusal(self) -> str | None: ...
    def start(self) -> RuleState: ...
    def needs(self) -> Sequence[int]: ...


@dataclass(frozen=True)
class Rules:
    """What the hypotheses of one sentence must keep; lengths are in tokens, the end counted."""

    limit: int  # of the search
    minimum: int = 0
    no_repeat_ngram_size: int = 0  # 0: any may; the prefix and required phrases may repeat what they need
    forced: tuple[int, ...] = ()  # the tokens that every hypothesis begins with
    phrases: Phrases | None = None
    known: dict[tuple[int, int], Indices] = field(default_factory=dict, compare=False)  # of `PhraseState.missing`

    def start(self) -> PhraseState:
        """A hypothesis of no tokens."""
        return PhraseState(self)

    def needs(self) -> Sequence[int]:
        """Tokens that must be among those that are searched over, where these are not all."""
        return (*self.forced, *(self.phrases.tokens if self.phrases else ()))

    def refusal(self) -> str | None:
        """Why no hypothesis can keep the rules, as far as that can be told beforehand."""
        if self.minimum > self.limit:
            return f"at least {self.minimum} tokens are asked for, and at most {self.limit} allowed"
        if len(self.forced) > self.limit:
            return f"the prefix has {len(self.forced)} tokens, and at most {self.limit} are allowed"
        if self.phrases is None:
            return None
        row = self.start()
        for token in self.forced:
            row = row.after(token)
        if not self.phrases.stays[row.state]:
            return "the prefix contains a forbidden phrase"
        missing = row.distance()
        if missing >= FAR:
            return "the required phrases cannot be written without the forbidden ones"
        if len(self.forced) + missing > self.limit:
            return f"what is required needs {len(self.forced) + missing} tokens, and at most {self.limit} are allowed"
        return None


@dataclass(frozen=True)
class PhraseState:
    """One hypothesis: its ids, and where it stands among the phrases."""

    rules: Rules
    state: int = 0
    met: int = 0
    ids: tuple[int, ...] = ()

    def after(self, token: int) -> PhraseState:
        """The hypothesis with one more token."""
        state, met = self.rules.phrases.move(self.state, self.met, token) if self.rules.phrases else (0, 0)
        return PhraseState(self.rules, state, met, (*self.ids, token))

    def distance(self) -> int:
        """The fewest tokens that are needed before the text may end."""
        return int(self.rules.phrases.distance[self.state, self.met]) if self.rules.phrases else 0

    def missing(self, vocabulary: int) -> NDArray[np.int64]:
        """The same after each token (V,)."""
        key, known, phrases = (self.state, self.met), self.rules.known, self.rules.phrases
        if key not in known and phrases:
            known[key] = phrases.distance[phrases.after[self.state], self.met | phrases.gained[self.state]]
        return known[key] if phrases else np.zeros(vocabulary, dtype=np.int64)

    def allowed(self, vocabulary: int, end: int) -> NDArray[np.bool_]:
        """The tokens that may come next (V,)."""
        rules, ids, length = self.rules, self.ids, len(self.ids) + 1
        may = np.zeros(vocabulary, dtype=np.bool_)
        if length <= len(rules.forced):
            may[rules.forced[length - 1]] = True
            return may
        now, missing = self.distance(), self.missing(vocabulary)
        may = (missing <= rules.limit - length) if rules.phrases else ~may
        if n := rules.no_repeat_ngram_size:
            last = ids[length - n :]
            # The tokens that would end n in a row that are there already, unless they bring a required phrase nearer.
            again = [ids[i + n - 1] for i in range(length - n) if ids[i : i + n - 1] == last]
            may[[token for token in again if missing[token] >= now]] = False
        may[end] = now == 0 and length >= rules.minimum
        return may


@dataclass(frozen=True)
class ConstrainedState:
    """A state and its rows' hypotheses."""

    inner: State
    rows: tuple[RuleState, ...]
    begun: bool = False

    def select(self, rows: Array) -> ConstrainedState:
        return ConstrainedState(self.inner.select(rows), tuple(self.rows[i] for i in rows.tolist()), self.begun)


def constrained(
    step: StepFunction[State], state: State, rules: Sequence[Rule], end: int
) -> tuple[StepFunction[ConstrainedState], ConstrainedState]:
    """The step function under each row's rules, and its first state: what breaks a rule has log-probability -inf."""

    def keeping(tokens: Array, state: ConstrainedState) -> tuple[Array, ConstrainedState]:
        rows = state.rows
        if state.begun:
            rows = tuple(row.after(token) for row, token in zip(rows, tokens.tolist(), strict=True))
        log_probabilities, inner = step(tokens, state.inner)
        may = np.stack([row.allowed(log_probabilities.shape[-1], end) for row in rows])
        return masked(log_probabilities, may), ConstrainedState(inner, rows, True)

    return keeping, ConstrainedState(state, tuple(each.start() for each in rules))


def allot(log_probabilities: Array, totals: Numbers, keep: int, state: ConstrainedState) -> tuple[Numbers, Indices]:
    """Dynamic beam allocation (Post and Vilar 2018): a `choose` for `beam_search` with required phrases.

    Candidates are the likeliest tokens of each row and those that bring a missing phrase nearer. They stand in banks by
    how much is missing still, and the banks take turns, so that the beam holds hypotheses at every stage.
    """
    sentences, width = totals.shape
    vocabulary = log_probabilities.shape[-1]
    scores, flat = np.full((sentences, keep), -np.inf), np.zeros((sentences, keep), dtype=np.int64)
    values, (_, likely) = numpy(log_probabilities), likeliest(log_probabilities, keep)
    for s in range(sentences):
        found: list[tuple[float, int, int]] = []  # total, index, missing
        for k in range(width):
            if totals[s, k] == -np.inf:
                continue
            i = s * width + k
            row = cast(PhraseState, state.rows[i])
            missing = row.missing(vocabulary)
            nearer = np.flatnonzero(missing < row.distance())
            nearer = nearer[np.argsort(-values[i, nearer], kind="stable")[:keep]]
            tokens = np.array([*dict.fromkeys([*likely[i].tolist(), *nearer.tolist()])])
            after = totals[s, k] + values[i, tokens].astype(np.float64)
            indices = k * vocabulary + tokens
            each = zip(after.tolist(), indices.tolist(), missing[tokens].tolist(), strict=True)
            found += [one for one in each if one[0] > -np.inf]
        taken: Counter[int] = Counter()
        turns = []
        for total, index, bank in sorted(found, key=lambda c: (-c[0], c[1])):
            taken[bank] += 1
            turns.append((taken[bank], -total, index))
        for j, (_, negative, index) in enumerate(sorted(turns)[:keep]):
            scores[s, j], flat[s, j] = -negative, index
    return scores, flat
