"""What multiplying takes here is measured once, kept, and chooses the precision of training."""

from __future__ import annotations

import json

import pytest
import torch

from regard.kernels import native
from regard.train import resolve_precision

CPU = torch.device("cpu")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty folder of built libraries, on a processor with instructions for bfloat16."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    native.map_seconds.cache_clear()
    yield tmp_path / "regard"
    native.map_seconds.cache_clear()


def test_it_is_measured_once_and_kept(cache):
    before = torch.random.get_rng_state()
    took = native.map_seconds(32)
    assert set(took) == {"float32", "bfloat16"}
    assert torch.equal(torch.random.get_rng_state(), before)
    [file] = cache.glob("measured-*.json")
    file.write_text(json.dumps({"float32": 1.0, "bfloat16": 0.5}))
    native.map_seconds.cache_clear()
    assert native.map_seconds(32) == {"float32": 1.0, "bfloat16": 0.5}
    assert native.map_seconds_said(32) == "a map of width 32 takes 1000.00 ms in float32 and 500.00 ms in bfloat16"


@pytest.mark.parametrize("bfloat16", [0.5, 2.0])
def test_training_takes_what_is_quicker(cache, monkeypatch, bfloat16):
    monkeypatch.setattr(native, "_measured", lambda width: {"float32": 1.0, "bfloat16": bfloat16})
    assert resolve_precision("auto", CPU, 32) is (bfloat16 < 1.0)
    assert resolve_precision("bfloat16", CPU, 32)
    assert not resolve_precision("float32", CPU, 32)


@pytest.mark.parametrize("left", ["", "[]", '{"float32": "quick"}'])
def test_what_cannot_be_kept_or_is_damaged_is_measured_again(cache, monkeypatch, left):
    native.map_seconds(32)
    [file] = cache.glob("measured-*.json")
    file.write_text(left)
    monkeypatch.setattr(native, "folders", lambda: iter([cache]))
    native.map_seconds.cache_clear()
    assert set(native.map_seconds(32)) == {"float32", "bfloat16"}


def test_a_processor_without_instructions_is_not_asked(monkeypatch):
    for name in ("_is_amx_tile_supported", "_is_avx512_bf16_supported"):
        monkeypatch.setattr(torch.cpu, name, lambda: False)
    native.map_seconds.cache_clear()
    assert not resolve_precision("auto", CPU)
    assert native.map_seconds_said(512) == "no instructions for bfloat16 here"
    native.map_seconds.cache_clear()
