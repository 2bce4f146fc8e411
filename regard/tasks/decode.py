"""A model and a search put together: source ids -> hypotheses, in batches that give back the order they were given.

Batch-independent mode: a sentence's output does not depend on its neighbours. In float32 it can: matrix libraries take
other kernels for other numbers of rows and other alignments, so the last bits of a score change with the batch, and now
and then two hypotheses change places. In this mode the float32 weights are multiplied in float64. What is left of the
differences is about 1e-15 of a score, where hypotheses that close do not occur in practice.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.engine.decoding import Beam, Decoder
from regard.errors import ModelError
from regard.models import FAMILIES
from regard.models.interface import EncoderDecoder, Layout, Observer, capacity_of, device_of, layout_of
from regard.recipe import Recipe
from regard.search import (
    ConstrainedState,
    Covered,
    Draw,
    Hypothesis,
    Lists,
    Penalty,
    Rule,
    Rules,
    SearchConfig,
    Step,
    Together,
    allot,
    beam_search,
    beam_steps,
    check_found,
    constrained_step,
    coverage_penalty,
    covered,
    diverse_search,
    ensemble,
    greedy_search,
    listed,
    mask_predict,
    penalty_of,
    sample_search,
    sample_steps,
    shortlist_union,
    start_constrained,
    start_masked,
)
from regard.text import BEGIN, END, PAD, Shortlist, Tokenizer
from regard.train import MASK, mixed

__all__ = ["RulesOf", "decode", "decode_steps", "independent", "is_plain", "mask_of", "step_of"]

State = Any
Ids = Sequence[int]
RulesOf = Callable[[int, int], Rule]
"""The index of a source and its length limit -> the rules of its hypotheses."""


def step_of(
    model: EncoderDecoder, bfloat16: bool = False, subset: Tensor | None = None
) -> Callable[[Tensor, State], tuple[Tensor, State]]:
    """The model as a step function: last tokens (N,) and a state -> log-probabilities (N, V), next state.

    Of some `subset` (U,) alone, if they are given: (N, U), summing to one.
    """
    project = _projection(model, subset)

    def step(tokens: Tensor, state: State) -> tuple[Tensor, State]:
        with mixed(tokens.device, bfloat16):
            hidden, state = model.decode(tokens[:, None], state)
            logits = project(hidden[:, -1])
            return (logits.float() if logits.dtype == torch.bfloat16 else logits).log_softmax(-1), state

    return step


def _looking_step(
    model: EncoderDecoder, bfloat16: bool, subset: Tensor | None
) -> Callable[[Tensor, State], tuple[Tensor, State, Tensor]]:
    """`step_of` that also returns where it looked: the last layer's weights, the mean of its heads (N, S)."""
    project = _projection(model, subset)

    def step(tokens: Tensor, state: State) -> tuple[Tensor, State, Tensor]:
        observe = Observer("cross")
        with mixed(tokens.device, bfloat16):
            hidden, state = model.decode(tokens[:, None], state, observe=observe)
            logits = project(hidden[:, -1])
        if not (found := observe.weights["cross"]):
            raise ModelError(
                "search.coverage counts what attention has read, and this model has none: set coverage = 0."
            )
        logits = logits.float() if logits.dtype == torch.bfloat16 else logits
        return logits.log_softmax(-1), state, found[-1].mean(dim=1)[:, -1]

    return step


def _projection(model: EncoderDecoder, subset: Tensor | None) -> Callable[[Tensor], Tensor]:
    """Hidden (N, D) -> logits of all tokens (N, V), or of these alone (N, U)."""
    if subset is None:
        return model.project
    weight = model.output.weight[subset]
    bias = None if model.output.bias is None else model.output.bias[subset]
    return lambda hidden: F.linear(hidden, weight, bias)


def independent(model: EncoderDecoder) -> EncoderDecoder:
    """The model for batch-independent mode: a copy that computes in float64 (itself, if it does already)."""
    if next(iter(model.named_parameters()))[1].dtype == torch.float64:
        return model
    return copy.deepcopy(model).double()  # type: ignore[attr-defined, no-any-return]


