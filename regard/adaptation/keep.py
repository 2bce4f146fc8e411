"""Corrections of one bundle as a server keeps them: learnt one by one, listed, undone, and kept in a directory.

Each is an adapter in a file of its own; together they change the bundle's weights as they are read, so that without
them its numbers are what they were. PyTorch is loaded by the first one that is learnt.
"""

from __future__ import annotations

import re
import secrets
import threading
import warnings
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from regard.bundle import Bundle
from regard.errors import BundleError, ModelError, RegardWarning
from regard.tasks.engine import check_torch
from regard.tasks.translate import Translator
from regard.tasks.translation import Translation
from regard.text.lines import check_line

from .file import SUFFIX, AdaptedBundle, Adapter, digest_of, joined, never_written
from .use import corrected, place_of

if TYPE_CHECKING:
    from .correct import Teacher

MOST = 500
"""Corrections that are kept for a bundle."""
MOST_TOKENS = 128
"""Tokens of a sentence that is learnt."""
_RECENT = 32  # sentences that are held as they are
_CHECKED = 8  # of them, that are translated again
_NAME = re.compile(r"[0-9]{6,9}-[0-9a-f]{8}")
Ids = tuple[list[int], list[int]]


@dataclass(frozen=True)
class Correction:
    """A correction that is kept."""

    id: str
    text: str
    translation: str
    before: str
    created: str
    changed: int | None = None
    """Of one just learnt: how many of the sentences translated last are translated otherwise since then."""

    def to_dict(self) -> dict[str, str | int]:
        """Plain values for JSON."""
        return {key: value for key, value in asdict(self).items() if value is not None}


