"""What a translator gives back: a line's translation, its candidates, and what else was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from .translate import Translator


@dataclass(frozen=True)
class WordSpan:
    """A word of a line; see `regard.text.sentences`."""

    text: str
    start: int
    end: int
    confidence: float | None = None
    """The probability that it is right, see docs/confidence.md; None where it was not asked for."""

    def moved(self, by: int) -> WordSpan:
        """The same word in a line that has so many characters more in front."""
        return WordSpan(self.text, self.start + by, self.end + by, self.confidence)


@dataclass(frozen=True)
class WordLink:
    """A target word and the source word that the model looks at most for it, by number; and how much of 1 it does."""

    source: int
    target: int
    weight: float


@dataclass(frozen=True)
class Candidate:
    """One way to translate a line: its natural log-probability, end included, and that over the length penalty."""

    text: str
    log_probability: float
    score: float
    tokens: tuple[str, ...]
    """The target's tokens, the end among them unless the length limit cut it off; U+2581 marks a space."""
    ended: bool
    ids: tuple[int, ...] = ()
    """Of the tokens, without the end."""
    met: tuple[str, ...] = ()
    """Required phrases, all of which stand in the text."""
    utility: float | None = None
    """Of minimum Bayes risk: how like the others it is, of 100."""


class Asked(NamedTuple):
    """What a translation was made of: by whom, and of which line."""

    translator: Translator
    line: str
    from_: str | None
    to: str | None


@dataclass(frozen=True)
class Translation:
    """A line's translation: its best candidate, and what else was asked for."""

    text: str
    log_probability: float = 0.0
    score: float = 0.0
    ended: bool = True
    """False where the length limit cut the output off."""
    unknown_count: int = 0
    """Source tokens that training never saw: unknown characters, or bytes that stand for them."""
    source_tokens: tuple[str, ...] = ()
    """As the model read them, the end among them."""
    target_tokens: tuple[str, ...] = ()
    hypotheses: tuple[Candidate, ...] = ()
    """The n best, best first; the first is this translation."""
    attention: NDArray[np.float32] | None = None
    """Weights (target tokens, source tokens), where they were asked for: the mean over the last layer's heads."""
    confidences: tuple[float, ...] = ()
    """Of each target token, where they were asked for: how sure the model is of it, given those before it."""
    words: tuple[WordSpan, ...] = ()
    """Of the text, where confidence or alignment was asked for."""
    source_words: tuple[WordSpan, ...] = ()
    """Of the line, where alignment was asked for."""
    alignment: tuple[WordLink, ...] = ()
    """Which source word each word comes from, where it was asked for."""

    asked: ClassVar[Asked | None] = None
    """What it was made of: no field, so that it is neither compared nor copied nor written down with the rest."""

    def __getstate__(self) -> dict[str, object]:
        """All but what it was made of, which holds the whole model."""
        return {name: value for name, value in vars(self).items() if name != "asked"}

    def explore(self, *, language: str = "en") -> str:
        """A page of what the model did with the line, which a notebook shows in a frame; see docs/look.md.

        Raises ModelError for a translation that does not know its line, and for a model without attention.
        """
        # What shows stands above what translates: it is named here, and loaded when somebody wants to see.
        shown: str = import_module("regard.explore.notebook").shown(self, language=language)
        return shown

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: what was asked for and no more."""
        plain: dict[str, Any] = {
            name: getattr(self, name) for name in ("text", "log_probability", "score", "ended", "unknown_count")
        }
        if len(self.hypotheses) > 1:
            plain["hypotheses"] = [
                {"text": h.text, "log_probability": h.log_probability, "score": h.score} for h in self.hypotheses
            ]
        if self.confidences:
            plain["tokens"] = [
                {"token": token, "confidence": confidence}
                for token, confidence in zip(self.target_tokens, self.confidences, strict=True)
            ]
        for name, found in (("words", self.words), ("source_words", self.source_words)):
            if found or (self.confidences and name == "words"):
                plain[name] = [{k: v for k, v in vars(word).items() if v is not None} for word in found]
        if self.source_words:
            plain["alignment"] = [vars(link) for link in self.alignment]
        if self.attention is not None:
            plain["attention"] = {
                "source_tokens": self.source_tokens,
                "target_tokens": self.target_tokens,
                "weights": [[round(weight, 6) for weight in row] for row in self.attention.tolist()],
            }
        return plain
