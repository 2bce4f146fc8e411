"""Attributions: equal to inseq's, to finite differences, complete, and shown as attention is."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from bundles import ENGLISH, GERMAN, small_bundle

import regard
from regard import bundle as bundles
from regard.apps.cli import main
from regard.errors import ModelError, TextError
from regard.explore.attribution import attribute
from regard.explore.attributions import METHODS, Written, _Reading, attributed
from regard.text import END

HERE = Path(__file__).parent
KNOWN = json.loads((HERE / "inseq.json").read_text(encoding="utf-8"))
MADE_BEFORE = HERE.parent / "bundle" / "made-by-0.1" / "transformer"


@pytest.fixture(scope="module", params=["post", "pre"])
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> bundles.Bundle:
    sizes = {"width": 16, "heads": 2, "feedforward": 32, "encoder_layers": 2, "decoder_layers": 2}
    share = {"post": "all", "pre": "target"}[request.param]
    model = {**sizes, "norm": request.param, "share": share}
    return small_bundle(tmp_path_factory.mktemp("attributions") / "bundle", model=model)


def read(bundle: bundles.Bundle, number: int = 0) -> Written:
    source, target = bundle.source.encode(ENGLISH[number])[:6], bundle.target.encode(GERMAN[number])[:5]
    return Written((*source, END), (*target, END))


@pytest.mark.parametrize("one", KNOWN["lines"], ids=lambda one: one["line"])
@pytest.mark.parametrize("method", METHODS)
def test_scores_are_those_of_inseq(one: dict[str, object], method: str) -> None:
    """Recorded by inseq_numbers.py from an environment of its own, of this bundle exported as a Marian."""
    translator = regard.load(MADE_BEFORE, device="cpu")
    model = translator.engine.model_for("exact")
    ids = translator.encode([one["line"]])[0], translator.target.encode(one["target"])
    found = attributed(model, Written((*ids[0], END), (*ids[1], END)), method)
    theirs = one["scores"][method]
    assert theirs["source"] == [*ids[0], END]
    assert theirs["target"][1:] == [*ids[1], END]
    for part, scores in found.items():
        count = scores.shape[1]
        known = np.array(theirs[part])[:, -count:, : scores.shape[2]]
        ours = np.abs(scores) if method == "occlusion" else scores  # of which inseq drops the sign
        assert np.abs(ours - known).max() < 1e-4, part


def test_gradients_are_those_by_finite_differences(bundle: bundles.Bundle) -> None:
    model = bundle.model().double()
    reading = _Reading(model, read(bundle))
    found = reading.gradients(reading.vectors)
    step, drawn = 1e-6, np.random.default_rng(0)
    for place in range(len(reading.vectors)):
        feature = int(drawn.integers(16))
        variants = reading.vectors.repeat(2, 1, 1)
        variants[0, place, feature] += step
        variants[1, place, feature] -= step
        up, down = reading.probabilities(variants).detach()
        assert found[:, place, feature].numpy() == pytest.approx(((up - down) / (2 * step)).numpy(), rel=1e-4, abs=1e-9)


def test_vectors_are_what_the_model_reads(bundle: bundles.Bundle) -> None:
    model, line = bundle.model().double(), read(bundle)
    reading = _Reading(model, line)
    from regard.tasks.forced import forced

    [known] = forced(model, [line.source[:-1]], [line.target[:-1]])
    assert reading.probabilities(reading.vectors[None])[0].log().tolist() == pytest.approx(known.log_probabilities)


def test_integrated_gradients_are_complete(bundle: bundles.Bundle) -> None:
    """Their sum is the probability less that of nothing but unknown tokens: to 2e-5, or 0.03 of about 1."""
    trained = regard.load(MADE_BEFORE, device="cpu")
    ids = trained.encode(["a e ff"])[0], trained.target.encode("FF E A")
    lines = (bundle.model(), read(bundle), 2e-5), (trained.model, Written((*ids[0], END), (*ids[1], END)), 0.03)
    for model, line, near in lines:
        exact = copy.deepcopy(model).double()
        found = attributed(exact, line, "integrated_gradients", steps=200)
        reading = _Reading(exact, line)
        whole, nothing = reading.probabilities(torch.stack([reading.vectors, reading.baseline])).detach().numpy()
        assert found["cross"][0].sum(-1) + found["decoder"][0].sum(-1) == pytest.approx(whole - nothing, abs=near)


def test_what_is_written_later_counts_for_nothing(bundle: bundles.Bundle) -> None:
    model, line = bundle.model().double(), read(bundle)
    for method in METHODS:
        found = attributed(model, line, method)
        assert not np.triu(found["decoder"], 1).any()
        assert found["cross"].any()
        shorter = attributed(model, Written(line.source, line.target[:3]), method)
        assert found["cross"][:, :3] == pytest.approx(shorter["cross"], abs=1e-9)


def test_zeroed_values_are_zero_values(bundle: bundles.Bundle) -> None:
    """The reference: the rows of the projection that make values give zeros for one token."""
    model, line = bundle.model().double(), read(bundle)
    found = attributed(model, line, "value_zeroing")
    block, number = model.encoder[0], 2
    ids = torch.tensor([line.source])
    from regard.nn.attention import Lengths
    from regard.nn.state import Layout

    layout = Layout(torch.tensor([len(line.source)]), len(line.source))
    x = model.source(ids, layout.positions(), layout.width)
    zeroed = copy.deepcopy(block)

    class Zeroed(torch.nn.Module):
        def forward(self, y: torch.Tensor) -> torch.Tensor:
            made = block.attention.key_value(y).clone()
            made[:, number, 16:] = 0
            return made

    zeroed.attention.key_value = Zeroed()
    whole, without = (each(x, layout, Lengths(layout.lengths))[0][0] for each in (block, zeroed))
    turned = (1 - torch.cosine_similarity(whole, without, dim=-1)).detach().numpy()
    # A row's shares: of this column they are to each other as what it turned is, up to the row's sum.
    shares = found["encoder"][0][:, number]
    assert (shares > 0).tolist() == (turned >= 1e-5).tolist()
    assert found["encoder"].sum(-1) == pytest.approx(1.0)


def test_the_model_is_as_it_was(bundle: bundles.Bundle) -> None:
    model = bundle.model().double()
    before = {name: p.clone() for name, p in model.named_parameters()}
    for method in METHODS:
        attributed(model, read(bundle), method, steps=2)
    after = dict(model.named_parameters())
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) and after[name].grad is None for name in before)


def test_shares_are_shown_as_attention_is(
    bundle: bundles.Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for method in METHODS:
        found = attribute(bundle.path, ENGLISH[0], method, target=GERMAN[0], steps=4)
        shares = found.shares()
        cross, decoder = shares.part("cross"), shares.part("decoder")
        assert cross.weights.shape == (len(found.scores["cross"]), 1, len(cross.rows.names), len(cross.columns.names))
        if method != "value_zeroing":
            both = cross.weights.sum(-1) + decoder.weights.sum(-1)
            assert both == pytest.approx(np.ones_like(both), abs=1e-5)
        assert shares.words().part("cross").columns.names
    call = ["look", str(bundle.path), ENGLISH[0], "--target", GERMAN[0], "--attribution", "occlusion"]
    assert main(call) == 0
    assert "Input - Output" in capsys.readouterr().out
    assert main([*call, "--out", str(tmp_path / "all")]) == 0
    assert {file.suffix for file in (tmp_path / "all").iterdir()} == {".html", ".svg", ".json", ".csv"}
    assert main([*call[:-1], "guess"]) == 2
    assert "take one of" in capsys.readouterr().err


def test_what_cannot_be_attributed_is_said(bundle: bundles.Bundle) -> None:
    with pytest.raises(TextError, match="no text"):
        attribute(bundle.path, " ", "occlusion")
    with pytest.raises(TextError, match="at most 256"):
        attribute(bundle.path, "A man. " * 200, "occlusion", target="x")
    with pytest.raises(ModelError, match="luong model"):
        attribute(MADE_BEFORE.parent / "luong", "a", "occlusion")
    own = attribute(bundle.path, ENGLISH[1], "gradient", beam=1)
    assert own.target == regard.load(bundle.path).translate([ENGLISH[1]], beam=1)[0].text
