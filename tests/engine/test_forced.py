"""Forced decoding inside of the compiled engine: equal to the model's page in float64, and the same bits whatever else
is decoded with it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import toy
from test_decoding import CONFIGS, KINDS, SMALL, SOURCES

from regard.engine import decoding
from regard.engine.packing import compiled
from regard.errors import KernelError, ModelError
from regard.tasks.engine import Backend, exact_copy
from regard.tasks.forced import forced

pytestmark = pytest.mark.skipif(decoding.refusal() is not None, reason=str(decoding.refusal()))

TARGETS = [[7, 8, 9], [], [*range(20, 48)], [88], [5, 5, 5, 5], [10, 80, 89]]
CLOSE = {"float32": (2e-5, 1e-5), "bfloat16": (0.15, 0.05), "int8": (0.3, 0.1)}
"""How far log-probabilities and weights may be from those of float64."""


@pytest.mark.parametrize("name", CONFIGS)
def test_float32_is_the_reference_in_float64(name):
    model = toy.make(CONFIGS[name], vocabulary=90)
    both = Backend([exact_copy(model)]), Backend(decoders=[compiled(model, CONFIGS[name], "float32")])
    for temperature in (1.0, 0.7):
        known, ours = (forced(each, SOURCES, TARGETS, temperature=temperature, attention=True) for each in both)
        for one, other in zip(known, ours, strict=True):
            assert other.log_probabilities == pytest.approx(one.log_probabilities, abs=2e-5)
            assert len(one.attention) == len(other.attention) == CONFIGS[name].decoder_layers
            for mine, its in zip(one.attention, other.attention, strict=True):
                assert np.abs(mine - its).max() < 1e-5


@KINDS
@pytest.mark.parametrize("precision", decoding.PRECISIONS)
def test_every_precision_is_as_near_as_its_numbers_are(precision, config):
    model = toy.make(config, vocabulary=90)
    known = forced(exact_copy(model), SOURCES, TARGETS, attention=True)
    ours = forced(Backend(decoders=[compiled(model, config, precision)]), SOURCES, TARGETS, attention=True)
    scores, weights = CLOSE[precision]
    for one, other in zip(known, ours, strict=True):
        assert other.log_probabilities == pytest.approx(one.log_probabilities, abs=scores)
        assert all(np.abs(a - b).max() < weights for a, b in zip(one.attention, other.attention, strict=True))


@pytest.mark.parametrize("precision", decoding.PRECISIONS)
def test_neighbours_change_no_bit(precision, monkeypatch):
    backend = Backend(decoders=[compiled(toy.make(SMALL, vocabulary=90), SMALL, precision)])
    many = [[*source, *range(4, 30)] for source in SOURCES] * 12  # more tokens than are worked on together
    results = []
    for size, threads in ((1, "1"), (7, "2"), (128, "5")):
        monkeypatch.setattr(decoding, "default_threads", lambda threads=threads: int(threads))
        results.append(forced(backend, many, TARGETS * 12, attention=True, batch_size=size))
    for one, other in pairwise(results):
        for a, b in zip(one, other, strict=True):
            assert a.log_probabilities == b.log_probabilities
            assert all(np.array_equal(x, y) for x, y in zip(a.attention, b.attention, strict=True))


def test_what_it_is_forced_to_is_what_the_search_found():
    decoder = compiled(toy.make(SMALL, vocabulary=90), SMALL, "float32")
    how = decoding.Beam(3, 1, 8, "bound", 2, 3, penalty=lambda length: 1.0)
    found = decoder.search([[*source, 3] for source in SOURCES], [12] * len(SOURCES), how)
    for source, [(ids, total, _, ended)] in zip(SOURCES, found, strict=True):
        [(likely, _)] = decoder.forced([[*source, 3]], [ids], (2, 3))
        assert sum(likely if ended else likely[:-1]) == pytest.approx(total, abs=2e-5)


def test_only_what_is_asked_for_is_there():
    decoder = compiled(toy.make(SMALL), SMALL, "float32")
    [(likely, weights)] = decoder.forced([[5, 6, 3]], [[7]], (2, 3), scores=False, layers=[1])
    assert likely == []
    assert [each.shape for each in weights] == [(SMALL.heads, 2, 3)]
    assert weights[0].sum(-1) == pytest.approx(1.0, abs=1e-6)
    both = decoder.forced([[5, 6, 3]], [[7]], (2, 3), layers=[0, 1])[0][1]
    assert np.array_equal(both[1], weights[0])


@pytest.mark.parametrize(
    "changes",
    [{"targets": [[99]]}, {"sources": [[99]]}, {"ends": (2, 99)}, {"layers": [2]}, {"temperature": 0.0}],
    ids=str,
)
def test_what_is_not_there_is_refused(changes):
    decoder = compiled(toy.make(SMALL, vocabulary=30), SMALL, "float32")
    with pytest.raises((ModelError, KernelError)):
        decoder.forced(**{"sources": [[5, 3]], "targets": [[]], "ends": (2, 3), **changes})
