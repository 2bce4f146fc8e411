"""Law 5: search is honest. Width 1 is greedy, a beam as wide as the space is exhaustive search."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
import toy
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.search import arrays
from regard.search.beam import beam_search, beam_steps, diverse_search
from regard.search.hypotheses import Problem, expected_utilities, run_through
from regard.search.paths import Draw, _uniform
from regard.search.steps import Together, coverage_penalty, covered, ensemble
from regard.search.table import SEARCHES, SearchConfig, penalty_of
from regard.studies.lectures.exhaustive import exhaustive_search
from regard.tasks.decode import decode, step_of

VOCABULARY = 4
"""0 to 2 are tokens, 3 is the end."""


@dataclass(frozen=True)
class History:
    """A state that is only the tokens so far, so that a table can give any distribution to any prefix."""

    prefix: Tensor  # (N, t)

    def select(self, rows: Tensor) -> History:
        return History(self.prefix.index_select(0, rows))


def _table(seed: int, sharpness: float) -> Any:
    """A step function whose distribution after each prefix is drawn by a hash of sentence and prefix."""

    def step(tokens: Tensor, state: History) -> tuple[Tensor, History]:
        prefix = torch.cat((state.prefix, tokens[:, None]), 1)
        rows = []
        for row in prefix.tolist():
            generator = torch.Generator().manual_seed(hash((seed, *row)) % 2**31)
            rows.append((torch.randn(VOCABULARY, generator=generator) * sharpness).log_softmax(-1))
        return torch.stack(rows), History(prefix)

    return step


def _start(sentences: int) -> tuple[History, Tensor]:
    return History(torch.arange(sentences)[:, None]), torch.full((sentences,), 9)


@given(st.integers(0, 10_000), st.sampled_from(["gnmt", "power", "none"]), st.floats(0, 2), st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_a_wide_beam_equals_exhaustive_search(seed: int, name: str, alpha: float, limit: int) -> None:
    penalty = penalty_of(name, alpha)
    state, first = _start(3)
    found = toy.searched(
        beam_search,
        _table(seed, 1.5),
        state,
        first,
        width=VOCABULARY**limit,
        max_length=torch.tensor([limit] * 3),
        end=3,
        penalty=penalty,
        n_best=3,
    )
    for sentence, best in enumerate(found):
        exact = toy.searched(
            exhaustive_search,
            _table(seed, 1.5),
            History(torch.tensor([[sentence]])),
            torch.tensor([9]),
            max_length=limit,
            end=3,
            penalty=penalty,
            n_best=3,
        )
        assert [h.ids for h in best] == [h.ids for h in exact]
        assert [h.score for h in best] == pytest.approx([h.score for h in exact])


@given(st.integers(0, 10_000), st.integers(1, 6))
@example(9277, 1)  # where a search by the bound goes on beside what has ended, and finds better
@settings(max_examples=40, deadline=None)
def test_width_one_equals_greedy(seed: int, limit: int) -> None:
    limits = torch.tensor([limit, limit + 2, 1])
    state, first = _start(3)
    given = {"max_length": limits, "end": 3, "penalty": penalty_of("gnmt", 0.6)}
    narrow, bounded = (
        toy.searched(beam_search, _table(seed, 1.0), state, first, width=1, stop=stop, **given)
        for stop in ("first", "bound")
    )
    greedy = toy.searched(toy.greedy_search, _table(seed, 1.0), state, first, **given)
    assert all(one[0].score >= h.score - 1e-6 for one, h in zip(bounded, greedy, strict=True))
    assert [h[0].ids for h in narrow] == [h.ids for h in greedy]
    assert [h[0].score for h in narrow] == pytest.approx([h.score for h in greedy])
    assert [h[0].ended for h in narrow] == [h.ended for h in greedy]


@pytest.mark.parametrize("seed", range(8))
def test_a_greedy_stream_shows_what_greedy_search_finds(seed: int) -> None:
    """A beam of one might go on after its best token was the end, where longer hypotheses are ranked higher."""
    problem = Problem(_table(seed, 1.0), *_start(1), torch.tensor([6]), 3, penalty_of("gnmt", 2.0))
    shown: list[list[int]] = []
    stream = SEARCHES["greedy"].stream
    assert stream is not None
    found = run_through(stream(problem, SearchConfig(beam=1)), shown.append)
    assert [found] == toy.greedy_search(problem)
    assert shown[-1] == found.ids if found else False
    assert all(longer[: len(shorter)] == shorter for shorter, longer in pairwise(shown))


@given(st.integers(0, 10_000), st.integers(1, 4))
@settings(max_examples=30, deadline=None)
def test_finished_sentences_may_leave_or_stay(seed: int, width: int) -> None:
    limits = torch.tensor([2, 7, 4, 1])
    results = []
    for shrink in (True, False):
        state, first = _start(4)
        penalty = penalty_of("power", 0.75)
        results.append(
            toy.searched(
                beam_search,
                _table(seed, 2.0),
                state,
                first,
                width=width,
                max_length=limits,
                end=3,
                penalty=penalty,
                n_best=width,
                shrink=shrink,
            )
        )
    assert results[0] == results[1]
    for found, limit in zip(results[0], limits.tolist(), strict=True):
        assert found == sorted(found, key=lambda h: -h.score)
        assert all(len(h.ids) + h.ended <= limit for h in found)


def test_the_greedy_path_is_not_always_the_best() -> None:
    """The lectures' numbers: greedy 0.5·0.4·0.4·0.6 = 0.048; with another token at step 2 0.054 is reached."""
    after = {
        (): [0.5, 0.2, 0.2, 0.1],
        (0,): [0.1, 0.4, 0.3, 0.2],
        (0, 1): [0.2, 0.2, 0.4, 0.2],
        (0, 1, 2): [0.0, 0.2, 0.2, 0.6],
        (0, 2): [0.1, 0.6, 0.2, 0.1],
        (0, 2, 1): [0.1, 0.2, 0.1, 0.6],
    }

    def step(tokens: Tensor, state: History) -> tuple[Tensor, History]:
        prefix = torch.cat((state.prefix, tokens[:, None]), 1)
        rows = [torch.tensor(after.get(tuple(r[2:]), [0.25] * 4)).log() for r in prefix.tolist()]
        return torch.stack(rows), History(prefix)

    limit, none = torch.tensor([4]), penalty_of("none", 0.0)
    greedy = toy.searched(toy.greedy_search, step, *_start(1), max_length=limit, end=3)[0]
    beam = toy.searched(beam_search, step, *_start(1), width=2, max_length=limit, end=3, penalty=none)[0][0]
    assert greedy.ids == [0, 1, 2]
    assert math.exp(greedy.log_probability) == pytest.approx(0.048)
    assert math.exp(beam.log_probability) >= 0.054 - 1e-6


