"""Lines in, translations out, by a bundle: `load(path).translate(["Good morning."])`.

An empty line stays empty; the order is kept. A sentence's translation does not depend on what else is translated with
it (see `regard.tasks.decode`), unless that is given up for speed.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ValidationError

from regard import bundle as bundles
from regard.bundle import Bundle, Calibration
from regard.engine.decoding import Decoder, is_fast
from regard.engine.packing import compiled, refuses
from regard.errors import BundleError, ModelError, RegardWarning, TextError
from regard.metrics import likeness
from regard.models.interface import EncoderDecoder, device_of
from regard.recipe import Recipe
from regard.search import MOST_HYPOTHESES, Hypothesis, SearchConfig, Spelling, expected_utilities
from regard.text import END, UNK, Shortlist, Tokenizer, split_tag, tag
from regard.text.languages import name as language_name
from regard.text.words import words

from .constraints import NONE, Constraints, Demand, demands_of, rules_of, spelling_of
from .decode import decode, decode_steps, independent, mask_of
from .details import Link, Word, links_of, steps_of, sums_of, words_of
from .forced import Forced, forced
from .open import check_kind, places_of

__all__ = ["Candidate", "Constraints", "Languages", "Translation", "Translator", "load", "search_with"]

_ONE_LINE = str.maketrans({"\n": " ", "\r": " ", "\0": None})
"""Bytes that a model may spell and that would break line-in, line-out."""


@dataclass(frozen=True)
class Candidate:
    """One way to translate a line."""

    text: str
    log_probability: float
    """Natural logarithm, summed over the tokens and the end."""
    score: float
    """Log-probability over the length penalty: what candidates are ranked by."""
    tokens: tuple[str, ...]
    """The target's tokens, the end among them unless the length limit cut it off; U+2581 marks a space."""
    ended: bool
    ids: tuple[int, ...] = ()
    """Of the tokens, without the end."""
    met: tuple[str, ...] = ()
    """Required phrases, all of which stand in the text."""
    utility: float | None = None
    """Of minimum Bayes risk: how like the others it is, of 100."""


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
    """Weights (target tokens, source tokens), where they were asked for: see `Translator.attention`."""
    confidences: tuple[float, ...] = ()
    """Of each target token, where they were asked for: how sure the model is of it, given those before it."""
    words: tuple[Word, ...] = ()
    """Of the text, where confidence or alignment was asked for."""
    source_words: tuple[Word, ...] = ()
    """Of the line, where alignment was asked for."""
    alignment: tuple[Link, ...] = ()
    """Which source word each word comes from, where it was asked for."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: what was asked for and no more."""
        plain: dict[str, Any] = {
            "text": self.text,
            "log_probability": self.log_probability,
            "score": self.score,
            "ended": self.ended,
            "unknown_count": self.unknown_count,
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


@dataclass(frozen=True)
class Languages:
    """What a bundle translates from and to; empty where its recipe does not say."""

    source: str
    target: str
    targets: tuple[str, ...]
    """Of a multilingual bundle, whose lines carry a tag."""

    def __str__(self) -> str:
        return f"{self.source or '?'} to {', '.join(self.targets) or self.target or '?'}"


class Translator:
    """A model ready to translate."""

    def __init__(self, model: EncoderDecoder, recipe: Recipe, source: Tokenizer, target: Tokenizer) -> None:
        self._model: EncoderDecoder | None = model
        self.recipe, self.source, self.target = recipe, source, target
        self._exact: EncoderDecoder | None = None
        self._compiled: dict[str, Decoder] = {}
        self._said: set[str] = set()
        self._shortlist: Shortlist | None = None
        self._spelling: Spelling | None = None
        self.others: tuple[Translator, ...] = ()
        """What translates together with this one, as an ensemble; see `together`."""
        self.bundle: Bundle | None = None
        """Where it was loaded from."""
        self.calibration = Calibration()
        """How its probabilities are read as confidences; as they are, unless its bundle was calibrated."""
        data = recipe.data
        self.languages = Languages(data.source_language, data.target_language, data.target_languages)

    @property
    def model(self) -> EncoderDecoder:
        """The model, which is put aside once it is compiled, and read from the bundle again when it is asked for.

        Raises BundleError if the bundle is another one by now.
        """
        if self._model is None:
            assert self.bundle is not None
            found = bundles.load(self.bundle.path)
            if found.files != self.bundle.files:
                raise BundleError(f"{found.path}: is another bundle than the one that was opened; open it again.")
            self._model = found.model()  # type: ignore[assignment]
        return self._model  # type: ignore[return-value]

    @property
    def limit(self) -> int:
        """The most tokens a line may have: four times the longest that was trained on, and no more than the model has
        places for, its end counted. The output ends at the last place too, whatever the search allows."""
        most: int = 4 * self.recipe.data.filters.max_length
        return min(most, places - 1) if (places := places_of(self.recipe)) else most

    @property
    def device(self) -> str:
        """Where the model lies: cpu, or cuda with its number."""
        return "cpu" if self._model is None else str(device_of(self._model))  # type: ignore[arg-type]

    def model_for(self, batch_independent: bool, bfloat16: bool) -> EncoderDecoder:
        """The model to compute with: itself, or its copy for batch-independent mode, made once and kept."""
        if batch_independent and bfloat16:
            raise ModelError(
                "bfloat16 is too coarse for batch-independent mode; turn one of them off (--no-batch-independent)."
            )
        if not batch_independent:
            return self.model
        if self._exact is None:
            self._exact = independent(self.model)
        return self._exact

    def why_not_compiled(
        self, search: SearchConfig, *, batch_independent: bool = True, bfloat16: bool = False
    ) -> str | None:
        """Why a search runs in PyTorch's operations; None: the compiled decoder does it, in `precision`."""
        asked = "bfloat16" if bfloat16 else search.precision
        if batch_independent and (bfloat16 or asked == "float32"):
            return "batch-independent mode multiplies float32 weights in float64, which the compiled decoder has not"
        if search.coverage:
            return "coverage counts where the model looks, which the compiled decoder does not show"
        for each in (self, *self.others):
            if reason := refuses(each.recipe.model, each.device):
                return reason
        return None

    def compiled(
        self, search: SearchConfig, *, batch_independent: bool = True, bfloat16: bool = False
    ) -> tuple[Decoder, ...]:
        """The compiled decoders of a search, made once for each precision and kept; none: see `why_not_compiled`."""
        asked = "bfloat16" if bfloat16 else search.precision
        if reason := self.why_not_compiled(search, batch_independent=batch_independent, bfloat16=bfloat16):
            instead = "float64" if batch_independent else "float32"
            message = f"precision {asked} is not to be had here, and {instead} is used instead: {reason}."
            if not bfloat16 and asked in ("bfloat16", "int8") and message not in self._said:
                self._said.add(message)
                warnings.warn(message, RegardWarning, stacklevel=3)
            return ()
        if asked == "auto":
            asked = "int8" if is_fast("int8") else "float32"
        return tuple(each._in(asked) for each in (self, *self.others))

    def _in(self, precision: str) -> Decoder:
        if precision not in self._compiled:
            self._compiled[precision] = compiled(self.model, self.recipe.model, precision)
            if self.bundle is not None:
                self._model = None
        return self._compiled[precision]

    def shortlist(self, search: SearchConfig) -> Shortlist | None:
        """The shortlist that a search asks for. Raises ModelError where its bundle has none."""
        if not search.shortlist:
            return None
        if self._shortlist is None:
            self._shortlist = None if self.bundle is None else self.bundle.shortlist()
        if self._shortlist is None:
            raise ModelError(
                "search.shortlist asks for a bundle that knows which tokens go together, and this one does not; let it "
                "learn them: regard shortlist BUNDLE --source FILE --target FILE."
            )
        return self._shortlist

    def translate(
        self,
        lines: Sequence[str],
        *,
        beam: int | None = None,
        alpha: float | None = None,
        n_best: int = 1,
        batch_size: int | None = None,
        search: Mapping[str, Any] | None = None,
        constraints: Constraints | Sequence[Constraints] = NONE,
        from_: str | None = None,
        to: str | None = None,
        batch_independent: bool = True,
        bfloat16: bool = False,
        confidence: bool = False,
        alignment: bool = False,
        attention: bool = False,
        replace_unknown: bool = False,
        first_line: int = 1,
        progress: Callable[[int], None] | None = None,
    ) -> list[Translation]:
        """A translation of each line, in order. What is None is as the bundle's recipe says.

        `search` replaces other keys of the recipe's [search]. `constraints` hold for all lines, or are one a line.
        `from_` and `to` are language codes: they choose a multilingual bundle's target, and are checked otherwise.
        `confidence`, `alignment` and `attention` ask for these of each best translation; an ensemble's are its first
        model's.
        `replace_unknown` puts the source word that is looked at most in the place of each unknown word.
        `first_line` is the number that messages give the first line.
        Raises TextError naming the line for what cannot be read, ModelError for languages the bundle does not have and
        for constraints that cannot be met.
        """
        if not 1 <= n_best <= MOST_HYPOTHESES:
            raise ModelError(f"n_best is {n_best}; it must be from 1 to {MOST_HYPOTHESES}.")
        settings = search_with(self.recipe.search, beam=beam, alpha=alpha, batch_size=batch_size, others=search)
        if settings.samples and n_best > 1 and settings.mbr == "none":
            raise ModelError(
                f"n_best ({n_best}) ranks the hypotheses of a beam, and samples ({settings.samples}) are all given; "
                "leave n_best out."
            )
        detailed = confidence or alignment or attention
        if detailed or replace_unknown:
            self.check_steps("confidence, alignment and attention are of tokens written one by one")
        if detailed and replace_unknown:
            raise ModelError(
                "replace_unknown changes the text that confidence, alignment and attention speak of; ask for one or "
                "the other."
            )
        ids = self.encode(lines, from_=from_, to=to, first_line=first_line)
        full = [i for i, tokens in enumerate(ids) if tokens]
        demands = demands_of(constraints, lines, first_line, self.target)
        shortlist = self.shortlist(settings)
        rules = self._rules([demands[i] for i in full], settings, shortlist)
        fast = self.compiled(settings, batch_independent=batch_independent, bfloat16=bfloat16)
        found = decode(
            [] if fast else [t.model_for(batch_independent, bfloat16) for t in (self, *self.others)],
            [ids[i] for i in full],
            settings,
            n_best=n_best if settings.mbr == "none" else max(n_best, settings.beam),
            rules=rules,
            lines=[first_line + i for i in full],
            batch_independent=batch_independent,
            bfloat16=bfloat16,
            compiled=fast,
            shortlist=shortlist,
            mask=mask_of(self.recipe, self.target),
            progress=progress,
        )
        translations = [Translation("")] * len(lines)
        for i, hypotheses in zip(full, found, strict=True):
            kept = demands[i].kept(hypotheses, self._text, first_line + i)
            translations[i] = self._translation(ids[i], kept, demands[i], settings, n_best)
        if detailed or replace_unknown:
            made = forced(
                self.model_for(batch_independent, bfloat16),
                [ids[i] for i in full],
                [translations[i].hypotheses[0].ids for i in full],
                temperature=self.calibration.temperature,
                bfloat16=bfloat16,
                attention=alignment or attention or replace_unknown,
                batch_size=settings.batch_size,
            )
            for i, one in zip(full, made, strict=True):
                if replace_unknown:
                    translations[i] = self._replaced(translations[i], lines[i], to, one)
                    continue
                translations[i] = self._detailed(translations[i], lines[i], to, one, confidence, alignment, attention)
        return translations

    def stream(
        self,
        line: str,
        *,
        beam: int | None = None,
        search: Mapping[str, Any] | None = None,
        constraints: Constraints = NONE,
        from_: str | None = None,
        to: str | None = None,
        batch_independent: bool = True,
        bfloat16: bool = False,
        number: int = 1,
    ) -> Iterator[str]:
        """The translation of a line in parts, each as soon as it is certain; together they are what `translate` gives.

        A greedy search and a sample (the first) are certain of every token, a beam of what all its hypotheses agree on.
        """
        settings = search_with(self.recipe.search, beam=beam, others=search)
        for key, is_off in (("mbr", settings.mbr == "none"), ("groups", settings.groups == 1)):
            if not is_off:
                raise ModelError(f"{key} = {getattr(settings, key)} chooses at the end, so nothing can be streamed.")
        self.check_steps("only what is written token by token can be streamed")
        self.check_forwards("a text is shown from its beginning, which comes last")
        ids = self.encode([line], from_=from_, to=to, first_line=number)[0]
        if not ids:
            return
        demands = demands_of(constraints, [line], number, self.target)
        said = ""
        shortlist = self.shortlist(settings)
        fast = self.compiled(settings, batch_independent=batch_independent, bfloat16=bfloat16)
        steps = decode_steps(
            [] if fast else [t.model_for(batch_independent, bfloat16) for t in (self, *self.others)],
            ids,
            settings,
            rules=self._rules(demands, settings, shortlist),
            line=number,
            batch_independent=batch_independent,
            bfloat16=bfloat16,
            compiled=fast,
            shortlist=shortlist,
        )
        known: list[int] = []
        for known in steps:
            text = self.target.decode(known).translate(_ONE_LINE)
            # A character that is spelt in bytes shows as U+FFFD until it is whole.
            text = text.rstrip("\ufffd")
            if len(text) > len(said) and text.startswith(said):
                yield text[len(said) :]
                said = text
        whole = self.target.decode(known).translate(_ONE_LINE)
        demands[0].check(whole, number)
        rest = whole[len(said) :]
        if rest:
            yield rest

    def ensemble_with(self, others: Sequence[Translator]) -> Translator:
        """This translator with others as an ensemble. Raises ModelError unless all have the same vocabularies."""
        for number, other in enumerate(others, start=2):
            for side in ("source", "target"):
                mine, its = (getattr(t, side).digest for t in (self, other))
                if mine != its:
                    raise ModelError(
                        f"model {number} of the ensemble has another {side} vocabulary ({its[:12]}, not {mine[:12]}); "
                        "train the models on one vocabulary to use them together."
                    )
        joined = Translator(self.model, self.recipe, self.source, self.target)
        joined.bundle, joined.calibration, joined.others = self.bundle, self.calibration, tuple(others)
        return joined

    def encode(
        self, lines: Sequence[str], *, from_: str | None = None, to: str | None = None, first_line: int = 1
    ) -> list[list[int]]:
        """Ids of each line, without end; none for a line with no text, which needs no translation."""
        if isinstance(lines, str):
            raise TextError(f"translate takes a list of lines, and {lines[:40]!r} is one string: put it in a list.")
        self._check_languages(from_, to)
        return [self._encode_line(line, number, to) for number, line in enumerate(lines, start=first_line)]

    def attention(self, source: Sequence[int], target: Sequence[int], *, ended: bool = True) -> NDArray[np.float32]:
        """Where the decoder looks while it writes `target` (T ids) over `source` (S ids): weights (T + 1, S + 1).

        Ends are counted on both sides (on the target's if it `ended`); the mean over the heads of the last layer.
        """
        return _looked(forced(self.model, [source], [target], attention=True)[0], len(target) + ended)

    # -- one line ------------------------------------------------------------------------------------------------------

    @property
    def in_order(self) -> bool:
        """Whether the model writes token by token; mask-predict writes all places at once."""
        return mask_of(self.recipe, self.target) is None

    def check_steps(self, what: str) -> None:
        """Raises ModelError for a model that does not write in order."""
        if not self.in_order:
            raise ModelError(f"{what}, and {self.recipe.model.family} writes all places at once.")

    def check_forwards(self, what: str) -> None:
        """Raises ModelError for a model that writes from right to left."""
        if self.target.order != "left-to-right":
            raise ModelError(
                f'{what}, and this bundle writes from right to left (text.order = "{self.target.order}"); '
                "train one that writes from left to right."
            )

    def _check_languages(self, from_: str | None, to: str | None) -> None:
        known = self.languages
        for asked, has, option in ((from_, known.source, "from"), (to, known.target, "to")):
            if asked is None or (option == "to" and known.targets):
                continue
            if not has:
                raise ModelError(
                    f"the bundle does not say which language it translates {option}, so {asked!r} cannot be checked; "
                    f"leave `{option}` out."
                )
            if asked != has:
                raise ModelError(
                    f"this bundle translates {option} {language_name(has)} ({has}), not {option} "
                    f"{language_name(asked)} ({asked}); use a bundle for that pair, or leave `{option}` out."
                )
        if to is not None and known.targets and to not in known.targets:
            raise ModelError(
                f"this bundle cannot translate to {language_name(to)} ({to}); it knows {', '.join(known.targets)}."
            )

    def _encode_line(self, line: str, number: int, to: str | None) -> list[int]:
        for character, what in (("\0", "a NUL (U+0000)"), ("\n", "a line break")):
            if character in line:
                raise TextError(
                    f"line {number} contains {what} at character {line.index(character) + 1}; a line is one segment of "
                    "text: remove it, or split the line there."
                )
        if self.languages.targets:
            line = self._tagged(line, number, to)
        if not line.strip():
            return []
        ids = self.source.encode(line)
        if len(ids) > self.limit:
            raise TextError(
                f"line {number} has {len(ids):,} tokens ({len(line):,} characters); this bundle takes at most "
                f"{self.limit:,} in one line: split it into sentences, one a line."
            )
        return ids

    def _tagged(self, line: str, number: int, to: str | None) -> str:
        """The line with its target's tag in front; empty if there is no text behind it."""
        code, rest = split_tag(line)
        known = self.languages.targets
        if not rest.strip():
            return ""
        if code is not None and code not in known:
            raise TextError(f"line {number} asks for {tag(code)}, and this bundle knows {', '.join(map(tag, known))}.")
        if code is not None and to not in (None, code):
            raise TextError(f"line {number} begins with {tag(code)} but {to!r} was asked for; remove one of the two.")
        if code is None and to is None:
            raise TextError(
                f"line {number} ({line[:40]!r}) does not say which language to write: begin it with one of "
                f"{', '.join(map(tag, known))} and a space, or ask for one (--to {known[0]})."
            )
        return line if code is not None else f"{tag(str(to))} {line}"

    def _rules(self, demands: Sequence[Demand], search: SearchConfig, shortlist: Shortlist | None) -> Any:
        if not any(demands):
            return None
        self.check_forwards("phrases and prefixes are looked for from left to right")
        if self._spelling is None and any(d.required or d.forbidden for d in demands):
            self._spelling = spelling_of(self.target)
        return rules_of(demands, search, self._spelling, shortlist)

    def _translation(
        self,
        ids: Sequence[int],
        hypotheses: Sequence[Hypothesis],
        demand: Demand,
        search: SearchConfig,
        n_best: int,
    ) -> Translation:
        candidates = [self._candidate(h, demand) for h in hypotheses]
        if search.mbr != "none":
            likes = likeness(search.mbr, self.languages.target)
            values = expected_utilities([c.text for c in candidates], likes)
            scored = [replace(c, utility=value) for c, value in zip(candidates, values, strict=True)]
            unique: dict[str, Candidate] = {}
            for candidate in scored:
                unique.setdefault(candidate.text, candidate)
            candidates = sorted(unique.values(), key=lambda c: -(c.utility or 0.0))[:n_best]
        best = candidates[0]
        return Translation(
            text=best.text,
            log_probability=best.log_probability,
            score=best.score,
            ended=best.ended,
            unknown_count=self.source.unknown_count(ids),
            source_tokens=tuple(self.source.tokens([*ids, END])),
            target_tokens=best.tokens,
            hypotheses=tuple(candidates),
        )

    def _detailed(
        self,
        found: Translation,
        line: str,
        to: str | None,
        made: Forced,
        confidence: bool,
        alignment: bool,
        attention: bool,
    ) -> Translation:
        """The translation with what was asked for beside it."""
        best = found.hypotheses[0]
        changes: dict[str, Any] = {}
        log_probabilities = made.log_probabilities[: len(best.tokens)]
        if confidence:
            changes["confidences"] = tuple(self.calibration.token(value) for value in log_probabilities)
        places, tokens = words(best.text), self.target_places(best)
        if confidence:
            sums = sums_of(log_probabilities, tokens, places)
            changes["words"] = words_of(best.text, places, [self.calibration.word(value) for value in sums])
        elif alignment:
            changes["words"] = words_of(best.text, places)
        if alignment:
            reading, read = self.source_places(line, to)
            changes["source_words"] = words_of(line, read)
            weights = steps_of(_layers(made), self.calibration.rule, self.calibration.layer)
            changes["alignment"] = links_of(weights, tokens, reading, places, read)
        if attention:
            changes["attention"] = _looked(made, len(best.tokens))
        return replace(found, **changes)

    def _replaced(self, found: Translation, line: str, to: str | None, made: Forced) -> Translation:
        """The translation with a source word for each unknown one: what the step that wrote it looked at most."""
        best = found.hypotheses[0]
        tokens = self.target_places(best)
        unknown = [place for place, i in zip(tokens, best.ids, strict=True) if i == UNK]
        reading, read = self.source_places(line, to)
        text = best.text
        for link in reversed(links_of(steps_of(_layers(made), "output", 0), tokens, reading, unknown, read)):
            (start, end), (first, last) = unknown[link.target], read[link.source]
            text = text[:start] + text[start:end].replace(text[start:end].strip(), line[first:last]) + text[end:]
        return replace(found, text=text)

    def target_places(self, candidate: Candidate) -> list[tuple[int, int]]:
        """Where each of the candidate's tokens, its end aside, stands in its text."""
        raw = self.target.decode(candidate.ids)
        kept = list(accumulate((character != "\0" for character in raw), initial=0))  # see _ONE_LINE
        return [(kept[start], kept[end]) for start, end in self.target.spans_of(candidate.ids)]

    def source_places(self, line: str, to: str | None = None) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Where the tokens of a line and its words stand in it; of a language's tag only the tokens count."""
        full = self._tagged(line, 1, to) if self.languages.targets else line
        ahead = len(full) - len(line)
        text = split_tag(line)[1] if self.languages.targets else line
        behind = len(line) - len(text)
        tokens = [(max(start - ahead, 0), max(end - ahead, 0)) for start, end in self.source.spans(full)]
        return tokens, [(start + behind, end + behind) for start, end in words(text)]

    def _text(self, hypothesis: Hypothesis) -> str:
        return self.target.decode(hypothesis.ids).translate(_ONE_LINE)

    def _candidate(self, hypothesis: Hypothesis, demand: Demand) -> Candidate:
        ids = [*hypothesis.ids, END] if hypothesis.ended else hypothesis.ids
        text = self._text(hypothesis)
        return Candidate(
            text=text,
            log_probability=hypothesis.log_probability,
            score=hypothesis.score,
            tokens=tuple(self.target.tokens(ids)),
            ended=hypothesis.ended,
            ids=tuple(hypothesis.ids),
            met=demand.required,
        )


def _looked(made: Forced, rows: int) -> NDArray[np.float32]:
    """The last layer's weights, the mean of its heads: (target tokens, source tokens)."""
    return np.asarray(_layers(made)[-1].mean(axis=0)[:rows], dtype=np.float32)


def _layers(made: Forced) -> Sequence[NDArray[np.float32]]:
    if not made.attention:
        raise ModelError(
            "this model has no attention between its two sides, so there is nothing to see or to align by; use one "
            "that has, such as a Transformer."
        )
    return made.attention


def load(path: str | Path | Bundle, *, device: str = "auto", with_: Sequence[str | Path] = ()) -> Translator:
    """A translator from a bundle, which is checked while it is read; `device` is auto, cpu, cuda or cuda:N.

    `with_` are bundles that translate together with it, as an ensemble.

    Raises BundleError for a bundle that is missing or damaged, ModelError for a device that is not there.
    """
    bundle = path if isinstance(path, Bundle) else bundles.load(path)
    check_kind(bundle.recipe, ["encoder-decoder", "mask-predictor"], bundle.path)
    model = bundle.model()
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        model.to(device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"device {device!r} cannot be used ({reason}); try cpu.") from None
    translator = Translator(model, bundle.recipe, bundle.source, bundle.target)  # type: ignore[arg-type]
    translator.bundle, translator.calibration = bundle, bundle.calibration or translator.calibration
    return translator.ensemble_with([load(other, device=device) for other in with_]) if with_ else translator


def search_with(
    search: SearchConfig,
    *,
    beam: int | None = None,
    alpha: float | None = None,
    batch_size: int | None = None,
    others: Mapping[str, Any] | None = None,
) -> SearchConfig:
    """Decoding defaults with some of them replaced; ModelError for a value that is none."""
    given = {"beam": beam, "alpha": alpha, "batch_size": batch_size, **(others or {})}
    for key in given:
        if key not in SearchConfig.model_fields:
            near = difflib.get_close_matches(key, SearchConfig.model_fields, n=1, cutoff=0)[0]
            raise ModelError(f"search has no key {key!r}; did you mean {near!r}?")
    changes = {key: value for key, value in given.items() if value is not None}
    try:
        return SearchConfig.model_validate({**search.model_dump(), **changes})
    except ValidationError as error:
        first = error.errors()[0]
        if not first["loc"]:
            raise ModelError(f"{first['msg'].removeprefix('Value error, ')}.") from None
        raise ModelError(
            f"{first['loc'][0]} = {first['input']!r}: {first['msg'].replace('Input should', 'must')}."
        ) from None
