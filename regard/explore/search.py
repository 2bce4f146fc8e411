"""A beam search as a tree: every hypothesis that was considered, its score, where it ended and why.

The numbers are those of the search itself: it shows where it stands after each step (`regard.search.beam.beam_steps`),
and nothing is computed a second time. Sizes: K width, T steps.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from typing import Literal

from regard.errors import ModelError, TextError
from regard.search.beam import Beams, beam_steps
from regard.search.hypotheses import Hypothesis
from regard.search.table import SEARCHES, Options, Penalty, SearchConfig, check_found, search_of
from regard.tasks.decode import problem_of
from regard.tasks.translate import Translator
from regard.text.tokenizer import END

Fate = Literal["open", "pruned", "finished", "length", "stopped"]
"""Why a hypothesis goes no further. open: it does; pruned: others were likelier, so that it, or all that it could go on
to, did not stay among the K best; finished: it wrote its end; length: it reached the length limit; stopped: it was
still open when the search was sure of its answer."""


@dataclass(frozen=True)
class Node:
    """A hypothesis: that of its parent and one more token."""

    parent: int
    """The number of the hypothesis that it goes on from; -1 for those that begin."""
    step: int
    """How many tokens it has, its end counted."""
    token: str
    """U+2581 stands for a space."""
    log_probability: float
    """Of the token, given those before it; natural logarithm."""
    total: float
    """Of all tokens so far: the sum of their log-probabilities."""
    score: float
    """What it is ranked by if it ends here: total over length penalty, with the coverage penalty if it finished."""
    place: int
    """From 1: its place among the 2K candidates of its step, likeliest first."""
    kept: bool
    """Whether it was among the K that go on, or finished; what was not was pruned at once."""
    fate: Fate
    answer: int = 0
    """From 1: its place among the answers of the search; 0 for what is none."""


@dataclass(frozen=True)
class SearchTree:
    """All that a beam search for one line considered."""

    source: str
    width: int
    nodes: tuple[Node, ...]
    """In the order in which they were considered; a node's number is its place here, from 0."""
    translations: tuple[str, ...]
    """The answers as text, best first."""
    penalty: str
    alpha: float

    def answers(self) -> list[int]:
        """The numbers of the answers, best first."""
        found = [number for number, node in enumerate(self.nodes) if node.answer]
        return sorted(found, key=lambda number: self.nodes[number].answer)

    def path(self, number: int) -> list[Node]:
        """A hypothesis from its first token to this one."""
        found: list[Node] = []
        while number >= 0:
            found.append(self.nodes[number])
            number = self.nodes[number].parent
        return found[::-1]

    def children(self, number: int = -1) -> list[int]:
        """The numbers of what goes on from a hypothesis, likeliest first; -1: of what begins."""
        return [each for each, node in enumerate(self.nodes) if node.parent == number]

    def to_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        return asdict(self)

    def to_json(self) -> str:
        """`to_dict` as JSON, all digits kept."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    def to_text(self) -> str:
        """The tree as lines, indented under what they go on from; tokens without a fork between them share a line."""
        below: dict[int, list[int]] = {}
        for number, node in enumerate(self.nodes):
            below.setdefault(node.parent, []).append(number)
        lines, waiting = list[str](), [(number, 0) for number in reversed(below.get(-1, []))]
        while waiting:
            number, depth = waiting.pop()
            tokens = [self.nodes[number].token]
            while len(after := below.get(number, [])) == 1:
                [number] = after
                tokens.append(self.nodes[number].token)
            last = self.nodes[number]
            text = "".join("␣" if token == "\u2581" else token for token in tokens).replace("\u2581", " ").strip()
            mark = f"#{last.answer}" if last.answer else "" if last.fate == "open" else last.fate
            lines.append(f"{'  ' * depth}{text}  {last.total:.3f} {mark}".rstrip())
            waiting += [(each, depth + 1) for each in reversed(after)]
        return "\n".join(lines)


def search_tree(
    translator: Translator,
    line: str,
    *,
    from_: str | None = None,
    to: str | None = None,
    beam: int | None = None,
    n_best: int = 1,
) -> SearchTree:
    """The beam search for a line: what `translator.translate([line], beam=beam, n_best=n_best)` looks for.

    Raises TextError for a line without text, ModelError for a search that is no beam.
    """
    settings = translator.searching(Options.of(beam=beam))
    [ids] = translator.encode([line], from_=from_, to=to)
    if not ids:
        raise TextError("the line has no text to search a translation of; give one that has.")
    translator.check_steps("a beam search goes token by token")
    width = _width(settings, n_best)
    shortlist = translator.shortlist(settings)
    problem = problem_of(translator.backend(settings), [ids], settings, shortlist, [(0, None)], [1])
    grown = _Growing(translator, problem.penalty, int(problem.max_length[0]))
    steps = beam_steps(problem, width=width, n_best=n_best, stop=settings.stop)
    while True:
        try:
            grown.step(next(steps))
        except StopIteration as finished:
            [answers] = finished.value
            break
    check_found(answers, 1)
    texts = tuple(translator.target.decode(each.ids) for each in answers)
    return SearchTree(line, width, grown.nodes(answers), texts, settings.penalty, settings.alpha)


def _width(settings: SearchConfig, n_best: int) -> int:
    """Of a beam; 1 for greedy search, which is a beam of one. Raises ModelError for other searches."""
    chosen = search_of(settings, n_best=n_best)
    if chosen not in (SEARCHES["beam"], SEARCHES["greedy"]):
        name = next(name for name, search in SEARCHES.items() if search is chosen)
        raise ModelError(f"the search {name} is no tree of a beam; ask for one (--beam 5), without {name}.")
    return 1 if chosen is SEARCHES["greedy"] else max(settings.beam, n_best)


class _Growing:
    """The nodes of a search for one line, put together from what it shows after each step."""

    def __init__(self, translator: Translator, penalty: Penalty, limit: int) -> None:
        self._translator, self._penalty, self._limit = translator, penalty, limit
        self._nodes: list[Node] = []
        self._open = [-1]  # of each row of the beam, the number of its hypothesis
        self._finished: list[tuple[int, Hypothesis]] = []

    def step(self, beams: Beams) -> None:
        """Adds what a step considered."""
        length, width = beams.history.shape[2], beams.totals.shape[1]
        cut, new, going = length >= self._limit, iter(beams.new[0]), list[int]()
        rows = zip(*(each[0].tolist() for each in beams.candidates), strict=True)
        for place, (total, parent, token) in enumerate(rows, start=1):
            if total == -math.inf:
                continue
            ended, number, score = token == END, len(self._nodes), total / self._penalty(length)
            fate: Fate = "pruned"
            if (ended and place <= width) or cut:
                fate, found = "finished" if ended else "length", next(new)
                self._finished.append((number, found))
                score = found.score
            elif not ended and len(going) < width:
                fate = "stopped"  # as it looks now; the end tells
                going.append(number)
            [name], above = self._translator.target.tokens([token]), self._open[parent]
            likely = total - (self._nodes[above].total if above >= 0 else 0.0)
            self._nodes.append(Node(above, length, name, likely, total, score, place, fate != "pruned", fate))
        self._open = going

    def nodes(self, answers: list[Hypothesis]) -> tuple[Node, ...]:
        """All of them, those that the search answers by their places."""
        went_on = {node.parent for node in self._nodes if node.kept}
        last = set(self._open)
        places = {number: answers.index(h) + 1 for number, h in self._finished if h in answers}
        made = []
        for number, node in enumerate(self._nodes):
            fate = node.fate
            if fate == "stopped":
                fate = "open" if number in went_on else "stopped" if number in last else "pruned"
            made.append(replace(node, fate=fate, answer=places.get(number, 0)))
        return tuple(made)
