"""A model and a search put together: source ids -> hypotheses, in batches that give back the order they were given.

In every precision but PyTorch's float32 and bfloat16 a sentence's output does not depend on its neighbours; see
`regard.tasks.engine`.

Sizes: B sentences, N rows of a search, V vocabulary, U tokens of a shortlist, S source tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.errors import ModelError
from regard.models.interface import EncoderDecoder, MaskPredictor
from regard.models.modules import layout_of
from regard.nn.state import Observer
from regard.search.hypotheses import Hypothesis, Problem, StepFunction, check_found, penalty_of
from regard.search.table import Search, SearchConfig, search_of
from regard.text.shortlist import Shortlist
from regard.text.tokenizer import BEGIN, END, PAD

from .engine import Backend, backend_of, limits_of
from .lines import pad

if TYPE_CHECKING:
    from regard.search.refine import Blanks
    from regard.search.steps import Lists

P = ParamSpec("P")
R = TypeVar("R")
State = Any
Ids = Sequence[int]
RulesOf = Callable[[int, int], Any]
"""The index of a source and its length limit -> the rules of its hypotheses, a `regard.search.constraints.Rule`."""
Models = EncoderDecoder | Sequence[EncoderDecoder] | Backend

_MOST_ROWS = 4096
"""Hypotheses decoded together, however many sentences a batch may have."""


@torch.inference_mode()
def decode(
    model: Models,
    sources: Sequence[Ids],
    search: SearchConfig,
    *,
    n_best: int = 1,
    rules: RulesOf | None = None,
    lines: Sequence[int] | None = None,
    shortlist: Shortlist | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[list[Hypothesis]]:
    """The `n_best` best hypotheses of each source (ids without end), best first; `progress` hears how many are done.

    Samples are all given, in the order of their numbers. Several models decode as an ensemble; models that are no
    `Backend` compute in PyTorch, in the precision that the search asks for. `lines` are the sources' line numbers (1
    and on), which draws and messages go by. With a `shortlist` a sentence is searched over its own list alone, and what
    its rules may need.
    Raises ModelError for settings that do not go together and for rules that a sentence cannot keep.
    """
    backend = model if isinstance(model, Backend) else backend_of(model, search.precision)
    lines = range(1, len(sources) + 1) if lines is None else lines
    steps = backend.mask is None
    if not steps and len(backend.models) > 1:
        raise ModelError("mask-predict writes all positions at once: it takes no ensemble; leave the others out.")
    if backend.searches(search, n_best=n_best, constrained=rules is not None):
        return backend.found(sources, search, n_best=n_best, lines=lines, shortlist=shortlist, progress=progress)
    chosen = search_of(search, step_by_step=steps, n_best=n_best, constrained=rules is not None)
    found: list[list[Hypothesis]] = [[] for _ in sources]
    # Batches of near the same length; the longest first, so that memory shows early.
    order = sorted(range(len(sources)), key=lambda i: (-len(sources[i]), i))
    size = max(1, min(search.batch_size, _MOST_ROWS // max(search.beam, search.draws, n_best)))
    for start in range(0, len(order), size):
        batch = order[start : start + size]
        ids, numbers = [sources[i] for i in batch], [lines[i] for i in batch]
        problem = (
            _problem(backend, ids, search, shortlist, [(i, rules) for i in batch], numbers)
            if steps
            else _blanks(backend, ids, search)
        )
        for i, each in zip(batch, chosen.run(problem, search, n_best), strict=True):
            check_found(each, lines[i])
            found[i] = each
        if progress:
            progress(start + len(batch))
    return found


@torch.inference_mode()
def decode_steps(
    backend: Backend,
    source: Ids,
    search: SearchConfig,
    *,
    rules: RulesOf | None = None,
    line: int = 1,
    shortlist: Shortlist | None = None,
) -> Iterator[list[int]]:
    """After each step the ids that the translation begins with for certain; at last, all of them.

    A greedy search and a sample are certain of every token, a beam of those that all of its hypotheses agree on.
    Raises ModelError for a search that chooses at the end.
    """
    chosen = streamed(search, rules is not None)
    problem = _problem(backend, [source], search, shortlist, [(0, rules)], [line])
    assert chosen.stream is not None
    best = yield from chosen.stream(problem, search)
    check_found([] if best is None else [best], line)
    assert best is not None
    yield best.ids


def streamed(search: SearchConfig, constrained: bool = False) -> Search:
    """The search that the settings ask for; ModelError if it chooses at the end, so that nothing can be streamed."""
    chosen = search_of(search, constrained=constrained)
    late = {"mbr": search.mbr != "none", "groups": search.groups > 1, "method": chosen.stream is None}
    for key, is_on in late.items():
        if is_on:
            raise ModelError(f"{key} = {getattr(search, key)} chooses at the end, so nothing can be streamed.")
    return chosen


def step_of(
    model: EncoderDecoder, subset: Tensor | None = None, *, looks: bool = False
) -> Callable[[Tensor, State], Any]:
    """The model as a step function: last tokens (N,) and a state -> log-probabilities (N, V), next state.

    Of some `subset` (U,) alone, if they are given: (N, U), summing to one. If it `looks`, it also returns where it
    looked: the last layer's weights, the mean of its heads (N, S).
    """
    project = model.project
    if subset is not None:
        weight, whole = model.output.weight[subset], model.output.bias
        project = partial(F.linear, weight=weight, bias=None if whole is None else whole[subset])

    def step(tokens: Tensor, state: State) -> Any:
        observe = Observer("cross") if looks else None
        hidden, state = model.decode(tokens[:, None], state, observe=observe)
        log_probabilities = _float(project(hidden[:, -1])).log_softmax(-1)
        if observe is None:
            return log_probabilities, state
        if not (found := observe.weights["cross"]):
            raise ModelError(
                "search.coverage counts what attention has read, and this model has none: set coverage = 0."
            )
        return log_probabilities, state, found[-1].mean(dim=1)[:, -1]

    return step


def _float(logits: Tensor) -> Tensor:
    return logits.float() if logits.dtype == torch.bfloat16 else logits


# -- token by token ----------------------------------------------------------------------------------------------------


def _problem(
    backend: Backend,
    sources: Sequence[Ids],
    search: SearchConfig,
    shortlist: Shortlist | None,
    rules: Sequence[tuple[int, RulesOf | None]],
    lines: Sequence[int],
) -> Problem[Any]:
    """Sources encoded, and the step function put together: models, coverage, lists, the models' mean, the rules."""
    limits = limits_of(sources, search, backend.capacities)
    each = _rules(rules, limits, search)
    lists = None
    if shortlist is not None:
        needs = [one.needs() for one in each] or [()] * len(sources)
        lists = [shortlist.of(source, more) for source, more in zip(sources, needs, strict=True)]
    begun = _begun(backend, sources, max(limits), search.coverage > 0, lists)
    step, state = begun[0]
    if len(begun) > 1:
        from regard.search.steps import Together, ensemble

        steps, states = zip(*begun, strict=True)
        step, state = ensemble(steps, search.ensemble), Together(tuple(states))
    choose = None
    if each:
        from regard.search.constraints import Rules, allot, constrained_step, start_constrained

        for line, one in zip(lines, each, strict=True):
            if reason := one.refusal():
                raise ModelError(f"line {line}: {reason}; change one of the two.")
        step, state = constrained_step(step, END), start_constrained(state, each)
        phrases = [one.phrases for one in each if isinstance(one, Rules)]
        choose = allot if any(one and one.full for one in phrases) else None
    return Problem(
        step,
        state,
        torch.full((len(sources),), BEGIN, device=backend.device),
        torch.tensor(limits, device=backend.device),
        END,
        penalty_of(search.penalty, search.alpha),
        _bonus(search.coverage, bool(each), len(begun), lists is not None) if search.coverage else None,
        choose,
        lines,
    )