class Corrections:
    """A translator that learns from corrections. Safe to be used from several threads; one learns at a time."""

    def __init__(self, base: Translator, folder: str | Path, *, most: int = MOST) -> None:
        """`base` is the translator without any; the directory has a folder for each bundle's weights and adapter.

        Raises ModelError for a model that learns no single corrections. A damaged file is left out, with a warning.
        """
        self.base, self._most = base, most
        self.folder = Path(folder) / _folder_of(self._bundle)
        place_of(self._bundle)
        self._never = never_written(self._bundle)
        self._lock = threading.Lock()
        self._teacher: Teacher | None = None
        self._recent: OrderedDict[tuple[str, str | None], tuple[str, Ids]] = OrderedDict()
        self._kept = self._read()
        self.translator = self._with(self._kept.values())
        """The translator with all corrections; another object after each change."""

    @property
    def all(self) -> list[Correction]:
        """What was learnt, in order."""
        return [_shown(name, adapter) for name, adapter in self._kept.items()]

    def exported(self) -> Adapter | None:
        """All corrections as one adapter, with that of the bundle if it has one; None where there are none."""
        kept = list(self._kept.values())
        if not kept:
            return None
        card = kept[-1].card.model_copy(update={"source": "", "target": "", "before": "", "about": {"from": len(kept)}})
        under = self._bundle.adapter if isinstance(self._bundle, AdaptedBundle) else None
        return joined([under, *kept] if under else kept, card)

    def note(self, source: str, found: Translation, to: str | None = None) -> None:
        """Remembers a translation, in memory, so that learning can leave it as it is; the last few are kept."""
        if not found.hypotheses or not found.ended:
            return
        read = self.base.encode([source], to=to)[0]
        target = list(found.hypotheses[0].ids)
        if max(len(read), len(target)) > MOST_TOKENS:
            return
        with self._lock:
            self._recent[source, to] = found.text, (read, target)
            self._recent.move_to_end((source, to))
            while len(self._recent) > _RECENT:
                self._recent.popitem(last=False)

    def learn(self, source: str, target: str, *, to: str | None = None) -> Correction | None:
        """Learns that a sentence is translated so; None where it is already. One of the same sentence is replaced.

        Raises ModelError where PyTorch is missing, where too many are kept, and for what cannot be written or learnt.
        """
        check_torch("learning a correction")
        for text, what in ((source, "sentence"), (target, "translation")):
            check_line(text, f"the {what}", 10_000)
        with self._lock:
            return self._learn(source, target, to)

    def undo(self, name: str) -> bool:
        """Takes one back; whether there was one. The others are kept, on the weights as they were at the beginning."""
        with self._lock:
            if name not in self._kept:
                return False
            rest = {other: adapter for other, adapter in self._kept.items() if other != name}
            translator = self._with(rest.values())
            (self.folder / f"{name}{SUFFIX}").unlink(missing_ok=True)
            self._kept, self.translator = rest, translator
            return True

    # -- inside --------------------------------------------------------------------------------------------------------

    @property
    def _bundle(self) -> Bundle:
        if self.base.bundle is None:
            raise ModelError("corrections are of a bundle, and this translator has none; save its model as one.")
        return self.base.bundle

    def _read(self) -> dict[str, Adapter]:
        found: dict[str, Adapter] = {}
        files = (file for file in sorted(self.folder.glob(f"*{SUFFIX}")) if _NAME.fullmatch(file.stem))
        for file in islice(files, self._most):
            try:
                adapter = Adapter.read(file)
                self._with([adapter])
            except BundleError as error:
                warnings.warn(f"this correction is left out: {error}", RegardWarning, stacklevel=3)
            else:
                found[file.stem] = adapter
        return found

    def _with(self, adapters: Iterable[Adapter]) -> Translator:
        each = list(adapters)
        return corrected(self.base, joined(each, each[-1].card) if each else None)

    def _learn(self, source: str, target: str, to: str | None) -> Correction | None:
        from .correct import CERTAIN, Teacher, card_of

        rest = {name: each for name, each in self._kept.items() if each.card.source != source}
        if len(rest) >= self._most:
            raise ModelError(f"{len(rest)} corrections are kept, and no more than {self._most} are; undo some.")
        before = self.translator.translate([source], to=to)[0].text
        if before == target:
            return None
        if len(rest) < len(self._kept):
            now = self._with(rest.values())
            if now.translate([source], to=to)[0].text == target:  # the one that is replaced stood in the way
                self._drop(set(self._kept) - set(rest))
                self._kept, self.translator = rest, now
                return None
        pair = self._ids(source, target, to)
        if self._teacher is None:
            self._teacher = Teacher(self._bundle)
        earlier = joined([*rest.values()], [*rest.values()][-1].card) if rest else None
        keep = self._others(rest, source, to)
        card = card_of(self._bundle, source, target, before)
        for certain in CERTAIN:
            adapter = self._teacher.adapter(card, pair, earlier, keep, certain)
            if adapter is None:
                continue
            translator = self._with([*rest.values(), adapter])
            if translator.translate([source], to=to)[0].text == target:
                return self._taken(rest, adapter, translator)
        raise ModelError(
            "the model could not be brought to write this translation; shorten it, or learn it together with other "
            "examples: regard adapt BUNDLE --pairs FILE."
        )

    def _ids(self, source: str, target: str, to: str | None) -> Ids:
        read, written = self.base.encode([source], to=to)[0], self.base.target.encode(target)
        for ids, what in ((read, "sentence"), (written, "translation")):
            if not 0 < len(ids) <= MOST_TOKENS:
                raise ModelError(
                    f"the {what} has {len(ids)} tokens, and what is corrected has from 1 to {MOST_TOKENS}; send a "
                    "sentence at a time."
                )
        reads = self.base.target.decode([id for id in written if id not in self._never])
        if reads != target:
            raise ModelError(
                f"this bundle cannot write the translation as it stands; its tokens would make it {reads!r}."
            )
        return read, written

    def _others(self, rest: dict[str, Adapter], source: str, to: str | None) -> list[Ids]:
        """What is to stay: other corrections, the sentences translated last, and the bundle's golden ones."""
        found: list[Ids] = []
        for each in reversed(rest.values()):
            with suppress(ModelError):
                found.append(self._ids(each.card.source, each.card.target, to))
        found += [ids for (text, _), (_, ids) in self._recent.items() if text != source]
        return found + [(list(g.source_ids), list(g.target_ids)) for g in self._bundle.golden if g.source != source]

    def _taken(self, rest: dict[str, Adapter], adapter: Adapter, translator: Translator) -> Correction:
        number = 1 + max((int(name.partition("-")[0]) for name in self._kept), default=0)
        name = f"{number:06d}-{secrets.token_hex(4)}"
        adapter.write(self.folder / f"{name}{SUFFIX}")
        self._drop(set(self._kept) - set(rest))
        self._kept, self.translator = {**rest, name: adapter}, translator
        changed = 0
        checked = [key for key in self._recent if key[0] != adapter.card.source][-_CHECKED:]
        for to in {to for _, to in checked}:
            texts = [text for text, other in checked if other == to]
            for text, found in zip(texts, translator.translate(texts, to=to), strict=True):
                was, ids = self._recent[text, to]
                changed += found.text != was
                self._recent[text, to] = found.text, ids
        shown = _shown(name, adapter)
        return Correction(**{**asdict(shown), "changed": changed})

    def _drop(self, names: set[str]) -> None:
        for name in names:
            (self.folder / f"{name}{SUFFIX}").unlink(missing_ok=True)


def _folder_of(bundle: Bundle) -> str:
    """The name of what is kept for a bundle: a correction is learnt for these weights and no others."""
    name = digest_of(bundle)[:16]
    if not isinstance(bundle, AdaptedBundle) or bundle.adapter is None:
        return name
    return f"{name}-{sha256(bundle.adapter.to_bytes()).hexdigest()[:16]}"


def _shown(name: str, adapter: Adapter) -> Correction:
    card = adapter.card
    return Correction(name, card.source, card.target, card.before, card.created)
