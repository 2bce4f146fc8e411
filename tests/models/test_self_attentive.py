"""Structured self-attention: hops that sum to one, a penalty as printed, and lines that do not see each other."""

from __future__ import annotations

from typing import Any

import torch
import toy
from torch import Tensor

from regard.language.self_attentive import Hops, SelfAttentiveConfig
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