def test_penalties_are_the_named_formulas() -> None:
    assert penalty_of("gnmt", 0.6)(7) == pytest.approx(2**0.6)
    assert penalty_of("power", 0.75)(16) == pytest.approx(8.0)
    assert penalty_of("none", 3.0)(9) == 1.0


def test_decode_keeps_order_and_is_independent_of_batches() -> None:
    model: Any = toy.make(toy.CONFIGS["post-sinusoidal-all"], vocabulary=50)
    generator = torch.Generator().manual_seed(2)
    sources = [
        torch.randint(4, 50, (int(n),), generator=generator).tolist()
        for n in torch.randint(0, 12, (60,), generator=generator)
    ]
    search = SearchConfig(beam=3, extra_length=5)
    runs = [
        decode(model, sources, search.model_copy(update={"batch_size": size}), n_best=2) for size in (1, 7, 32, 128)
    ]
    backwards = decode(model, sources[::-1], search, n_best=2)[::-1]
    for run in (*runs[1:], backwards):
        assert [[h.ids for h in best] for best in run] == [[h.ids for h in best] for best in runs[0]]
        for best, same in zip(run, runs[0], strict=True):
            assert [h.score for h in best] == pytest.approx([h.score for h in same], rel=1e-12)
    near = decode(model, sources, search.model_copy(update={"precision": "float32"}))
    assert sum(a[0].ids == b[0].ids for a, b in zip(near, runs[0], strict=True)) >= 58


