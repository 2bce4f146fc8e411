"""A model and a search put together: source ids -> hypotheses, in batches that give back the order they were given.

But in PyTorch's float32 and bfloat16 an output does not depend on a sentence's neighbours: see `regard.tasks.engine`.

Sizes: B sentences, N rows of a search, V vocabulary, U tokens of a shortlist, S source tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.errors import ModelError
from regard.models.interface import EncoderDecoder, MaskPredictor
from regard.recipe import Recipe
from regard.search.arrays import Numbers, like
from regard.search.constraints import Rule, Rules, allot, constrained
from regard.search.hypotheses import Hypothesis, Problem, StepFunction
from regard.search.steps import Lists, Together, coverage_penalty, covered, ensemble, masked_step, shortlist_union
from regard.search.table import Search, SearchConfig, check_found, penalty_of, search_of
from regard.text.shortlist import Shortlist
from regard.text.tokenizer import BEGIN, END, PAD, Tokenizer

from .engine import Backend, backend_of, limits_of, mask_of, parameter_of
from .lines import pad

if TYPE_CHECKING:
    from torch import Tensor

    from regard.search.refine import Blanks

Ids = Sequence[int]
RulesOf = Callable[[int, int], Rule]
"""The index of a source and its length limit -> the rules of its hypotheses."""
Models = EncoderDecoder | Sequence[EncoderDecoder] | Backend

_MOST_ROWS = 4096
"""Hypotheses decoded together, however many sentences a batch may have."""


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
            problem_of(backend, ids, search, shortlist, [(i, rules) for i in batch], numbers)
            if steps
            else backend.quietly(_blanks)(backend, ids, search)
        )
        for i, each in zip(batch, chosen.run(problem, search, n_best), strict=True):
            check_found(each, lines[i])
            found[i] = each
        if progress:
            progress(start + len(batch))
    return found


def answers(model: EncoderDecoder, recipe: Recipe, source: Tokenizer, rows: Sequence[Ids]) -> list[list[int]]:
    """Translations of rows of ids, by which a bundle is verified."""
    # A mask-predictor has one vocabulary for both sides.
    return [best.ids for best, *_ in decode(backend_of(model, mask=mask_of(recipe, source)), rows, recipe.search)]


def decode_steps(
    backend: Backend,
    source: Ids,
    search: SearchConfig,
    *,
    rules: RulesOf | None = None,
    line: int = 1,
    shortlist: Shortlist | None = None,
) -> Generator[list[int], None, Hypothesis]:
    """After each step the ids that the translation begins with for certain, see `Translator.stream`; returns it all."""
    chosen = streamed(search, rules is not None)
    assert chosen.stream is not None
    best = yield from chosen.stream(problem_of(backend, [source], search, shortlist, [(0, rules)], [line]), search)
    check_found([] if best is None else [best], line)
    assert best is not None
    return best


def streamed(search: SearchConfig, constrained: bool = False) -> Search:
    """The search that the settings ask for; ModelError if it chooses at the end, so that nothing can be streamed."""
    chosen = search_of(search, constrained=constrained)
    late = {"mbr": search.mbr != "none", "groups": search.groups > 1, "method": chosen.stream is None}
    for key, is_on in late.items():
        if is_on:
            raise ModelError(f"{key} = {getattr(search, key)} chooses at the end, so nothing can be streamed.")
    return chosen


def problem_of(
    backend: Backend,
    sources: Sequence[Ids],
    search: SearchConfig,
    shortlist: Shortlist | None,
    rules: Sequence[tuple[int, RulesOf | None]],
    lines: Sequence[int],
) -> Problem[Any]:
    """Sources encoded, and the step function put together: models, coverage, lists, the models' mean, the rules."""
    limits = limits_of(sources, search, backend.capacities)
    each = _rules(rules, limits, search, lines)
    lists = None
    if shortlist is not None:
        needs = [one.needs() for one in each] or [()] * len(sources)
        lists = [shortlist.of(source, more) for source, more in zip(sources, needs, strict=True)]
    begun = _begun(backend, [[*source, END] for source in sources], max(limits), search.coverage > 0, lists)
    step, state = begun[0]
    if len(begun) > 1:
        steps, states = zip(*begun, strict=True)
        step, state = ensemble(steps, search.ensemble), Together(tuple(states))
    first, choose = np.full(len(sources), BEGIN), None
    if each:
        step, state = constrained(step, state, each, END)
        phrases = [one.phrases for one in each if isinstance(one, Rules)]
        choose = allot if any(one and one.full for one in phrases) else None
    start = first if backend.decoders else like(parameter_of(backend.models[0]), first)
    bonus = _bonus(search.coverage, bool(each), len(begun)) if search.coverage else None
    penalty = penalty_of(search.penalty, search.alpha)
    return Problem(step, state, start, np.array(limits), END, penalty, bonus, choose, lines)