@torch.inference_mode()
def decode(
    model: EncoderDecoder | Sequence[EncoderDecoder],
    sources: Sequence[Ids],
    search: SearchConfig,
    *,
    n_best: int = 1,
    rules: RulesOf | None = None,
    lines: Sequence[int] | None = None,
    batch_independent: bool = True,
    bfloat16: bool = False,
    compiled: Sequence[Decoder] = (),
    shortlist: Shortlist | None = None,
    mask: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[list[Hypothesis]]:
    """The `n_best` best hypotheses of each source (ids without end), best first; `progress` hears how many are done.

    With `search.samples` they are that many samples instead, in the order of their numbers. Several models decode as an
    ensemble. `lines` are the sources' line numbers (1 and on), which draws and messages go by.
    Batch-independent mode makes a float64 copy of the model; who calls often hands in `independent(model)` instead.
    The models as `compiled` decoders do the same as PyTorch in a precision of their own, but for `search.coverage`.
    With a `shortlist` a sentence is searched over its own list alone, and what its rules may need.
    A mask-predictor is given the id of its `mask`, and has a search of its own: `search.passes`, and `search.beam`
    lengths.
    Raises ModelError for rules that a sentence cannot keep.
    """
    if len(compiled) == 1 and rules is None and is_plain(search):
        return _compiled(compiled[0], sources, search, n_best, shortlist, progress)
    engine = _engine(model, batch_independent, bfloat16, compiled)
    lines = range(1, len(sources) + 1) if lines is None else lines
    found: list[list[Hypothesis]] = [[] for _ in sources]
    done = 0
    if mask is not None and (
        rules is not None or len(engine.models) > 1 or not is_plain(search) or shortlist is not None
    ):
        raise ModelError(
            "mask-predict writes all places at once: it takes no constraints, samples, groups, coverage, min_length, "
            "no_repeat_ngram_size, shortlist or ensemble; leave them out."
        )
    for batch in _batches([len(s) for s in sources], search.batch_size):
        if mask is not None:
            for i, h in zip(
                batch,
                _refined(engine.models[0], [sources[i] for i in batch], search, mask, engine.bfloat16),
                strict=True,
            ):
                found[i] = h[:n_best]
            done += len(batch)
            if progress:
                progress(done)
            continue
        ready = _prepare(
            engine, [sources[i] for i in batch], [lines[i] for i in batch], batch, search, rules, shortlist
        )
        for i, h in zip(batch, _search(ready, search, n_best), strict=True):
            check_found(h, lines[i])
            found[i] = h
        done += len(batch)
        if progress:
            progress(done)
    return found


def is_plain(search: SearchConfig) -> bool:
    """Whether it is the greedy or the beam search and nothing else, which a compiled decoder has inside."""
    off = SearchConfig()
    others = ("samples", "groups", "coverage", "min_length", "no_repeat_ngram_size")
    return all(getattr(search, key) == getattr(off, key) for key in others)


def _compiled(
    decoder: Decoder,
    sources: Sequence[Ids],
    search: SearchConfig,
    n_best: int,
    shortlist: Shortlist | None,
    progress: Callable[[int], None] | None,
) -> list[list[Hypothesis]]:
    limits = _limits(sources, search, [decoder.capacity])
    # Longest first, so that those decoded together are of near the same length, and memory shows early.
    order = sorted(range(len(sources)), key=lambda i: (-len(sources[i]), i))
    found = decoder.search(
        [[*sources[i], END] for i in order],
        [limits[i] for i in order],
        Beam(
            width=max(search.beam, n_best),
            n_best=n_best,
            batch=search.batch_size,
            stop="first" if search.beam == 1 and n_best == 1 else search.stop,
            begin=BEGIN,
            end=END,
            penalty=penalty_of(search.penalty, search.alpha),
        ),
        lists=None if shortlist is None else [shortlist.of(sources[i]) for i in order],
        progress=progress,
    )
    placed = dict(zip(order, found, strict=True))
    return [[Hypothesis(*each) for each in placed[i]] for i in range(len(sources))]


@torch.inference_mode()
def decode_steps(
    model: EncoderDecoder | Sequence[EncoderDecoder],
    source: Ids,
    search: SearchConfig,
    *,
    rules: RulesOf | None = None,
    line: int = 1,
    batch_independent: bool = True,
    bfloat16: bool = False,
    compiled: Sequence[Decoder] = (),
    shortlist: Shortlist | None = None,
) -> Iterator[list[int]]:
    """After each step the ids that the translation begins with for certain; at last, all of them.

    A greedy search and a sample are certain of every token, a beam of those that all of its hypotheses agree on.
    """
    engine = _engine(model, batch_independent, bfloat16, compiled)
    ready = _prepare(engine, [source], [line], [0], search, rules, shortlist)
    steps: Generator[Any, None, Any]
    if search.samples:
        steps = sample_steps(
            ready.step,
            ready.state,
            ready.first,
            max_length=ready.limit,
            end=END,
            penalty=ready.penalty,
            draw=_draw(search),
            keys=[(line, 1)],
        )
    else:
        steps = beam_steps(
            ready.step,
            ready.state,
            ready.first,
            width=search.beam,
            max_length=ready.limit,
            end=END,
            penalty=ready.penalty,
            stop=search.stop,
            bonus=ready.bonus,
            choose=ready.choose,
        )
    while True:
        try:
            now: Any = next(steps)
        except StopIteration as finished:
            best: list[Hypothesis] = [finished.value[0]] if search.samples else finished.value[0][:1]
            check_found(best, line)
            yield best[0].ids
            return
        yield list(now[0]) if search.samples else now.agreed()


@dataclass(frozen=True)
class _Ready:
    """What a search is given for one batch."""

    step: Step[Any]
    state: State
    first: Tensor  # (B,)
    limit: Tensor  # (B,)
    lines: Sequence[int]
    penalty: Penalty
    bonus: Callable[[Any], Tensor] | None
    choose: Callable[[Tensor, Tensor, int, Any], tuple[Tensor, Tensor]] | None


@dataclass(frozen=True)
class _Engine:
    """What computes: models, in PyTorch, or decoders that were compiled of them."""

    models: Sequence[EncoderDecoder]
    bfloat16: bool
    compiled: Sequence[Decoder] = ()

    @property
    def capacities(self) -> list[int | None]:
        """The most tokens that each model takes."""
        models: Any = self.models
        return [each.capacity for each in self.compiled] if self.compiled else [capacity_of(each) for each in models]

    @property
    def device(self) -> torch.device:
        return torch.device("cpu") if self.compiled else device_of(self.models[0])  # type: ignore[arg-type]

    def begin(
        self, sources: Sequence[Ids], longest: int, coverage: bool, lists: Lists | None
    ) -> list[tuple[Step[Any], Any]]:
        """Of each model a step function and its state, sources encoded."""
        if self.compiled:
            return [decoder.start([[*s, END] for s in sources], longest, lists) for decoder in self.compiled]
        device = self.device
        ids, layout = _read(sources, device)
        subset = None if lists is None else shortlist_union(lists, device)
        begun: list[tuple[Step[Any], Any]] = []
        for model in self.models:
            with mixed(device, self.bfloat16):
                state: Any = model.start(model.encode(ids, layout), layout)
            step: Step[Any] = step_of(model, self.bfloat16, subset)
            if coverage:
                nothing = torch.zeros(ids.shape, dtype=torch.float64, device=device)
                present = torch.arange(layout.width, device=device) < layout.lengths[:, None]
                state = Covered(state, nothing, present)
                step = covered(_looking_step(model, self.bfloat16, subset))
            if lists is not None:
                step = listed(step, lists, model.output.out_features, device)
                state = start_masked(state, lists, device)
            begun.append((step, state))
        return begun


def _engine(
    model: EncoderDecoder | Sequence[EncoderDecoder],
    batch_independent: bool,
    bfloat16: bool,
    compiled: Sequence[Decoder],
) -> _Engine:
    models: list[EncoderDecoder] = [*model] if isinstance(model, Sequence) else [model]
    if batch_independent and not compiled:
        return _Engine([independent(m) for m in models], False)
    return _Engine(models, bfloat16, compiled)


def _prepare(
    engine: _Engine,
    sources: Sequence[Ids],
    lines: Sequence[int],
    indices: Sequence[int],
    search: SearchConfig,
    rules: RulesOf | None,
    shortlist: Shortlist | None,
) -> _Ready:
    """Sources encoded, and the step function put together: models, coverage, lists, the models' mean, the rules."""
    device = engine.device
    limit = torch.tensor(_limits(sources, search, engine.capacities), device=device)
    under_rules = rules is not None or search.min_length > 0 or search.no_repeat_ngram_size > 0
    each = [_rules(rules, i, int(most), search) for i, most in zip(indices, limit, strict=True)] if under_rules else []
    lists = None
    if shortlist is not None:
        needs = [one.needs() for one in each] if under_rules else [()] * len(sources)
        lists = [shortlist.of(source, more) for source, more in zip(sources, needs, strict=True)]
    steps, states = zip(*engine.begin(sources, int(limit.max()), search.coverage > 0, lists), strict=True)
    step, state = (steps[0], states[0]) if len(steps) == 1 else (ensemble(steps, search.ensemble), Together((*states,)))
    choose = None
    if under_rules:
        for line, one in zip(lines, each, strict=True):
            if reason := one.refusal():
                raise ModelError(f"line {line}: {reason}; change one of the two.")
        step, state = constrained_step(step, END), start_constrained(state, each)
        phrases = [one.phrases for one in each if isinstance(one, Rules)]
        choose = allot if any(one and one.full for one in phrases) else None

    def bonus(state: Any) -> Tensor:
        inner = state.inner if under_rules else state
        members = inner.members if len(steps) > 1 else (inner,)
        looked = [member if lists is None else member.inner for member in members]
        return torch.stack([coverage_penalty(each, search.coverage) for each in looked]).mean(0)

    return _Ready(
        step,
        state,
        torch.full((len(sources),), BEGIN, device=device),
        limit,
        lines,
        penalty_of(search.penalty, search.alpha),
        bonus if search.coverage else None,
        choose,
    )


def _limits(sources: Sequence[Ids], search: SearchConfig, capacities: Sequence[int | None]) -> list[int]:
    """The longest output of each source, its end counted: what the search allows, and what the models have places for.

    A decoder reads the begin and all but the last of what it writes, so it needs a place for each token that it writes.
    """
    most = min(filter(None, (search.max_length, *capacities)), default=None)
    found = [len(source) + search.extra_length for source in sources]
    return found if most is None else [min(limit, most) for limit in found]


def _read(sources: Sequence[Ids], device: torch.device) -> tuple[Tensor, Layout]:
    """Sources with their ends as a padded rectangle, and its layout."""
    rows = [[*source, END] for source in sources]
    longest = max(map(len, rows))
    ids = torch.tensor([r + [PAD] * (longest - len(r)) for r in rows], device=device)
    return ids, layout_of("padded", torch.tensor([len(r) for r in rows], device=device), longest)


def mask_of(recipe: Recipe, target: Tokenizer) -> int | None:
    """The id of the mask that a mask-predictor writes over; None for every other model."""
    return target.id_of(MASK) if FAMILIES[recipe.model.family].kind == "mask-predictor" else None


def _refined(
    model: Any, sources: Sequence[Ids], search: SearchConfig, mask: int, bfloat16: bool
) -> list[list[Hypothesis]]:
    """Mask-predict with the likeliest lengths of each source, best first."""
    device = device_of(model)
    ids, layout = _read(sources, device)
    with mixed(device, bfloat16):
        state = model.start(model.encode(ids, layout), layout)
        lengths = model.likely_lengths(state, search.beam)  # (B, K)
        limit = layout.lengths[:, None] - 1 + search.extra_length
        lengths = torch.minimum(lengths, limit.clamp(max=search.max_length) if search.max_length else limit)
        state = state.select(torch.arange(len(sources), device=device).repeat_interleave(lengths.shape[1]))

        def fill(tokens: Tensor, sizes: Tensor) -> Tensor:
            hidden, _ = model.decode(tokens, state, layout_of("padded", sizes, tokens.shape[1]))
            logits = model.project(hidden)
            found: Tensor = (logits.float() if logits.dtype == torch.bfloat16 else logits).log_softmax(-1)
            return found

        made = mask_predict(fill, lengths.flatten(), mask=mask, pad=PAD, end=END, passes=search.passes, never=[BEGIN])
    rows = [made[i : i + lengths.shape[1]] for i in range(0, len(made), lengths.shape[1])]
    return [sorted(row, key=lambda h: -h.score) for row in rows]


def _rules(rules: RulesOf | None, index: int, limit: int, search: SearchConfig) -> Rule:
    if rules is not None:
        return rules(index, limit)
    return Rules(limit, search.min_length, search.no_repeat_ngram_size)


def _draw(search: SearchConfig) -> Draw:
    return Draw(search.seed, search.temperature, search.top_k, search.top_p)


def _search(ready: _Ready, search: SearchConfig, n_best: int) -> list[list[Hypothesis]]:
    """The search that the settings name."""
    if search.samples:
        number = search.samples
        rows = torch.arange(len(ready.lines), device=ready.first.device).repeat_interleave(number)
        drawn = sample_search(
            ready.step,
            ready.state.select(rows),
            ready.first[rows],
            max_length=ready.limit[rows],
            end=END,
            penalty=ready.penalty,
            draw=_draw(search),
            keys=[(line, sample) for line in ready.lines for sample in range(1, number + 1)],
        )
        return [drawn[start : start + number] for start in range(0, len(drawn), number)]
    if search.groups > 1:
        return diverse_search(
            ready.step,
            ready.state,
            ready.first,
            groups=search.groups,
            diversity=search.diversity,
            width=max(search.beam, n_best),
            max_length=ready.limit,
            end=END,
            penalty=ready.penalty,
            n_best=n_best,
            stop=search.stop,
            bonus=ready.bonus,
            choose=ready.choose,
        )
    if search.beam == 1 and n_best == 1 and ready.bonus is None and not isinstance(ready.state, ConstrainedState):
        greedy = greedy_search(
            ready.step, ready.state, ready.first, max_length=ready.limit, end=END, penalty=ready.penalty
        )
        return [[h] for h in greedy]
    return beam_search(
        ready.step,
        ready.state,
        ready.first,
        width=max(search.beam, n_best),
        max_length=ready.limit,
        end=END,
        penalty=ready.penalty,
        n_best=n_best,
        stop=search.stop,
        bonus=ready.bonus,
        choose=ready.choose,
    )


def _batches(lengths: Sequence[int], size: int) -> Iterator[list[int]]:
    """Indices in batches of at most `size`, of near the same length; the longest first, so that memory shows early."""
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    for start in range(0, len(order), size):
        yield order[start : start + size]