@torch.inference_mode()
def test_a_models_beam_scores_are_its_log_probabilities() -> None:
    model: Any = toy.make(toy.CONFIGS["pre-sinusoidal-all"], vocabulary=9)
    found = decode(model, [[5, 6, 7]], SearchConfig(beam=4, extra_length=4), n_best=4)[0]
    source, reading = toy.padded([[5, 6, 7, toy.END]])
    for hypothesis in found:
        target = [toy.BEGIN, *hypothesis.ids]
        hidden, _ = model.decode(torch.tensor([target]), model.start(model.encode(source, reading), reading))
        right = [*hypothesis.ids, toy.END][: len(hypothesis.ids) + hypothesis.ended]
        scores = model.project(hidden).log_softmax(-1)[0, range(len(right)), right]
        assert hypothesis.log_probability == pytest.approx(float(scores.sum()), abs=1e-4)
    logits, _ = step_of(model)(torch.tensor([toy.BEGIN]), model.start(model.encode(source, reading), reading))
    torch.testing.assert_close(logits.exp().sum(-1), torch.ones(1))


# -- the other searches ------------------------------------------------------------------------------------------------


def _beam(step: Any, sentences: int = 3, **changed: Any) -> Any:
    state, first = _start(sentences)
    settings = {"width": 4, "max_length": torch.tensor([6] * sentences), "end": 3, "penalty": penalty_of("gnmt", 0.6)}
    return toy.searched(beam_search, step, state, first, **(settings | changed))


def _samples(step: Any, draw: Draw, rows: int = 3, limit: int = 6) -> Any:
    state, first = _start(rows)
    keys = [(line, 1) for line in range(rows)]
    limits, none = torch.tensor([limit] * rows), penalty_of("none", 0.0)
    return toy.searched(
        toy.sample_search, step, state, first, max_length=limits, end=3, penalty=none, draw=draw, keys=keys
    )


@pytest.mark.parametrize("draw", [Draw(temperature=1e-6), Draw(top_k=1), Draw(top_p=1e-9)], ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_the_coldest_sample_is_greedy(draw: Draw, seed: int) -> None:
    state, first = _start(3)
    greedy = toy.searched(toy.greedy_search, _table(seed, 1.0), state, first, max_length=torch.tensor([6] * 3), end=3)
    found = _samples(_table(seed, 1.0), draw)
    assert [h.ids for h in found] == [h.ids for h in greedy]
    assert [h.log_probability for h in found] == pytest.approx([h.log_probability for h in greedy])
    assert [h.ended for h in found] == [h.ended for h in greedy]


CHANCES = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)


@pytest.mark.parametrize(
    ("draw", "expected"),
    [
        (Draw(seed=5), CHANCES),
        (Draw(seed=6, temperature=0.5), CHANCES**2 / (CHANCES**2).sum()),
        (Draw(seed=7, top_k=2), torch.tensor([4 / 7, 3 / 7, 0, 0], dtype=torch.float64)),
        (Draw(seed=8, top_p=0.75), torch.tensor([4 / 9, 3 / 9, 2 / 9, 0], dtype=torch.float64)),
        (Draw(seed=9, top_k=3, top_p=0.5), torch.tensor([4 / 7, 3 / 7, 0, 0], dtype=torch.float64)),
    ],
    ids=["ancestral", "temperature", "top_k", "top_p", "both"],
)
def test_samples_are_as_frequent_as_they_are_likely(draw: Draw, expected: Tensor) -> None:
    """Pearson's chi-square of 4,000 draws; 16.27 is its 0.999 quantile for three degrees of freedom."""
    draws = 4000

    def step(tokens: Tensor, state: History) -> tuple[Tensor, History]:
        return CHANCES.log().expand(len(tokens), -1), state

    found = _samples(step, draw, draws, 1)
    counts = torch.bincount(torch.tensor([h.ids[0] if h.ids else 3 for h in found]), minlength=4)
    possible = expected > 0
    assert int(counts[~possible].sum()) == 0
    wanted = expected[possible] * draws
    assert float(((counts[possible] - wanted) ** 2 / wanted).sum()) < 16.27
    # What is reported is the model's, whatever the draw left of it.
    assert found[0].log_probability == pytest.approx(float(CHANCES[found[0].ids[0] if found[0].ids else 3].log()))


