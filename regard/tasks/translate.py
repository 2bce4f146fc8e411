"""Lines in, translations out, by a bundle: `load(path).translate(["Good morning."])`.

An empty line stays empty; the order is kept. How numbers are rounded, and when a sentence's translation may depend on
what else is translated with it: see `regard.tasks.engine`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard import bundle as bundles
from regard.bundle import Bundle, Calibration
from regard.errors import ModelError
from regard.models.interface import EncoderDecoder
from regard.recipe import Recipe
from regard.search.hypotheses import Hypothesis, expected_utilities
from regard.search.table import NONE, Options, SearchConfig, search_with
from regard.text.shortlist import Shortlist
from regard.text.tokenizer import END, Tokenizer

from .engine import Backend, Engine, check_kind, context_of, instead_of, mask_of, placed
from .lines import Ids, Languages, SourceSide
from .translation import Asked, Candidate, Translation

if TYPE_CHECKING:
    from regard.terminology.constraints import Demands

_ONE_LINE = str.maketrans({"\n": " ", "\r": " ", "\0": None})
"""Bytes that a model may spell and that would break line-in, line-out."""


class Translator:
    """A model ready to translate; safe to be used from several threads."""

    def __init__(
        self,
        model: EncoderDecoder | None,
        recipe: Recipe,
        source: Tokenizer,
        target: Tokenizer,
        bundle: Bundle | None = None,
        device: str = "cpu",
    ) -> None:
        """Without a model, that of the bundle is read when it is needed, onto the device."""
        self.recipe, self.source, self.target, self.bundle = recipe, source, target, bundle
        self.engine = Engine(recipe, bundle, model, device)
        self.others: tuple[Translator, ...] = ()
        """What translates together with this one, as an ensemble; see `ensemble_with`."""
        self.calibration = (bundle.calibration if bundle else None) or Calibration()
        """How its probabilities are read as confidences; as they are, unless its bundle was calibrated."""
        self.mask = mask_of(recipe, target)
        """Of a model that writes all positions at once, the id of its mask."""
        data = recipe.data
        languages = Languages(data.source_language, data.target_language, data.target_languages)
        most, capacity = 4 * data.filters.max_length, context_of(recipe)
        self.limit = min(most, capacity - 1) if capacity else most
        """The most tokens a line may have: four times those of the longest that was trained on, and no more than the
        model has positions for, its end counted. An output ends at the last position too."""
        self.reading = SourceSide(source, languages, self.limit)

    # -- what it is ----------------------------------------------------------------------------------------------------

    @property
    def model(self) -> EncoderDecoder:
        """The model in PyTorch; see `Engine.model`."""
        return self.engine.model

    @property
    def device(self) -> str:
        """Where the model lies: cpu, or cuda with its number."""
        return self.engine.device

    @property
    def languages(self) -> Languages:
        """What it translates from and to."""
        return self.reading.languages

    @property
    def in_order(self) -> bool:
        """Whether the model writes token by token; mask-predict writes all positions at once."""
        return self.mask is None

    def check_steps(self, what: str) -> None:
        """Raises ModelError for a model that does not write in order."""
        if not self.in_order:
            raise ModelError(f"{what}, and {self.recipe.model.family} writes all positions at once.")

    def check_forwards(self, what: str) -> None:
        """Raises ModelError for a model that writes from right to left."""
        if self.target.order != "left-to-right":
            raise ModelError(
                f'{what}, and this bundle writes from right to left (text.order = "{self.target.order}"); '
                "train one that writes from left to right."
            )

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
        joined = Translator(None, self.recipe, self.source, self.target, self.bundle)
        joined.engine, joined.calibration, joined.others = self.engine, self.calibration, tuple(others)
        return joined

    # -- how it computes -----------------------------------------------------------------------------------------------

    def searching(self, options: Options) -> SearchConfig:
        """The recipe's [search] with what is asked for in its place."""
        return search_with(self.recipe.search, options.search)

    def backend(self, search: SearchConfig) -> Backend:
        """What computes a search."""
        return self.engine.backend(search, [other.engine for other in self.others], self.mask)

    def why_not_compiled(self, search: SearchConfig) -> str | None:
        """Why a search runs in PyTorch; None: the compiled engine does it."""
        return self.engine.why_not_compiled(search, [other.engine for other in self.others])

    def shortlist(self, search: SearchConfig) -> Shortlist | None:
        """The shortlist that a search asks for. Raises ModelError where its bundle has none."""
        if not search.shortlist:
            return None
        found = self.engine.keep("shortlist", lambda: self.bundle.shortlist() if self.bundle else None)
        if found is None:
            raise ModelError(
                "search.shortlist asks for a bundle that knows which tokens go together, and this one does not; let it "
                "learn them: regard shortlist BUNDLE --source FILE --target FILE."
            )
        return found

    # -- using it ------------------------------------------------------------------------------------------------------

    def encode(
        self, lines: Sequence[str], *, from_: str | None = None, to: str | None = None, first_line: int = 1
    ) -> list[list[int]]:
        """Ids of each line, without end; none for a line with no text, which needs no translation."""
        return self.reading.encode(lines, from_=from_, to=to, first_line=first_line)

    def translate(
        self,
        lines: Sequence[str],
        options: Options | None = None,
        *,
        first_line: int = 1,
        progress: Callable[[int], None] | None = None,
        **given: Any,
    ) -> list[Translation]:
        """A translation of each line, in order; `options`, or their names as keywords, say what is wanted of them.

        `first_line` is the number that messages give the first line; `progress` hears how many lines are done.
        An ensemble's confidence, alignment and attention are its first model's.
        Raises TextError naming the line for what cannot be read, ModelError for options that there are not, languages
        the bundle does not have and constraints that cannot be met.
        """
        options = Options.of(options, **given)
        search = self.searching(options)
        self._check(options, search)
        self._say_what_computes(options, search)
        ids = self.encode(lines, from_=options.from_, to=options.to, first_line=first_line)
        full = [i for i, tokens in enumerate(ids) if tokens]
        shortlist = self.shortlist(search)
        asked = self._asked(options, lines, first_line, search, shortlist)
        number = options.n_best if search.mbr == "none" else max(options.n_best, search.beam)
        backend, find = self.backend(search), Backend.found
        if not backend.searches(search, n_best=number, constrained=asked is not None):
            from .decode import decode

            find = partial(decode, rules=None if asked is None else asked.rules(full))
        found = find(
            backend,
            [ids[i] for i in full],
            search,
            n_best=number,
            lines=[first_line + i for i in full],
            shortlist=shortlist,
            progress=progress,
        )
        translations = [Translation("")] * len(lines)
        for i, hypotheses in zip(full, found, strict=True):
            kept = hypotheses if asked is None else asked.demands[i].kept(hypotheses, self._text_of, first_line + i)
            candidates = [self._candidate(h, asked.demands[i].required if asked else ()) for h in kept]
            translations[i] = self._translation(ids[i], candidates, search, options.n_best)
        if options.detailed or options.replace_unknown:
            self._add_details(translations, lines, {i: ids[i] for i in full}, options, search)
        for i in full:
            vars(translations[i])["asked"] = Asked(self, lines[i], options.from_, options.to)
        return translations

    def stream(
        self, line: str, options: Options | None = None, *, number: int = 1, **given: Any
    ) -> Generator[str, None, bool]:
        """The translation of a line in parts, each as soon as it is certain; together they are what `translate` gives.

        It returns whether it ended: False if the limit of length cut it off. A greedy search and a sample (the first)
        are certain of every token, a beam of what all hypotheses agree on. ModelError if a search chooses at the end.
        """
        from .decode import decode_steps, streamed

        options = Options.of(options, **given)
        search = self.searching(options)
        self.check_steps("only what is written token by token can be streamed")
        self.check_forwards("a text is shown from its beginning, which comes last")
        streamed(search)
        self._say_what_computes(options, search)
        ids = self.encode([line], from_=options.from_, to=options.to, first_line=number)[0]
        if not ids:
            return True
        shortlist = self.shortlist(search)
        asked = self._asked(options, [line], number, search, shortlist)
        rules = None if asked is None else asked.rules([0])
        steps = decode_steps(self.backend(search), ids, search, rules=rules, line=number, shortlist=shortlist)
        said = ""
        while True:
            try:  # A character that is spelt in bytes shows as U+FFFD until it is whole.
                text = self._text_of(next(steps)).rstrip("\ufffd")
            except StopIteration as finished:
                best: Hypothesis = finished.value
                break
            if len(text) > len(said) and text.startswith(said):
                yield text[len(said) :]
                said = text
        whole = self._text_of(best.ids)
        if asked is not None:
            asked.demands[0].check(whole, number)
        if rest := whole[len(said) :]:
            yield rest
        return best.ended

    # -- one translation -----------------------------------------------------------------------------------------------

    def _say_what_computes(self, options: Options, search: SearchConfig) -> None:
        """Warns, once, if the engine cannot do what was asked for here, by options and not by the recipe."""
        asked = "precision" in options.search and search.precision not in ("auto", "exact")
        if asked and (reason := self.why_not_compiled(search)):
            self.engine.warn_once(instead_of(search.precision, reason))

    def _check(self, options: Options, search: SearchConfig) -> None:
        if search.draws and options.n_best > 1 and search.mbr == "none":
            raise ModelError(
                f"n_best ({options.n_best}) ranks the hypotheses of a beam, and samples ({search.draws}) are all "
                "given; leave n_best out."
            )
        if options.detailed or options.replace_unknown:
            self.check_steps("confidence, alignment and attention are of tokens written one by one")
        if options.detailed and options.replace_unknown:
            raise ModelError(
                "replace_unknown changes the text that confidence, alignment and attention speak of; ask for one or "
                "the other."
            )

    def _asked(
        self, options: Options, lines: Sequence[str], first_line: int, search: SearchConfig, shortlist: Shortlist | None
    ) -> Demands | None:
        """The demands of each line and the rules made of them; None where nothing is demanded."""
        if options.constraints == NONE:
            return None
        from regard.terminology.constraints import Demands

        asked = Demands.of(options.constraints, lines, first_line, self.target)
        if not any(asked.demands):
            return None
        self.check_forwards("phrases and prefixes are looked for from left to right")
        return asked.under(search, shortlist, self.engine, self.target)

    def _translation(self, ids: Ids, candidates: list[Candidate], search: SearchConfig, n_best: int) -> Translation:
        if search.mbr != "none":
            from regard.metrics import likeness

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

    def _candidate(self, hypothesis: Hypothesis, met: tuple[str, ...]) -> Candidate:
        ids = [*hypothesis.ids, END] if hypothesis.ended else hypothesis.ids
        return Candidate(
            text=self._text_of(hypothesis.ids),
            log_probability=hypothesis.log_probability,
            score=hypothesis.score,
            tokens=tuple(self.target.tokens(ids)),
            ended=hypothesis.ended,
            ids=tuple(hypothesis.ids),
            met=met,
        )

    def _add_details(
        self,
        translations: list[Translation],
        lines: Sequence[str],
        ids: dict[int, list[int]],
        options: Options,
        search: SearchConfig,
    ) -> None:
        """Put what is asked for beside the text into the translations of these lines."""
        from .details import detailed, with_unknown_replaced
        from .forced import forced

        order = sorted(ids, key=lambda i: len(translations[i].hypotheses[0].ids))
        for start in range(0, len(order), search.batch_size):  # weights of a batch at a time: they are large
            some = order[start : start + search.batch_size]
            made = forced(
                self.engine.forcing(search.precision),
                [ids[i] for i in some],
                [translations[i].hypotheses[0].ids for i in some],
                temperature=self.calibration.temperature,
                attention=options.alignment or options.attention or options.replace_unknown,
                batch_size=search.batch_size,
            )
            for i, one in zip(some, made, strict=True):
                found, line = translations[i], lines[i]
                if options.replace_unknown:
                    translations[i] = with_unknown_replaced(found, line, one, self.reading, self.target, options.to)
                else:
                    translations[i] = detailed(found, line, one, self, options)

    def _text_of(self, ids: Ids) -> str:
        return self.target.decode(ids).translate(_ONE_LINE)


def load(
    path: str | Path | Bundle, *, device: str = "auto", with_: Sequence[str | Path] = (), adapter: str | Path = ""
) -> Translator:
    """A translator from a bundle, which is checked while it is read; `device` is auto, cpu, cuda or cuda:N.

    `with_` are bundles that translate together with it, as an ensemble; `adapter` changes it: see `regard.adapt`.
    Raises BundleError for a bundle that is missing or damaged, ModelError for a device that is not there.
    """
    bundle = path if isinstance(path, Bundle) else bundles.load(path)
    if adapter:
        from regard.adaptation.file import adapted

        bundle = adapted(bundle, adapter)
    check_kind(bundle.recipe, ["encoder-decoder", "mask-predictor"], bundle.path)
    translator = Translator(None, bundle.recipe, bundle.source, bundle.target, bundle, placed(device))
    translator.engine.check()
    return translator.ensemble_with([load(other, device=device) for other in with_]) if with_ else translator
