"""Rules of a search: phrases in every segmentation, lengths, prefixes, repeats; met, or refused with a reason."""

from __future__ import annotations

import random
import re
from itertools import pairwise, product

import pytest
import torch
import toy
from test_laws_search import History
from torch import Tensor

from regard.search.beam import beam_search
from regard.search.constraints import Rules, allot, constrained
from regard.search.paths import Draw
from regard.search.table import penalty_of
from regard.studies.lectures.exhaustive import exhaustive_search
from regard.terminology.automaton import FAR, Phrases, Spelling, occurs

SPELT = [b" ", b"a", b"b", b"ab", b" a", b".", b"", b"ba"]
END = 6
SPELLING = Spelling(SPELT)
WORDS = ["a", "ab", "b", "a b", ".b", "abba", ".", "ba.", "aab"]


def text_of(ids: list[int] | tuple[int, ...]) -> str:
    return b"".join(SPELT[i] for i in ids).decode()


def has(text: str, phrase: str) -> bool:
    """By another way than the automaton's."""
    left = r"(?<!\w)" if re.match(r"\w", phrase) else ""
    right = r"(?!\w)" if re.search(r"\w$", phrase) else ""
    return re.search(left + re.escape(phrase) + right, text) is not None


def keeps(ids: list[int], limit: int, required: list[str], forbidden: list[str], rules: Rules, ended: bool) -> bool:
    text = text_of(ids)
    return (
        rules.minimum <= len(ids) + ended <= limit
        and tuple(ids[: len(rules.forced)]) == rules.forced[: len(ids)]
        and len(ids) >= len(rules.forced)
        and all(has(text, phrase) for phrase in required)
        and not any(has(text, phrase) for phrase in forbidden)
    )


def step_of(seed: int, sharpness: float = 2.0):  # type: ignore[no-untyped-def]
    """A distribution that depends on the last token and the place."""
    table = torch.randn(20, 10, len(SPELT), generator=torch.Generator().manual_seed(seed)) * sharpness

    def step(tokens: Tensor, state: History) -> tuple[Tensor, History]:
        place = state.prefix.shape[1]
        return table[place % 20, tokens].log_softmax(-1), History(torch.cat((state.prefix, tokens[:, None]), 1))

    return step


def start(rows: int) -> tuple[History, Tensor]:
    return History(torch.zeros(rows, 1, dtype=torch.long)), torch.full((rows,), 9)


@pytest.mark.parametrize("seed", range(12))
def test_the_automaton_finds_what_a_regular_expression_finds(seed: int) -> None:
    draw = random.Random(seed)
    required, forbidden = draw.sample(WORDS, draw.randint(0, 2)), draw.sample(WORDS, draw.randint(0, 2))
    phrases = Phrases(SPELLING, required, forbidden)
    shortest = FAR
    for length in range(4):
        for ids in product([i for i in range(len(SPELT)) if i != END], repeat=length):
            place, met = 0, 0
            for token in ids:
                place, met = phrases.move(place, met, token)
            text = text_of(ids)
            fits = all(has(text, w) for w in required) and not any(has(text, w) for w in forbidden)
            assert (phrases.distance[place, met] == 0) == fits, (text, required, forbidden)
            assert all(occurs(w, text) == has(text, w) for w in WORDS)
            shortest = min(shortest, length) if fits else shortest
    least = int(phrases.distance[0, 0])
    assert least == shortest or (least >= 4 and shortest == FAR)


@pytest.mark.parametrize("seed", range(6))
def test_a_wide_constrained_beam_equals_exhaustive_search_of_what_keeps_the_rules(seed: int) -> None:
    draw = random.Random(seed)
    limit = 4
    required, forbidden = draw.sample(WORDS[:5], draw.randint(0, 2)), draw.sample(WORDS[5:], 1)
    rules = Rules(limit, draw.randint(0, 3), 0, tuple(draw.choices([0, 1, 5], k=seed % 2)))
    rules = Rules(limit, rules.minimum, 0, rules.forced, Phrases(SPELLING, required, forbidden))
    penalty = penalty_of("gnmt", 0.6)
    state, first = start(1)
    step = step_of(seed)
    every = toy.searched(
        exhaustive_search, step, state, first, max_length=limit, end=END, penalty=penalty, n_best=10**6
    )
    fitting = [h for h in every if keeps(h.ids, limit, required, forbidden, rules, h.ended)]
    assert bool(fitting) == (rules.refusal() is None)
    for choose in (None, allot):
        found = toy.searched(
            beam_search,
            *constrained(step, state, [rules], END),
            first,
            width=len(SPELT) ** limit,
            max_length=torch.tensor([limit]),
            end=END,
            penalty=penalty,
            n_best=5,
            choose=choose,
        )[0]
        assert [h.ids for h in found] == [h.ids for h in fitting[:5]]
        assert [h.log_probability for h in found] == pytest.approx([h.log_probability for h in fitting[:5]])
    kept = toy.searched(
        exhaustive_search,
        *constrained(step, state, [rules], END),
        first,
        max_length=limit,
        end=END,
        penalty=penalty,
        n_best=5,
    )
    assert [h.ids for h in kept] == [h.ids for h in fitting[:5]]