@pytest.mark.parametrize("sharpness", [0.01, 0.5, 3.0])
@pytest.mark.parametrize("draw", [Draw(), Draw(temperature=0.7, top_p=0.9), Draw(top_k=700, top_p=0.8)], ids=str)
def test_a_draw_that_looks_at_few_tokens_is_that_from_all_of_them(draw: Draw, sharpness: float) -> None:
    generator = np.random.default_rng(1)
    values = arrays.log_softmax(generator.normal(0, 1, (40, 2000)) * sharpness)
    keys = [(line, 1) for line in range(len(values))]
    chances = np.exp(values / draw.temperature)
    order = np.argsort(-chances, axis=1, kind="stable")
    chances = np.take_along_axis(chances, order, 1)
    chances[:, draw.top_k or len(chances[0]) :] = 0
    chances /= chances.sum(1, keepdims=True)
    chances[chances.cumsum(1) - chances >= draw.top_p] = 0
    reached = chances.cumsum(1)
    for row, key in enumerate(keys):
        wanted = _uniform(draw.seed, *key, 3) * reached[row, -1]
        assert draw.pick(values, keys, 3)[row] == order[row, np.searchsorted(reached[row], wanted, side="right")]
    assert [*draw.pick(torch.from_numpy(values), keys, 3)] == [*draw.pick(values, keys, 3)]
    assert [*draw.pick(values[5:9], keys[5:9], 3)] == [*draw.pick(values, keys, 3)][5:9]


def test_a_draw_is_a_function_of_its_key() -> None:
    step = _table(3, 0.3)
    whole = _samples(step, Draw(), 5)
    assert whole == _samples(step, Draw(), 5)
    assert whole[:2] == _samples(step, Draw(), 2)
    assert [h.ids for h in whole] != [h.ids for h in _samples(step, Draw(seed=2), 5)]


@pytest.mark.parametrize("average", ["probabilities", "logs"])
@pytest.mark.parametrize("seed", range(3))
def test_an_ensemble_of_a_model_with_itself_is_the_model(average: str, seed: int) -> None:
    step = _table(seed, 1.5)
    alone = _beam(step, n_best=4)
    state, first = _start(3)
    ensemble_with = toy.searched(
        beam_search,
        ensemble([step, step], average),
        Together((state, state)),
        first,
        width=4,
        max_length=torch.tensor([6] * 3),
        end=3,
        penalty=penalty_of("gnmt", 0.6),
        n_best=4,
    )
    assert [[h.ids for h in found] for found in ensemble_with] == [[h.ids for h in found] for found in alone]
    assert [h.score for f in ensemble_with for h in f] == pytest.approx([h.score for f in alone for h in f], abs=1e-5)


def test_an_ensemble_is_the_mean_that_it_names() -> None:
    one, two = torch.tensor([[0.8, 0.2]]), torch.tensor([[0.4, 0.6]])
    steps = [lambda tokens, state, p=p: (p.log(), state) for p in (one, two)]
    states = Together((History(torch.zeros(1, 1)),) * 2)
    mean, _ = ensemble(steps)(torch.zeros(1), states)
    assert np.exp(mean) == pytest.approx(np.array([[0.6, 0.4]]))
    product, _ = ensemble(steps, "logs")(torch.zeros(1), states)
    geometric = (one * two).sqrt()
    assert np.exp(product) == pytest.approx((geometric / geometric.sum()).numpy())


def _diverse(step: Any, sentences: int = 3, **changed: Any) -> Any:
    state, first = _start(sentences)
    settings = {
        "groups": 2,
        "diversity": 1.0,
        "width": 4,
        "max_length": torch.tensor([6] * sentences),
        "end": 3,
        "penalty": penalty_of("gnmt", 0.6),
    }
    return toy.searched(diverse_search, step, state, first, **(settings | changed))


@pytest.mark.parametrize("seed", range(4))
def test_a_diverse_beam_of_one_group_is_the_beam(seed: int) -> None:
    step = _table(seed, 1.0)
    assert _diverse(step, groups=1, n_best=3) == _beam(step, n_best=3)


@pytest.mark.parametrize("seed", range(4))
def test_a_diverse_beam_reports_the_models_log_probabilities_and_differs(seed: int) -> None:
    step = _table(seed, 0.5)
    first_tokens = []
    for diversity in (0.0, 50.0):
        found = _diverse(step, groups=4, n_best=4, diversity=diversity)
        for sentence, hypotheses in enumerate(found):
            assert len({tuple(h.ids) for h in hypotheses}) == len(hypotheses)
            for h in hypotheses:
                total, state = 0.0, History(torch.tensor([[sentence]]))
                for before, token in zip([9, *h.ids], [*h.ids, 3][: len(h.ids) + h.ended], strict=False):
                    values, state = step(torch.tensor([before]), state)
                    total += float(values[0, token])
                assert h.log_probability == pytest.approx(total, abs=1e-5)
                assert h.score == pytest.approx(total / penalty_of("gnmt", 0.6)(len(h.ids) + h.ended), abs=1e-5)
        first_tokens.append(sum(len({h.ids[:1][0] if h.ids else 3 for h in each}) for each in found))
    assert first_tokens[0] < first_tokens[1]
    # Batches do not matter.
    one = _diverse(step, 1, groups=2, n_best=2)
    assert one[0] == _diverse(step, 3, groups=2, n_best=2)[0]


