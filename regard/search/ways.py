"""How the searches of the table are run: each imports what it needs when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from regard.nn.state import State

    from .hypotheses import Problem, R, Stop
    from .paths import Draw
    from .refine import Blanks
    from .table import Found, SearchConfig, Stream


def beam(problem: Problem[State], settings: SearchConfig, n_best: int) -> Found:
    from .beam import beam_search

    return beam_search(problem, width=max(settings.beam, n_best), n_best=n_best, stop=settings.stop)


def beam_stream(problem: Problem[State], settings: SearchConfig) -> Stream:
    from .beam import Beams, beam_steps

    steps = beam_steps(problem, width=settings.beam, stop=settings.stop)
    return next(iter((yield from _shown(steps, Beams.agreed))[0]), None)


def greedy(problem: Problem[State], settings: SearchConfig, n_best: int) -> Found:
    from .hypotheses import run_through
    from .paths import greedy_steps

    return [[hypothesis] for hypothesis in run_through(greedy_steps(problem))]


def greedy_stream(problem: Problem[State], settings: SearchConfig) -> Stream:
    from .paths import greedy_steps

    return (yield from _shown(greedy_steps(problem), lambda ids: list(ids[0])))[0]


def diverse(problem: Problem[State], settings: SearchConfig, n_best: int) -> Found:
    from .beam import diverse_search

    shape = {"groups": settings.groups, "width": max(settings.beam, n_best), "n_best": n_best}
    return diverse_search(problem, diversity=settings.diversity, stop=settings.stop, **shape)


def sample(problem: Problem[State], settings: SearchConfig, n_best: int) -> Found:
    import numpy as np

    from .hypotheses import run_through
    from .paths import sample_steps

    number, sentences = settings.draws, len(problem.first)
    rows = np.arange(sentences).repeat(number)
    keys = [(problem.line(s), sample) for s in range(sentences) for sample in range(1, number + 1)]
    drawn = run_through(sample_steps(problem.select(rows), draw=_draw(settings), keys=keys))
    return [drawn[start : start + number] for start in range(0, len(drawn), number)]


def sample_stream(problem: Problem[State], settings: SearchConfig) -> Stream:
    from .paths import sample_steps

    steps = sample_steps(problem, draw=_draw(settings), keys=[(problem.line(0), 1)])
    return (yield from _shown(steps, lambda ids: list(ids[0])))[0]


def mask_predict(blanks: Blanks, settings: SearchConfig, n_best: int) -> Found:
    from .refine import fill_blanks

    return fill_blanks(blanks, settings.passes, n_best)


def _draw(settings: SearchConfig) -> Draw:
    from .paths import Draw

    return Draw(settings.seed, settings.temperature, settings.top_k, settings.top_p)


def _shown(steps: Generator[Stop, None, R], show: Callable[[Stop], list[int]]) -> Generator[list[int], None, R]:
    """What `show` makes of each stop of a search, and at last what the search returns."""
    while True:
        try:
            stop = next(steps)
        except StopIteration as finished:
            return cast("R", finished.value)
        yield show(stop)
