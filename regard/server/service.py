"""What a server translates: its bundles by language pair, the language of a text, and texts into translations.

A text is translated line by line, a line sentence by sentence; what stands between them is kept.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from regard.adaptation.file import adapted
from regard.adaptation.keep import Correction, Corrections
from regard.errors import ModelError, RegardError, RegardWarning
from regard.search.table import NONE, Options
from regard.tasks.engine import stamp_of
from regard.tasks.lines import translate_long
from regard.tasks.translate import Translator, load
from regard.tasks.translation import Translation

from .guard import guarded
from .limits import Limits, Refused
from .memory import Match, memories
from .queue import Queue

NOTED = 2
"""Sentences of a request that are remembered, for corrections to leave as they are."""
Pair = tuple[str, str]
"""The codes of a source and a target language."""


@dataclass
class _Served:
    """A bundle, and the translator made of it."""

    path: Path
    pair: Pair | None
    """Where the command named it; else the bundle says."""
    translator: Translator
    stamp: tuple[tuple[int, ...] | None, ...]
    """What tells that neither it nor its adapter has changed on disk."""
    corrections: Corrections | None = None
    """What it was taught here, where that is allowed."""


class Service:
    """Bundles ready to translate for many requests at once. All methods may be called from any thread."""

    def __init__(
        self,
        bundles: Sequence[str | Path],
        limits: Limits,
        *,
        pivot: str = "",
        device: str = "auto",
        corrections: Path | None = None,
        memory: Sequence[str | Path] = (),
        adapters: Sequence[str | Path] = (),
    ) -> None:
        """`bundles` are directories, or "en-de=DIRECTORY" to say what one translates; `pivot` is a language.

        `corrections` is a directory for what users correct, `memory` files of pairs (or "en-de=FILE") whose matches
        are shown, and `adapters` are files of `regard adapt` (or "en-de=FILE", for the bundle of that pair).
        Raises BundleError for a bundle and an adapter that cannot be read, ModelError for a bundle that does not say
        its languages, for two of one pair and for adapters of none, TextError for a memory that cannot be read.
        """
        self.limits, self.pivot, self._device, self._corrections = limits, pivot, device, corrections
        self._lock = threading.Lock()
        self._adapters = [_named(str(file)) for file in adapters]
        if len(bundles) > 1 and (file := next((file for file, only in self._adapters if only is None), None)):
            raise ModelError(f"--adapter {file}: does not say which of the bundles it changes; name it: en-de={file}.")
        self._served = [self._load(*_named(str(bundle))) for bundle in bundles]
        self._pairs = self._checked(self._served)
        self.queue = Queue(limits.max_waiting)
        self._memories = memories([_named(str(file)) for file in memory], self._pairs)
        self._detector = _detector({code for pair in self._pairs for code in pair})

    # -- what there is -------------------------------------------------------------------------------------------------

    @property
    def pairs(self) -> dict[Pair, Translator]:
        """The pairs that a bundle translates."""
        return {pair: one.translator for pair, one in self._pairs.items()}

    def targets(self, source: str) -> list[str]:
        """Into which languages a source is translated, over the pivot too."""
        found = {target for one, target in self._pairs if one == source}
        if self.pivot in found:
            found |= {target for one, target in self._pairs if one == self.pivot and target != source}
        return sorted(found)

    @property
    def sources(self) -> list[str]:
        """The languages that are translated from."""
        return sorted({source for source, _ in self._pairs})

    @property
    def into(self) -> list[str]:
        """The languages that are translated into."""
        return sorted({target for source in self.sources for target in self.targets(source)})

    def code(self, asked: str, known: Iterable[str]) -> str | None:
        """The language among those known that a code such as EN-US or zh_Hans means; None: none of them."""
        asked, known = asked.strip().lower().replace("_", "-"), set(known)
        by_code = {each.lower(): each for each in known}
        return by_code.get(asked) or by_code.get(asked.split("-")[0])

    def reload(self) -> list[Path]:
        """Reads bundles that have changed on disk, or whose adapters have; returns which.

        What is being translated ends with the old one.
        A bundle that cannot be read leaves the old one in its place, and raises its error after all were tried.
        """
        changed, errors = list[Path](), list[RegardError]()
        with self._lock:
            for at, one in enumerate(self._served):
                if self._stamp(one.path, _pairs_of(one.translator, one.pair)) == one.stamp:
                    continue
                try:
                    served = [*self._served[:at], self._load(one.path, one.pair), *self._served[at + 1 :]]
                    self._served, self._pairs = served, self._checked(served)
                except RegardError as error:
                    errors.append(error)
                else:
                    changed.append(one.path)
        if errors:
            raise errors[0]
        return changed

    def close(self) -> None:
        """Finishes what was accepted."""
        self.queue.close()

    # -- what it is taught ---------------------------------------------------------------------------------------------

    @property
    def teachable(self) -> bool:
        """Whether corrections are taken."""
        return self._corrections is not None

    def taught(self, pair: Pair) -> list[Correction]:
        """The corrections of a pair, in order."""
        one = self._pairs.get(pair)
        return one.corrections.all if one is not None and one.corrections is not None else []

    def corrections(self, pair: Pair) -> Corrections:
        """What keeps the corrections of a pair. Raises Refused: 403 where none are taken, 400 for no such pair."""
        if not self.teachable:
            raise Refused(403, "This server takes no corrections; start it with --corrections DIRECTORY")
        self.translator(*pair)  # which refuses a pair that is not served
        if (found := self._pairs[pair].corrections) is None:
            raise Refused(501, "The bundle of this pair learns no single corrections; see `regard adapt`")
        return found

    def put_to_use(self, pair: Pair) -> None:
        """Lets requests from now on be translated with the corrections of a pair as they are."""
        with self._lock:
            kept = self.corrections(pair)
            self._served = [
                replace(one, translator=kept.translator) if one.corrections is kept else one for one in self._served
            ]
            self._pairs = _by_pair(self._served)

    def matches(self, text: str, pair: Pair, number: int) -> list[Match]:
        """The pairs of the memory and the corrections that are likest to a text, likest first."""
        taught = [(each.text, each.translation) for each in self.taught(pair)]
        memory = self._memories.get(pair)
        return [] if memory is None else memory.matches(text, number, taught)

    # -- languages of texts --------------------------------------------------------------------------------------------

    def detect(self, text: str) -> list[tuple[str, float]]:
        """The languages that a text may be in, of those served, with how sure that is (0 to 1), likeliest first."""
        return self._detector(text)

    def source_of(self, texts: Sequence[str], target: str | None = None) -> tuple[str, float]:
        """The language that these texts are in, among those that are translated (into the target), and how sure."""
        fit = [source for source in self.sources if target is None or target in self.targets(source)]
        if not fit:
            raise Refused(400, f"{target} is not supported")
        found = [each for each in self.detect("\n".join(texts)[:2000]) if each[0] in fit]
        return found[0] if found else (fit[0], 0.0)

    # -- translating ---------------------------------------------------------------------------------------------------

    def translate(
        self,
        texts: Sequence[str],
        source: str,
        target: str,
        options: Options | None = None,
        *,
        sentences: bool = True,
        until: float | None = None,
    ) -> list[list[Translation]]:
        """Of each text a translation of each of its lines.

        With `sentences` every line is cut into its sentences, else only those that are too long for the model.
        Raises Refused for a pair that is not served and for what takes too long, RegardError for options that the
        bundle refuses.
        """
        until = time.monotonic() + self.limits.max_seconds if until is None else until
        options = options or Options()
        way = self._way(source, target)
        found: list[list[Translation]] = []
        for translator, code in way:
            asked = options if code == target else Options()
            texts = list(map(joined, found)) or texts
            lines = [_clean(line) for text in texts for line in text.split("\n")]
            to = code if translator.languages.targets else None
            asked = asked if to is None else Options.of(asked, to=to)
            each: Callable[[Sequence[str]], list[Translation]] = partial(self._queued, translator, asked, until)
            made: Iterator[Translation] = iter(translate_long(translator, lines, each, always=sentences, to=to))
            found = [[next(made) for _ in text.split("\n")] for text in texts]
        return found

    def translator(self, source: str, target: str) -> Translator:
        """The bundle of a pair. Raises Refused (400) where none translates it directly."""
        if (found := self._pairs.get((source, target))) is None:
            raise Refused(400, f"no bundle translates {source} into {target}")
        return found.translator

    def _queued(
        self, translator: Translator, options: Options, until: float, lines: Sequence[str]
    ) -> list[Translation]:
        wanted = [i for i, line in enumerate(lines) if any(c.isalnum() for c in line)]  # the rest has nothing to say
        found = [Translation(line) for line in lines]
        texts = [lines[i] for i in wanted]

        def translate(some: Sequence[str], asked: Options) -> list[Translation]:
            return self.queue.translate(translator, some, asked, until)

        for i, each in zip(wanted, guarded(texts, translate(texts, options), translate, options), strict=True):
            found[i] = each
        kept = next((one.corrections for one in self._served if one.translator is translator), None)
        if kept is not None and not options.search and options.constraints == NONE:
            for i in wanted[-NOTED:]:
                kept.note(lines[i], found[i], options.to)
        return found

    def _way(self, source: str, target: str) -> list[tuple[Translator, str]]:
        """The translators that a text goes through, each with the language that it writes."""
        direct = self._pairs.get((source, target))
        if direct is not None:
            return [(direct.translator, target)]
        if self.pivot and self.pivot not in (source, target):
            ways = self._pairs.get((source, self.pivot)), self._pairs.get((self.pivot, target))
            if ways[0] is not None and ways[1] is not None:
                return [(ways[0].translator, self.pivot), (ways[1].translator, target)]
        raise Refused(400, f"no bundle translates {source} into {target}")

    def _adapter(self, path: Path, pairs: Iterable[Pair]) -> Path | None:
        """The adapter of a bundle that translates these pairs. Raises ModelError where there are several."""
        own = set(pairs)
        files = [file for file, only in self._adapters if only is None or only in own]
        if len(files) > 1:
            raise ModelError(
                f"--adapter {files[0]} and {files[1]} are both for {path}, and a bundle is served with one; learn one "
                "from the pairs of both."
            )
        return files[0] if files else None

    def _stamp(self, path: Path, pairs: Iterable[Pair]) -> tuple[tuple[int, ...] | None, ...]:
        return stamp_of(path), _stamp_of_file(self._adapter(path, pairs))

    def _checked(self, served: Sequence[_Served]) -> dict[Pair, _Served]:
        """What is served by pair. Raises ModelError for two of one pair, and for an adapter of a pair that is not."""
        found = _by_pair(served)
        for file, only in self._adapters:
            if only is not None and only not in found:
                raise ModelError(
                    f"--adapter {'-'.join(only)}={file}: no bundle translates this pair; serve one, or leave it."
                )
        return found

    def _load(self, path: Path, pair: Pair | None) -> _Served:
        before = stamp_of(path)
        translator = load(path, device=self._device)
        languages = translator.languages
        if pair is None and not (languages.source and (languages.target or languages.targets)):
            raise ModelError(
                f"{path}: this bundle does not say which languages it translates; name them: en-de={path}."
            )
        pairs = _pairs_of(translator, pair)
        stamp = before, self._stamp(path, pairs)[1]
        if (adapter := self._adapter(path, pairs)) is not None:
            assert translator.bundle is not None
            translator = load(adapted(translator.bundle, adapter), device=self._device)
        translator.translate(["."])  # what is made at the first use is made before anybody waits for it
        if self._corrections is None:
            return _Served(path, pair, translator, stamp)
        try:
            kept = Corrections(translator, self._corrections)
        except ModelError as error:
            warnings.warn(str(error), RegardWarning, stacklevel=3)
            return _Served(path, pair, translator, stamp)
        return _Served(path, pair, kept.translator, stamp, kept)


def joined(lines: Iterable[Translation]) -> str:
    """A text of its translated lines."""
    return "\n".join(line.text for line in lines)


def _by_pair(served: Iterable[_Served]) -> dict[Pair, _Served]:
    found: dict[Pair, _Served] = {}
    for one in served:
        for pair in _pairs_of(one.translator, one.pair):
            if pair in found:
                raise ModelError(f"two bundles translate {'-'.join(pair)}; serve one of them.")
            found[pair] = one
    return found


def _pairs_of(translator: Translator, named: Pair | None) -> list[Pair]:
    """What a bundle translates: the pair that the command named, else what the bundle says."""
    languages = translator.languages
    return [named] if named else [(languages.source, target) for target in languages.targets or (languages.target,)]


def _stamp_of_file(file: Path | None) -> tuple[int, ...] | None:
    """What tells cheaply that a file is still the one that was read; None where there is none."""
    try:
        found = None if file is None else file.stat()
    except OSError:
        found = None
    return None if found is None else (found.st_ino, found.st_mtime_ns, found.st_size)


def _named(bundle: str) -> tuple[Path, Pair | None]:
    """`en-de=DIRECTORY` or a directory."""
    head, equals, rest = bundle.partition("=")
    source, dash, target = head.partition("-")
    if equals and dash and source.isalnum() and target.replace("-", "").isalnum() and not Path(bundle).exists():
        return Path(rest), (source, target)
    return Path(bundle), None


def _clean(line: str) -> str:
    """A line without what no text has: NULs, halves of characters, and the return before a line's end."""
    return line.replace("\0", "").rstrip("\r").encode("utf-8", "replace").decode("utf-8")


def _detector(codes: set[str]) -> Callable[[str], list[tuple[str, float]]]:
    """A function from a text to the languages it may be in, of these. One language needs no library."""
    from lingua import Language, LanguageDetectorBuilder

    known = {language.iso_code_639_1.name.lower(): language for language in Language.all()}
    spoken = {code: known[code.split("-")[0].lower()] for code in codes if code.split("-")[0].lower() in known}
    if len(set(spoken.values())) < 2:
        return lambda text: [(code, 1.0) for code in spoken]
    built = LanguageDetectorBuilder.from_languages(*set(spoken.values())).with_low_accuracy_mode().build()
    code_of = {language: code for code, language in spoken.items()}

    def detect(text: str) -> list[tuple[str, float]]:
        found = built.compute_language_confidence_values(text)
        return [(code_of[each.language], each.value) for each in found]

    return detect