def test_a_thousand_random_cases_keep_their_rules_or_are_refused() -> None:
    draw = random.Random(3)
    cases, refused = [], 0
    for _ in range(1000):
        required, forbidden = draw.sample(WORDS, draw.randint(0, 3)), draw.sample(WORDS, draw.randint(0, 2))
        limit, forced = draw.randint(1, 9), tuple(draw.choices([0, 1, 2, 4, 5], k=draw.randint(0, 2)))
        rules = Rules(limit, draw.randint(0, 6), draw.choice([0, 0, 3]), forced, Phrases(SPELLING, required, forbidden))
        reason = rules.refusal()
        if reason is None:
            cases.append((rules, required, forbidden))
        else:
            refused += 1
            assert re.search(r"at most|forbidden", reason)
    assert refused > 100 < len(cases)
    all_rules = [rules for rules, _, _ in cases]
    limits = torch.tensor([rules.limit for rules in all_rules])
    state, first = start(len(cases))
    beams = toy.searched(
        beam_search,
        *constrained(step_of(1), state, all_rules, END),
        first,
        width=3,
        max_length=limits,
        end=END,
        penalty=penalty_of("gnmt", 0.6),
        n_best=2,
        choose=allot,
    )
    samples = toy.searched(
        toy.sample_search,
        *constrained(step_of(1, 1.0), state, all_rules, END),
        first,
        max_length=limits,
        end=END,
        penalty=penalty_of("none", 0.0),
        draw=Draw(),
        keys=[(line, 1) for line in range(len(cases))],
    )
    dead = 0
    for (rules, required, forbidden), found, sample in zip(cases, beams, samples, strict=True):
        kept = [h for h in (*found, sample) if h.log_probability > float("-inf")]
        # With eight tokens, repeats and a least length may leave no way on: then nothing is given.
        dead += not kept
        assert kept or rules.no_repeat_ngram_size or rules.minimum
        for h in kept:
            assert keeps(h.ids, rules.limit, required, forbidden, rules, h.ended), (h, required, forbidden)
    assert dead < len(cases) / 50


def test_nothing_is_repeated_unless_it_is_required() -> None:
    limit = torch.tensor([14])
    state, first = start(1)
    step = step_of(5)

    def found(rules: Rules) -> list[int]:
        return toy.searched(
            beam_search,
            *constrained(step, state, [rules], END),
            first,
            width=4,
            max_length=limit,
            end=END,
            penalty=penalty_of("none", 0.0),
            choose=allot,
        )[0][0].ids

    free = found(Rules(14, 14))
    pairs = list(pairwise(free))
    assert len(set(pairs)) < len(pairs)
    ids = found(Rules(14, 14, 2))
    pairs = list(pairwise(ids))
    assert len(set(pairs)) == len(pairs) >= 12
    required = found(Rules(14, 0, 1, (), Phrases(SPELLING, ["abababab"])))
    assert has(text_of(required), "abababab")


def test_a_required_phrase_is_worth_its_place_in_the_beam() -> None:
    """With banks the phrase comes where it costs least, without them at the last moment."""
    rules = Rules(8, 0, 0, (), Phrases(SPELLING, ["ba."]))
    better = 0
    for seed in range(20):
        state, first = start(1)
        scores = [
            toy.searched(
                beam_search,
                *constrained(step_of(seed), state, [rules], END),
                first,
                width=4,
                max_length=torch.tensor([8]),
                end=END,
                penalty=penalty_of("none", 0.0),
                choose=choose,
            )[0][0].score
            for choose in (None, allot)
        ]
        better += scores[1] > scores[0] + 1e-9
        better -= scores[1] < scores[0] - 1e-9
    assert better >= 5


def test_refusals_say_why() -> None:
    assert "at least 9 tokens" in str(Rules(4, 9).refusal())
    assert "prefix has 3 tokens" in str(Rules(2, 0, 0, (1, 1, 1)).refusal())
    assert "contains a forbidden" in str(Rules(9, 0, 0, (5, 2), Phrases(SPELLING, [], [".b", "."])).refusal())
    assert "without the forbidden" in str(Rules(9, 0, 0, (), Phrases(SPELLING, ["a.b"], ["."])).refusal())
    assert "needs 4 tokens" in str(Rules(3, 0, 0, (1,), Phrases(SPELLING, ["...", "."])).refusal())
