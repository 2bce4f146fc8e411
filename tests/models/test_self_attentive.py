"""Structured self-attention: hops that sum to one, a penalty as printed, and lines that do not see each other."""

from __future__ import annotations

from typing import Any

import torch
import toy
from torch import Tensor

from regard.language.self_attentive import Hops, Ngrams, SelfAttentiveConfig
from regard.nn.state import Observer

CONFIG = SelfAttentiveConfig(width=16, embedding=10, hops=3, score_width=8, hidden=12, dropout=0.0)


def _classes(model: Any, rows: list[list[int]], lay: Any, observe: Observer | None = None) -> Tensor:
    ids, layout = lay(rows)
    found: Tensor = model.project(model.classify(ids, layout, observe))
    return found


def test_padded_equals_packed_equals_alone() -> None:
    model = toy.make(CONFIG, dtype=torch.float64)
    rectangle = _classes(model, toy.SOURCES, toy.padded)
    torch.testing.assert_close(_classes(model, toy.SOURCES, toy.packed), rectangle, rtol=1e-10, atol=1e-10)
    for row, alone in zip(rectangle, toy.SOURCES, strict=True):
        torch.testing.assert_close(_classes(model, [alone], toy.padded)[0], row, rtol=1e-10, atol=1e-10)


def test_hops_sum_to_one_and_look_at_no_padding() -> None:
    observe = Observer("encoder")
    _classes(toy.make(CONFIG), toy.SOURCES, toy.padded, observe)
    (annotation,) = observe.weights["encoder"]
    assert annotation.shape == (3, 3, 1, 6)
    torch.testing.assert_close(annotation.sum(-1), torch.ones(3, 3, 1))
    for row, source in zip(annotation, toy.SOURCES, strict=True):
        assert row[..., len(source) :].eq(0).all()


def test_the_penalty_is_the_papers_and_of_real_lines_only() -> None:
    torch.manual_seed(0)
    hops = Hops(6, 4, 3, penalty=0.5).double().train()
    torch.nn.init.normal_(hops.query)
    states, lengths = torch.randn(3, 5, 6, dtype=torch.float64), torch.tensor([5, 2, 0])
    observe = Observer("encoder")
    hops(states, lengths, observe)
    (a,), (penalty,) = observe.weights["encoder"], observe.losses
    a = a[:, :, 0]
    alike = a[:2] @ a[:2].transpose(1, 2) - torch.eye(3, dtype=torch.float64)
    found = penalty(torch.zeros(3, dtype=torch.float64), torch.tensor([1.0, 1.0, 0.0]))
    torch.testing.assert_close(found, 0.5 * torch.linalg.matrix_norm(alike).square().sum())
    unused = Observer()
    hops.eval()(states, lengths, unused)
    assert not unused.losses


VOTING = CONFIG.model_copy(update={"ngrams": 3, "ngram_width": 5, "buckets": 1000, "ngram_dropout": 0.0})


def _voting(config: SelfAttentiveConfig = VOTING, dtype: torch.dtype = torch.float64) -> Any:
    made = toy.make(config, dtype=dtype)
    torch.nn.init.normal_(made.ngrams.table.weight, generator=torch.Generator().manual_seed(3))
    return made


def test_n_grams_are_counted_inside_of_each_line() -> None:
    model = _voting()
    rectangle = _classes(model, toy.SOURCES, toy.padded)
    torch.testing.assert_close(_classes(model, toy.SOURCES, toy.packed), rectangle, rtol=1e-10, atol=1e-10)
    for row, alone in zip(rectangle, toy.SOURCES, strict=True):
        torch.testing.assert_close(_classes(model, [alone], toy.padded)[0], row, rtol=1e-10, atol=1e-10)
    for source in [*toy.SOURCES, [7]]:  # a line of one token has no longer n-grams
        ids, layout = toy.padded([source])
        found, inside = model.ngrams.hashes(ids, layout.lengths)
        codes = found[inside].tolist()
        grams = [tuple(source[i : i + n]) for n in (1, 2, 3) for i in range(len(source) - n + 1)]
        assert len(codes) == len(grams)
        assert len(set(zip(codes, grams, strict=True))) == len(set(grams)), "equal n-grams have equal hashes"
        wanted = model.ngrams.table.weight[codes].sum(0)
        torch.testing.assert_close(model.ngrams(ids, layout.lengths)[0], wanted)
        for power in (0.5, 1.0):  # 1: the mean
            other = _voting(VOTING.model_copy(update={"ngram_power": power}))
            torch.testing.assert_close(other.ngrams(ids, layout.lengths)[0], wanted / len(codes) ** power)


def test_hashes_of_n_grams_spread_over_all_buckets() -> None:
    grams = torch.cartesian_prod(torch.arange(4, 84), torch.arange(4, 84))  # 6,400 pairs of tokens
    ngrams = Ngrams(2, 1, buckets=1000, power=0.0, dropout=0.0)
    found = ngrams.hashes(grams, torch.full((len(grams),), 2))[0][:, -1]
    counts = torch.bincount(found, minlength=1000)
    assert (counts > 0).float().mean() > 0.99, "by chance 1 - exp(-6.4) of them are met"
    assert counts.max() < 25


def test_in_training_a_line_is_judged_by_its_embedding_or_by_its_n_grams() -> None:
    model = _voting(dtype=torch.float32)
    ids, layout = toy.padded([[5, 6, 7, 8]] * 200)
    width = VOTING.ngram_width
    with torch.no_grad():
        both, one = model.eval().classify(ids, layout), model.train().classify(ids, layout)
    by_ngrams = (one[:, :-width] == 0).all(1)
    assert (one[by_ngrams, -width:] == 2 * both[by_ngrams, -width:]).all()
    assert (one[~by_ngrams, -width:] == 0).all()
    torch.testing.assert_close(one[~by_ngrams, :-width], 2 * both[~by_ngrams, :-width])
    assert 60 < int(by_ngrams.sum()) < 140
    model.ngram_alone = 0.5
    with torch.no_grad():
        mixed = model.classify(ids, layout)
    by_both = (mixed == both).all(1)
    assert 60 < int(by_both.sum()) < 140
    by_one = ((mixed[:, :-width] == 0).all(1) | (mixed[:, -width:] == 0).all(1))[~by_both]
    assert by_one.all()
    plain = toy.make(CONFIG, dtype=torch.float32)
    with torch.no_grad():
        torch.testing.assert_close(plain.train().classify(ids, layout), plain.eval().classify(ids, layout))