@pytest.mark.parametrize("seed", range(3))
def test_a_wide_beam_with_coverage_equals_exhaustive_search(seed: int) -> None:
    table = _table(seed, 1.0)

    def looking(tokens: Tensor, state: History) -> tuple[Tensor, History, Tensor]:
        values, after = table(tokens, state)
        weights = torch.stack([torch.full((len(tokens),), 0.1), tokens / 10, 0.9 - tokens / 10], 1)
        return values, after, weights

    # Of a third token, which the longest source of a batch may have, this sentence knows nothing.
    step, begun = covered(looking, History(torch.zeros(2, 1, dtype=torch.long)), [2, 3])

    limit, penalty = 3, penalty_of("gnmt", 0.6)
    settings = {"end": 3, "penalty": penalty, "n_best": 3, "bonus": lambda s: coverage_penalty(s, 0.7)}
    found = toy.searched(
        beam_search,
        step,
        begun.select(torch.tensor([0])),
        torch.tensor([9]),
        width=VOCABULARY**limit,
        max_length=torch.tensor([limit]),
        **settings,  # type: ignore[arg-type]
    )[0]
    exact = toy.searched(
        exhaustive_search, step, begun.select(torch.tensor([0])), torch.tensor([9]), max_length=limit, **settings
    )  # type: ignore[arg-type]
    assert [h.ids for h in found] == [h.ids for h in exact]
    best = found[0]
    looked = [0.1 * (len(best.ids) + best.ended), sum([9, *best.ids][: len(best.ids) + best.ended]) / 10]
    wanted = 0.7 * sum(math.log(min(x, 1.0)) for x in looked)
    rank = best.log_probability / penalty(len(best.ids) + best.ended) + wanted
    assert best.score == pytest.approx(rank)


@pytest.mark.parametrize("seed", range(4))
def test_beams_stop_when_their_rule_says(seed: int) -> None:
    step = _table(seed, 1.0)
    exact, full, quick = (_beam(step, stop=stop)[0][0] for stop in ("bound", "full", "first"))
    assert exact == full
    assert quick.score <= exact.score
    many = _beam(step, stop="beam", n_best=4)[0]
    assert len(many) == 4
    assert quick.score <= many[0].score <= exact.score
    steps = 0

    def counting(tokens: Tensor, state: History) -> tuple[Tensor, History]:
        nonlocal steps
        steps += 1
        return step(tokens, state)  # type: ignore[no-any-return]

    taken = []
    for stop in ("first", "bound", "full", "beam"):
        steps = 0
        _beam(counting, 1, stop=stop)
        taken.append(steps)
    *taken, by_number = taken
    assert taken == sorted(taken)
    assert taken[-1] == 6
    assert taken[0] <= by_number <= 6


def test_what_a_beam_agrees_on_is_never_taken_back() -> None:
    for seed in range(12):
        state, first = _start(1)
        steps = toy.searched(
            beam_steps,
            _table(seed, 2.0),
            state,
            first,
            width=3,
            max_length=torch.tensor([7]),
            end=3,
            penalty=penalty_of("gnmt", 0.6),
        )
        agreed = []
        while True:
            try:
                agreed.append(next(steps).agreed())
            except StopIteration as finished:
                best = finished.value[0][0].ids
                break
        assert all(best[: len(ids)] == ids for ids in agreed)


def test_of_one_output_it_is_the_best_and_of_several_the_middle_one() -> None:
    def alike(a: str, b: str) -> float:
        return len(set(a) & set(b)) / len(set(a) | set(b))

    assert expected_utilities(["abc"], alike) == [1.0]
    values = expected_utilities(["ab", "abc", "bcd", "xyz", "abc"], alike)
    assert values[1] == values[4] == max(values)
    assert values[3] == min(values)
    assert values[0] == pytest.approx((1 + 2 / 3 + 1 / 4 + 0 + 2 / 3) / 5)