def _rules(
    rules: Sequence[tuple[int, RulesOf | None]], limits: Sequence[int], search: SearchConfig, lines: Sequence[int]
) -> list[Rule]:
    """The rules of each sentence; empty where there are none to keep. Raises ModelError where they cannot be kept."""
    made: list[Rule] = []
    for (index, rules_of), limit in zip(rules, limits, strict=True):
        if rules_of is not None:
            made.append(rules_of(index, limit))
        elif search.min_length > 0 or search.no_repeat_ngram_size > 0:
            made.append(Rules(limit, search.min_length, search.no_repeat_ngram_size))
    for line, one in zip(lines, made, strict=False):
        if reason := one.refusal():
            raise ModelError(f"line {line}: {reason}; change one of the two.")
    return made


def _bonus(beta: float, under_rules: bool, members: int) -> Callable[[Any], Numbers]:
    """The coverage penalty of a state that is put together so."""

    def bonus(state: Any) -> Numbers:
        inner = state.inner if under_rules else state
        each = inner.members if members > 1 else (inner,)
        found: Numbers = np.mean([coverage_penalty(one, beta) for one in each], axis=0)
        return found

    return bonus


def _begun(
    backend: Backend, rows: Sequence[Ids], longest: int, coverage: bool, lists: Lists | None
) -> list[tuple[StepFunction[Any], Any]]:
    """Of each model a step function and its state, sources encoded."""
    if backend.decoders:
        from regard.engine.steps import start

        begun: list[Any] = [start(decoder, rows, longest, lists, looks=coverage) for decoder in backend.decoders]
    else:
        begun = backend.quietly(_begun_in_torch)(backend, rows, coverage, lists)
    return [covered(step, state, [*map(len, rows)]) for step, state in begun] if coverage else begun


def step_of(model: EncoderDecoder, subset: Tensor | None = None, *, looks: bool = False) -> StepFunction[Any]:
    """The model as a step function: last tokens (N,) and a state -> log-probabilities (N, V), next state.

    Of some `subset` (U,) alone, if they are given: (N, U), summing to one. If it `looks`, it also returns where it
    looked: the last layer's weights, the mean of its heads (N, S).
    """
    from torch.nn.functional import linear

    from regard.nn.state import Observer

    project = model.project
    if subset is not None:
        weight, whole = model.output.weight[subset], model.output.bias
        project = partial(linear, weight=weight, bias=None if whole is None else whole[subset])

    def step(tokens: Tensor, state: Any) -> Any:
        observe = Observer("cross") if looks else None
        hidden, state = model.decode(tokens[:, None], state, observe=observe)
        log_probabilities = _float(project(hidden[:, -1])).log_softmax(-1)
        if observe is None:
            return log_probabilities, state
        if not (found := observe.weights["cross"]):
            raise ModelError("search.coverage counts what attention has read, and this model has none; set it to 0.")
        return log_probabilities, state, found[-1].mean(dim=1)[:, -1]

    return step


def _float(logits: Tensor) -> Tensor:
    return logits.float() if str(logits.dtype) == "torch.bfloat16" else logits


def _begun_in_torch(backend: Backend, rows: Sequence[Ids], coverage: bool, lists: Lists | None) -> list[Any]:
    ids, layout = pad(rows, backend.device)
    subset = None if lists is None else like(ids, shortlist_union(lists))
    begun: list[Any] = []
    for model in backend.models:
        state: Any = model.start(model.encode(ids, layout), layout)
        step = backend.quietly(step_of(model, subset, looks=coverage))
        if lists is not None:
            step, state = masked_step(step, state, lists, model.output.out_features)
        begun.append((step, state))
    return begun


def _blanks(backend: Backend, sources: Sequence[Ids], search: SearchConfig) -> Blanks:
    """Sources encoded, with the likeliest lengths of each, for a model that fills in all positions at once."""
    import torch

    from regard.models.blocks import layout_of
    from regard.search.refine import Blanks

    model: MaskPredictor = backend.models[0]  # type: ignore[assignment]  # its family says that it is one
    ids, layout = pad([[*source, END] for source in sources], backend.device)
    assert backend.mask is not None
    state: Any = model.start(model.encode(ids, layout), layout)
    lengths = model.likely_lengths(state, search.beam)  # (B, K)
    limit = layout.lengths[:, None] - 1 + search.extra_length
    lengths = torch.minimum(lengths, limit.clamp(max=search.max_length) if search.max_length else limit)
    state = state.select(torch.arange(len(sources), device=ids.device).repeat_interleave(lengths.shape[1]))

    def fill(tokens: Tensor, sizes: Tensor) -> Tensor:
        hidden, _ = model.decode(tokens, state, layout_of("padded", sizes, tokens.shape[1]))
        return _float(model.project(hidden)).log_softmax(-1)

    return Blanks(backend.quietly(fill), lengths, backend.mask, PAD, END, [BEGIN])
