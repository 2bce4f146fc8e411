"""A search that never has to begin anew: lines join while others are decoded, and leave as soon as they are done.

A batch whose lines all begin together ends with its longest line, and until then works on fewer and fewer. Here a line
takes the place of one that is done. What a line becomes does not depend on its neighbours, so it is what a batch gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from regard.engine.decoding import Search
from regard.search.hypotheses import Hypothesis, check_found
from regard.tasks.engine import beam_of, limits_of
from regard.tasks.options import Options
from regard.tasks.translate import Translator
from regard.tasks.translation import Translation
from regard.text.tokenizer import END

_MOST = 10_000
"""Lines of one search, which remembers all of them: then another begins."""
_SOME = 4
Hypotheses = list[Hypothesis]
Line = TypeVar("Line")


def runs(translator: Translator, options: Options) -> bool:
    """Whether lines with these options can join a running search: those that ask for nothing but the translation."""
    if options not in (Options(), Options(to=options.to)) or translator.others:
        return False

    def compiled() -> bool:
        search = translator.searching(Options())
        plain = not search.shortlist and search.mbr == "none" and translator.in_order
        return plain and translator.backend(search).searches(search)

    return translator.engine.keep("runs", compiled)


def translation_of(translator: Translator, ids: Sequence[int], found: Hypotheses) -> Translation:
    """What `Translator.translate` makes of a line's hypotheses. Raises ModelError where there is none."""
    check_found(found, 1)
    candidates = [translator.candidate(each, ()) for each in found]
    return translator.translation(ids, candidates, translator.searching(Options()), 1)


class Running(Generic[Line]):
    """A search of one translator. Used by one thread."""

    def __init__(self, translator: Translator) -> None:
        self._config = translator.searching(Options())
        [self._decoder] = translator.backend(self._config).decoders
        self._beam = beam_of(self._config)
        longest = translator.limit + 1  # a line, and its end
        self._room = longest, max(limits_of([[0] * longest], self._config, [self._decoder.capacity]))
        self._search: Search | None = None
        self._open: dict[int, Line] = {}
        self._added = 0

    @property
    def free(self) -> int:
        """How many more lines may be added: none until some can be added together, which takes no longer than one."""
        free = min(self._beam.batch - len(self._open), _MOST - self._added)
        return free if free >= _SOME or not self._open else 0

    @property
    def lines(self) -> list[Line]:
        """What is being decoded."""
        return list(self._open.values())

    def add(self, line: Line, ids: Sequence[int]) -> None:
        """A line, by whatever it is known by, and its ids without end."""
        [limit] = limits_of([ids], self._config, [self._decoder.capacity])
        if self._search is None:
            self._search = Search(self._decoder, [[*ids, END]], [limit], self._beam, most=self._room)
        else:
            self._search.add([*ids, END], limit)
        self._open[self._added] = line
        self._added += 1

    def step(self) -> list[tuple[Line, Hypotheses]]:
        """Writes a token of each line; those that are done with it, and what was found for them."""
        assert self._search is not None
        if self._search.step() == self._added - len(self._open):
            return []
        made = []
        for number in [*self._open]:
            if (found := self._search.found(number)) is not None:
                made.append((self._open.pop(number), [Hypothesis(*each) for each in found]))
        return made
