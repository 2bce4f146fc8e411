"""Smaller bundles: they load everywhere, say what changed, and their whole numbers are those that are multiplied."""

from __future__ import annotations

import json

import pytest
import torch
from bundles import ENGLISH, GERMAN, small_bundle
from typer.testing import CliRunner

from regard import bundle as bundles
from regard.apps.cli import app
from regard.bundle import SCALE
from regard.engine import decoding
from regard.errors import BundleError, ModelError, TextError
from regard.inspection.inspect import verify
from regard.tasks.translate import load
from regard.tuning.quantize import KINDS, quantize, quantized


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "bundle"
    small_bundle(path)
    return path


@pytest.mark.parametrize("to", KINDS)
def test_a_smaller_bundle_is_used_like_any_other(whole, tmp_path, to):
    found = quantize(whole, tmp_path / "small", to=to, source=ENGLISH, reference=GERMAN)
    small = bundles.load(tmp_path / "small")
    assert found.bytes_after == small.files["weights.safetensors"].size
    assert found.bytes_after < found.bytes_before * (0.7 if to == "bfloat16" else 0.6)
    assert found.lines == len(ENGLISH)
    assert found.scores is not None
    assert set(found.scores) == {"bleu", "chrf"}
    assert small.parameters == bundles.load(whole).parameters
    assert small.provenance.notes["quantized"] == to
    verify(small)
    weights, before = (dict(bundle.model().named_parameters()) for bundle in (small, bundles.load(whole)))
    for name, weight in before.items():
        rough = weight.abs().amax(-1, keepdim=True) * (1 / 254 if to == "int8" else 1 / 256)
        assert torch.all((weights[name] - weight).abs() <= rough * 1.001), name
    translator = load(tmp_path / "small")
    assert translator.recipe.search.precision == to
    assert len(translator.translate(ENGLISH[:3])) == 3


def test_whole_numbers_and_scales_come_back_as_they_were():
    torch.manual_seed(0)
    weight = torch.randn(48, 64)
    weight[3] = 0
    stored = quantized({"a": weight, "b": weight[0]}, "int8")
    assert stored["a"].dtype == torch.int8
    assert torch.equal(stored["b"], weight[0])
    again = quantized({"a": stored["a"].float() * stored["a" + SCALE][:, None]}, "int8")
    assert torch.equal(again["a"], stored["a"])
    assert torch.allclose(again["a" + SCALE], stored["a" + SCALE], rtol=1e-6)


def test_mistakes(whole, tmp_path):
    with pytest.raises(ModelError, match="--to int4: must be one of int8, bfloat16"):
        quantize(whole, tmp_path / "out", to="int4")
    with pytest.raises(TextError, match="12 source lines but 1 reference lines"):
        quantize(whole, tmp_path / "out", source=ENGLISH, reference=["eins"])
    kept = bundles.load(whole).files
    with pytest.raises(BundleError, match="is the bundle itself, which would be lost"):
        quantize(whole, whole.parent / "." / whole.name)
    assert bundles.load(whole).files == kept


def test_lines_for_several_languages_are_told_to_carry_a_tag_and_not_the_kind_of_weights(tmp_path):
    small_bundle(tmp_path / "many", tags=("de", "fr"))
    with pytest.raises(TextError, match=r"line 2 .*begin it with one of <2de>, <2fr> and a space\.$"):
        quantize(tmp_path / "many", tmp_path / "small", source=["<2de> A man.", "A man."])
    assert not (tmp_path / "small").exists()


def test_the_command(whole, tmp_path):
    done = CliRunner().invoke(app, ["quantize", str(whole), str(tmp_path / "out"), "--json"])
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert found["lines"] == 3  # the golden sentences
    assert (found["to"], found["scores"]) == ("int8", None)


def test_a_model_put_aside_is_read_again_unless_the_bundle_is_another(tmp_path):
    small_bundle(tmp_path / "bundle")
    translator, fresh = load(tmp_path / "bundle"), load(tmp_path / "bundle")
    translator.translate(ENGLISH, search={"precision": "int8"})
    assert [t.text for t in translator.translate(ENGLISH)] == [t.text for t in fresh.translate(ENGLISH)]
    again = load(tmp_path / "bundle")
    again.translate(ENGLISH, search={"precision": "int8"})
    small_bundle(tmp_path / "bundle", seed=2)
    assert again.translate(ENGLISH, search={"precision": "int8"})
    if decoding.refusal() is None:
        with pytest.raises(BundleError, match="is another bundle than the one that was opened"):
            again.translate(ENGLISH)