def _rules(rules: Sequence[tuple[int, RulesOf | None]], limits: Sequence[int], search: SearchConfig) -> list[Any]:
    """The rules of each sentence; empty where there are none to keep."""
    made: list[Any] = []
    for (index, rules_of), limit in zip(rules, limits, strict=True):
        if rules_of is not None:
            made.append(rules_of(index, limit))
        elif search.min_length > 0 or search.no_repeat_ngram_size > 0:
            from regard.search.constraints import Rules

            made.append(Rules(limit, search.min_length, search.no_repeat_ngram_size))
    return made


def _bonus(beta: float, under_rules: bool, members: int, masked: bool) -> Callable[[Any], Tensor]:
    """The coverage penalty of a state that is put together so."""
    from regard.search.steps import coverage_penalty

    def bonus(state: Any) -> Tensor:
        inner = state.inner if under_rules else state
        each = inner.members if members > 1 else (inner,)
        return torch.stack([coverage_penalty(one.inner if masked else one, beta) for one in each]).mean(0)

    return bonus


def _begun(
    backend: Backend, sources: Sequence[Ids], longest: int, coverage: bool, lists: Lists | None
) -> list[tuple[StepFunction[Any], Any]]:
    """Of each model a step function and its state, sources encoded."""
    rows = [[*source, END] for source in sources]
    if backend.decoders:
        from regard.engine.steps import start

        return [start(decoder, rows, longest, lists) for decoder in backend.decoders]
    device = torch.device(backend.device)
    ids, layout = pad(rows, device)
    subset = None
    if lists is not None:
        from regard.search.steps import masked_step, shortlist_union, start_masked

        subset = shortlist_union(lists, device)
    begun: list[tuple[StepFunction[Any], Any]] = []
    for model in backend.models:
        with backend.autocast():
            state: Any = model.start(model.encode(ids, layout), layout)
        looking = _cast(backend, step_of(model, subset, looks=coverage))
        step: StepFunction[Any] = looking
        if coverage:
            from regard.search.steps import Covered, covered_step

            nothing = torch.zeros(ids.shape, dtype=torch.float64, device=device)
            present = torch.arange(layout.width, device=device) < layout.lengths[:, None]
            step, state = covered_step(looking), Covered(state, nothing, present)
        if lists is not None:
            step = masked_step(step, lists, model.output.out_features, device)
            state = start_masked(state, lists, device)
        begun.append((step, state))
    return begun


