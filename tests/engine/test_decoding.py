"""The compiled decoder: float32 equal to the model's page and the reference searches, the coarser precisions equal to
the same rounding written in PyTorch, and a sentence's translation the same bits whatever its neighbours are."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toy
from torch import Tensor, nn

from regard.engine import decoding
from regard.engine.packing import compiled, packed, refuses
from regard.models.transformer import TransformerConfig
from regard.recipe import load
from regard.search.constraints import Rules
from regard.search.table import SearchConfig, penalty_of
from regard.tasks.decode import decode
from regard.tasks.engine import Backend
from regard.text import BEGIN, END

pytestmark = pytest.mark.skipif(decoding.refusal() is not None, reason=str(decoding.refusal()))

SOURCES = [[5, 6, 7], [8], [9, 10, 11, 12, 13], [4, 5], [6, 6, 6, 6, 6, 6, 6, 6, 6], [18, 4]]
SMALL = TransformerConfig(width=16, heads=2, feedforward=32, encoder_layers=2, decoder_layers=2, dropout=0.0)
TURNED = SMALL.model_copy(update={"positions": "rotary", "norm": "pre"})
RECURRENT = SMALL.model_copy(update={"decoder_mixer": "ssru", "norm": "pre"})
KINDS = pytest.mark.parametrize("config", [SMALL, TURNED, RECURRENT], ids=["added", "turned", "recurrent"])
CONFIGS = {
    **{name: config for name, config in toy.CONFIGS.items() if refuses(config) is None},
    **{
        activation: SMALL.model_copy(update={"activation": activation, "norm": "pre"})
        for activation in ("gelu", "silu")
    },
    "dot, output bias": SMALL.model_copy(update={"score": "dot", "output_bias": True}),
    "whole vectors a head, one layer less": SMALL.model_copy(update={"width": 96, "heads": 3, "decoder_layers": 1}),
    "heads of 64, as in the base model": SMALL.model_copy(update={"width": 128}),
    "no whole vectors at all": SMALL.model_copy(
        update={"width": 22, "feedforward": 35, "norm": "pre", "share": "none"}
    ),
    "one vector and a bit": SMALL.model_copy(update={"width": 18, "feedforward": 50, "positions": "learned"}),
    "heads that were pruned": SMALL.model_copy(
        update={"heads": 4, "encoder_heads": (3, 1), "decoder_heads": (4, 2), "cross_heads": (1, 3)}
    ),
    "heads of 64 that were pruned": SMALL.model_copy(
        update={"width": 256, "heads": 4, "norm": "pre", "encoder_heads": (1, 4), "cross_heads": (2, 3)}
    ),
    "turned by rotary positions": TURNED,
    "turned, no whole vectors": SMALL.model_copy(update={"positions": "rotary", "width": 20, "feedforward": 35}),
    "turned, heads of 64 that were pruned": SMALL.model_copy(
        update={"positions": "rotary", "width": 128, "encoder_heads": (1, 2), "decoder_heads": (2, 1)}
    ),
    "an SSRU, no whole vectors": RECURRENT.model_copy(update={"width": 22, "feedforward": 35, "share": "none"}),
    "an SSRU, wider than keys and values": RECURRENT.model_copy(update={"width": 96, "key_width": 4, "value_width": 4}),
    "an SSRU after turned positions": RECURRENT.model_copy(update={"positions": "rotary", "norm": "post"}),
    "keys narrower than values": SMALL.model_copy(update={"key_width": 5, "value_width": 70, "share": "none"}),
}


def found(model: nn.Module, config: Any, search: SearchConfig, precision: str = "float32", n_best: int = 1) -> Any:
    """What the compiled decoder finds; ids, log-probability, score and whether it ended, of each hypothesis."""
    return searched(compiled(model, config, precision), search, n_best)


def searched(decoder: decoding.Decoder, search: SearchConfig, n_best: int = 1) -> Any:
    greedy = search.beam == 1 and n_best == 1
    return decoder.search(
        [[*source, END] for source in SOURCES],
        [len(source) + search.extra_length for source in SOURCES],
        decoding.Beam(
            width=max(search.beam, n_best),
            n_best=n_best,
            batch=search.batch_size,
            stop="first" if greedy else search.stop,
            begin=BEGIN,
            end=END,
            penalty=penalty_of(search.penalty, search.alpha),
        ),
    )


def same(ours: Any, reference: Any, tolerance: float) -> None:
    for mine, other in zip(ours, reference, strict=True):
        assert [h[0] for h in mine] == [h.ids for h in other]
        assert [h[3] for h in mine] == [h.ended for h in other]
        for number, field in ((1, "log_probability"), (2, "score")):
            assert [h[number] for h in mine] == pytest.approx([getattr(h, field) for h in other], abs=tolerance)


@pytest.mark.parametrize("name", CONFIGS)
def test_float32_finds_what_the_reference_finds_in_float64(name):
    config = CONFIGS[name]
    model = toy.make(config, vocabulary=90)  # more than a panel, and not a whole number of them
    for beam, n_best in ((1, 1), (4, 1), (3, 3)):
        search = SearchConfig(beam=beam, extra_length=20, batch_size=3)
        reference = decode(model, SOURCES, search, n_best=n_best)
        same(found(model, config, search, n_best=n_best), reference, 2e-5)


@pytest.mark.parametrize("stop", decoding.STOPS)
@pytest.mark.parametrize(("penalty", "alpha"), [("none", 0.0), ("power", 1.0), ("gnmt", 2.0)])
def test_stopping_rules_and_penalties(stop, penalty, alpha):
    model = toy.make(SMALL)
    search = SearchConfig(beam=5, stop=stop, penalty=penalty, alpha=alpha, extra_length=9, batch_size=2)
    same(found(model, SMALL, search, n_best=2), decode(model, SOURCES, search, n_best=2), 2e-5)


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("rules", [{"min_length": 9}, {"no_repeat_ngram_size": 1}, {"no_repeat_ngram_size": 3}])
def test_rules_that_are_inside_of_the_decoder_are_those_of_the_reference(beam, rules):
    model = toy.make(SMALL, vocabulary=30)
    decoder = compiled(model, SMALL, "float32")
    search = SearchConfig(beam=beam, extra_length=9, batch_size=3, **rules)
    ours = decode(Backend(decoders=[decoder]), SOURCES, search, n_best=beam)
    same(
        [[(h.ids, h.log_probability, h.score, h.ended) for h in each] for each in ours],
        decode(model, SOURCES, search, n_best=beam),
        2e-5,
    )
    assert ours == decode(
        Backend(decoders=[decoder]), SOURCES, search.model_copy(update={"batch_size": 1}), n_best=beam
    )


@pytest.mark.parametrize("stretch", [0.2, 1.0, 8.0])  # from nearly even to nearly certain
def test_many_outputs_are_screened_and_what_is_best_is_not_changed(stretch):
    """With so many tokens most outputs come from bfloat16, where the processor has products in it."""
    config = SMALL.model_copy(update={"width": 64, "output_bias": True})
    model = toy.make(config, vocabulary=9000)
    with torch.no_grad():
        table = next(p for p in model.parameters() if p.shape[0] == 9000)
        table.mul_(stretch).add_(torch.randn(table.shape[1]))  # all tokens share a part, as trained ones do
    for beam in (1, 4):
        search = SearchConfig(beam=beam, extra_length=9, batch_size=3)
        tolerance = 5e-5 if stretch < 4.0 else 1e-3  # errors of bfloat16 grow with the outputs
        same(found(model, config, search, n_best=beam), decode(model, SOURCES, search, n_best=beam), tolerance)
        alone = search.model_copy(update={"batch_size": 1})
        assert found(model, config, alone, n_best=beam) == found(model, config, search, n_best=beam)


def test_a_beam_wider_than_the_vocabulary():
    model = toy.make(SMALL, vocabulary=20)
    search = SearchConfig(beam=24, extra_length=2)
    same(found(model, SMALL, search, n_best=24), decode(model, SOURCES, search, n_best=24), 2e-5)


@KINDS
@pytest.mark.parametrize("precision", decoding.PRECISIONS)
def test_neighbours_change_no_bit(precision, config):
    model = toy.make(config, vocabulary=90)
    results = [
        found(model, config, SearchConfig(beam=4, extra_length=30, batch_size=size), precision, n_best=4)
        for size in (1, 2, 5, 32)
    ]
    assert all(result == results[0] for result in results)


@pytest.mark.parametrize("share", ["target", "all"])
@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_a_table_that_is_the_output_is_in_memory_once_and_no_bit_changes(precision, share):
    config = SMALL.model_copy(update={"width": 18, "share": share})
    model = toy.make(config, vocabulary=90)
    weights = {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}
    table = weights["source.table.weight" if share == "all" else "target.table.weight"]
    apart = weights | {"target.table.weight": table.copy(), "output.weight": table}

    def whole(name: str) -> Any:
        if name not in ("source.table.weight", "target.table.weight", "output.weight"):
            return None
        scale = np.maximum(abs(apart[name]).max(1), 1e-9) / 127  # the padding's row is all zero
        return np.rint(apart[name] / scale[:, None]).astype(np.int8), scale

    once, twice = (packed(each, config, precision, whole) for each in (weights, apart))
    assert [words.table is None for words in once.words] == [share == "all", True]
    assert [words.table is None for words in twice.words] == [False, False]
    search = SearchConfig(beam=4, extra_length=12)
    assert searched(once, search, 4) == searched(twice, search, 4)


@KINDS
@pytest.mark.parametrize("settings", [{"samples": 3}, {"groups": 2}, {"no_repeat_ngram_size": 2, "beam": 1}])
def test_searches_in_python_have_its_step(settings, config):
    model = toy.make(config, vocabulary=90)
    search = SearchConfig(**{"beam": 4, "extra_length": 12, "batch_size": 3, **settings})
    for precision in ("float32", "int8"):
        decoder = compiled(model, config, precision)
        ours = decode(Backend(decoders=[decoder]), SOURCES, search)
        assert ours == decode(Backend(decoders=[decoder]), SOURCES, search.model_copy(update={"batch_size": 1}))
        if precision == "float32":
            plain = [[(h.ids, h.log_probability, h.score, h.ended) for h in each] for each in ours]
            same(plain, decode(model, SOURCES, search), 2e-5)


@KINDS
@pytest.mark.parametrize("precision", decoding.PRECISIONS)
def test_the_step_and_the_search_inside_are_one(precision, config):
    decoder = compiled(toy.make(config, vocabulary=90), config, precision)
    search = SearchConfig(beam=3, extra_length=12)
    inside = decode(Backend(decoders=[decoder]), SOURCES, search)
    # A rule that asks for nothing takes the search out of the compiled decoder.
    outside = decode(Backend(decoders=[decoder]), SOURCES, search, rules=lambda index, limit: Rules(limit))
    same([[(h.ids, h.log_probability, h.score, h.ended) for h in each] for each in inside], outside, 1e-5)


class _Rounded(nn.Module):
    """A linear map whose weights and rows are rounded as the compiled decoder rounds them."""

    def __init__(self, linear: nn.Linear, precision: str, keys_from: int | None) -> None:
        super().__init__()
        self.bias, self.precision, self.keys_from = linear.bias, precision, keys_from
        if precision == "bfloat16":
            self.weight = linear.weight.bfloat16().float()
        else:
            scale = linear.weight.abs().amax(1, keepdim=True) / 127
            self.weight = (linear.weight / scale).round() * scale

    def forward(self, x: Tensor) -> Tensor:
        if self.precision == "bfloat16":
            x = x.bfloat16().float()
        else:
            low, high = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
            x = low + ((x - low) * (255 / (high - low))).round() * (high - low) / 255
        out = x @ self.weight.T + (0 if self.bias is None else self.bias)
        return out if self.keys_from is None else out.bfloat16().float()  # keys and values are kept in bfloat16


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_coarser_precisions_are_the_same_rounding_in_pytorch(precision):
    # Heads of 16, for the scale of the scores is then a power of two, which changes no rounding.
    config = SMALL.model_copy(update={"width": 64, "heads": 4, "feedforward": 128, "share": "none"})
    model = toy.make(config, vocabulary=90)
    rounded = copy.deepcopy(model)
    for name, module in list(rounded.named_modules()):
        if isinstance(module, nn.Linear):
            owner, _, last = name.rpartition(".")
            kept = 0 if last == "key_value" else None
            setattr(rounded.get_submodule(owner), last, _Rounded(module, precision, kept))
    search = SearchConfig(beam=3, extra_length=5)
    with torch.no_grad():
        reference = decode(rounded, SOURCES, search.model_copy(update={"precision": "float32"}))
    ours = found(model, config, search, precision)
    same(ours, reference, 0.02)
    exact = decode(model, SOURCES, search)
    off = [abs(mine[0][1] - other[0].log_probability) for mine, other in zip(ours, reference, strict=True)]
    coarse = [abs(mine[0][1] - other[0].log_probability) for mine, other in zip(ours, exact, strict=True)]
    assert sum(off) < sum(coarse) / 4  # what is left is far less than what rounding changes


def test_what_cannot_be_compiled_is_refused_in_words():
    assert refuses(SMALL) is None
    for config, device, reason in (
        (SMALL, "cuda:0", "for CPUs"),
        (SMALL.model_copy(update={"positions": "elsewhere"}), "cpu", "model.positions = 'elsewhere'"),
        (next(c for c in toy.CONFIGS.values() if c.family != "transformer"), "cpu", "knows the transformer"),
    ):
        assert reason in str(refuses(config, device))


def test_every_transformer_of_the_recipes_is_compiled():
    """Else a recipe's choice would make its translator slow without a word."""
    paths = sorted((Path(__file__).parents[2] / "recipes").rglob("*.toml"))
    wanted = [dict.fromkeys(re.findall(r"\$\{(\w+)\}", path.read_text("utf-8")), "data") for path in paths]
    models = {path: load(path, variables).model for path, variables in zip(paths, wanted, strict=True)}
    found = {str(path): refuses(model) for path, model in models.items() if model.family == "transformer"}
    assert len(found) > 9
    assert not any(found.values()), found


def test_nothing_to_translate():
    assert decode(Backend(decoders=[compiled(toy.make(SMALL), SMALL, "int8")]), [], SearchConfig()) == []
