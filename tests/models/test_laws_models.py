"""Laws 2 to 4, in float64: pieces equal the whole; the future, padding and neighbours are invisible."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import toy
from torch import Tensor

from regard.models import FAMILIES
from regard.models.transformer import TransformerConfig
from regard.nn.state import Observer

EVERY = pytest.mark.parametrize("config", toy.CONFIGS.values(), ids=toy.CONFIGS)


def _logits(model: Any, sources: list[list[int]], targets: list[list[int]], lay: Any = toy.padded) -> list[Tensor]:
    """Logits (T, V) of each target."""
    source, reading = lay(sources)
    target, writing = lay(targets)
    hidden, _ = model.decode(target, model.start(model.encode(source, reading), reading), writing)
    logits = model.project(hidden)
    sizes = [len(t) for t in targets]
    if lay is toy.packed:
        return list(logits.split(sizes))
    return [row[:n] for row, n in zip(logits, sizes, strict=True)]


def _close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@EVERY
def test_decoding_in_any_split_equals_decoding_at_once(config: TransformerConfig) -> None:
    model: Any = toy.make(config, dtype=torch.float64)
    source, reading = toy.padded(toy.SOURCES)
    tokens = torch.randint(4, 20, (3, 7), generator=torch.Generator().manual_seed(5))
    memory = model.encode(source, reading)
    whole, _ = model.decode(tokens, model.start(memory, reading))
    for capacity in (None, 7, 30):
        for split in ([1] * 7, [3, 4], [1, 5, 1], [7]):
            state = model.start(memory, reading, capacity)
            parts = []
            for part in tokens.split(split, dim=1):
                hidden, state = model.decode(part, state)
                parts.append(hidden)
            _close(torch.cat(parts, 1), whole)


@EVERY
def test_a_selected_state_goes_on_as_its_row_would(config: TransformerConfig) -> None:
    model: Any = toy.make(config, dtype=torch.float64)
    source, reading = toy.padded(toy.SOURCES)
    tokens = torch.randint(4, 20, (3, 4), generator=torch.Generator().manual_seed(5))
    memory = model.encode(source, reading)
    whole, _ = model.decode(tokens, model.start(memory, reading))
    rows = torch.tensor([2, 0, 0, 1])
    for capacity in (None, 6):
        _, state = model.decode(tokens[:, :3], model.start(memory, reading, capacity))
        last, _ = model.decode(tokens[rows, 3:], state.select(rows))
        _close(last[:, 0], whole[rows, 3])


@EVERY
def test_padded_equals_packed_equals_alone(config: TransformerConfig) -> None:
    model = toy.make(config, dtype=torch.float64)
    rectangle = _logits(model, toy.SOURCES, toy.TARGETS)
    pack = _logits(model, toy.SOURCES, toy.TARGETS, toy.packed)
    for i, (a, b) in enumerate(zip(rectangle, pack, strict=True)):
        _close(a, b)
        _close(a, _logits(model, [toy.SOURCES[i]], [toy.TARGETS[i]])[0])


@EVERY
def test_padding_is_invisible_to_gradients(config: TransformerConfig) -> None:
    def gradients(lay: Any) -> dict[str, Tensor]:
        model = toy.make(config, dtype=torch.float64)
        torch.stack([x.square().mean() for x in _logits(model, toy.SOURCES, toy.TARGETS, lay)]).sum().backward()
        return {n: p.grad for n, p in model.named_parameters() if p.grad is not None}

    rectangle, pack = gradients(toy.padded), gradients(toy.packed)
    assert rectangle.keys() == pack.keys()
    for name, value in rectangle.items():
        _close(value, pack[name])


@EVERY
def test_the_future_is_invisible(config: TransformerConfig) -> None:
    model = toy.make(config, dtype=torch.float64)
    before = _logits(model, toy.SOURCES, toy.TARGETS)
    changed = [[*t[:2], *(17 for _ in t[2:])] for t in toy.TARGETS]
    after = _logits(model, toy.SOURCES, changed)
    for a, b, target in zip(before, after, toy.TARGETS, strict=True):
        _close(a[:2], b[:2])
        if len(target) > 2:
            assert not torch.allclose(a[2:], b[2:])


@EVERY
def test_the_source_is_seen(config: TransformerConfig) -> None:
    model = toy.make(config, dtype=torch.float64)
    other = [[7, *s[1:]] for s in toy.SOURCES]
    for a, b in zip(_logits(model, toy.SOURCES, toy.TARGETS), _logits(model, other, toy.TARGETS), strict=True):
        assert not torch.allclose(a, b)


def test_recorded_attention_sums_to_one_and_looks_at_no_padding() -> None:
    model: Any = toy.make(toy.CONFIGS["post-sinusoidal-all"])
    source, reading = toy.padded(toy.SOURCES)
    target, writing = toy.padded(toy.TARGETS)
    observe = Observer("encoder", "cross")
    memory = model.encode(source, reading, observe)
    model.decode(target, model.start(memory, reading), writing, observe)
    own, cross = observe.weights["encoder"], observe.weights["cross"]
    assert [w.shape for w in own] == [(3, 2, 6, 6)] * 2
    assert [w.shape for w in cross] == [(3, 2, 7, 6)] * 2
    for weights in (*own, *cross):
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
        for row, source_row in zip(weights, toy.SOURCES, strict=True):
            assert row[..., len(source_row) :].eq(0).all()


@EVERY
def test_whoever_looks_at_the_source_records_it_and_sees_no_padding(config: Any) -> None:
    model: Any = toy.make(config)
    source, reading = toy.padded(toy.SOURCES)
    target, writing = toy.padded(toy.TARGETS)
    observe = Observer("cross")
    model.decode(target, model.start(model.encode(source, reading), reading), writing, observe)
    cross = observe.weights["cross"]
    layers, heads = FAMILIES[config.family].cross_attention(config)
    assert [w.shape for w in cross] == [(3, heads, 7, 6)] * layers
    for weights in cross:
        sums = weights.sum(-1)  # of local attention's with a Gaussian, below one
        assert (sums > 0).any()
        assert (sums <= 1 + 1e-5).all()
        for row, source_row in zip(weights, toy.SOURCES, strict=True):
            assert row[..., len(source_row) :].eq(0).all()