def _cast(backend: Backend, function: Callable[P, R]) -> Callable[P, R]:
    """The function, run in the backend's precision."""

    def inside(*args: P.args, **kwargs: P.kwargs) -> R:
        with backend.autocast():
            return function(*args, **kwargs)

    return inside if backend.bfloat16 else function


# -- all positions at once ---------------------------------------------------------------------------------------------


def _blanks(backend: Backend, sources: Sequence[Ids], search: SearchConfig) -> Blanks:
    """Sources encoded, with the likeliest lengths of each."""
    from regard.search.refine import Blanks

    model: MaskPredictor = backend.models[0]  # type: ignore[assignment]  # its family says that it is one
    ids, layout = pad([[*source, END] for source in sources], backend.device)
    assert backend.mask is not None
    with backend.autocast():
        state: Any = model.start(model.encode(ids, layout), layout)
        lengths = model.likely_lengths(state, search.beam)  # (B, K)
    limit = layout.lengths[:, None] - 1 + search.extra_length
    lengths = torch.minimum(lengths, limit.clamp(max=search.max_length) if search.max_length else limit)
    state = state.select(torch.arange(len(sources), device=ids.device).repeat_interleave(lengths.shape[1]))

    def fill(tokens: Tensor, sizes: Tensor) -> Tensor:
        hidden, _ = model.decode(tokens, state, layout_of("padded", sizes, tokens.shape[1]))
        return _float(model.project(hidden)).log_softmax(-1)

    return Blanks(_cast(backend, fill), lengths, backend.mask, PAD, END, [BEGIN])
