"""Heads: what is lost without each, changes that are handed in, and bundles without them."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path

import pytest
import torch
from bundles import ENGLISH, GERMAN, small_bundle
from torch import nn

import regard
from regard import bundle as bundles
from regard.apps.cli import main
from regard.engine import decoding
from regard.engine.packing import packed, shapes_of
from regard.errors import BundleError, DataError, ModelError, RegardError, TextError
from regard.estimation.correlation import spearman
from regard.explore.changed import Changed
from regard.explore.changes import Changes, Edit, Head, all_heads, checked, config_of, heads_named, without
from regard.explore.heads import gradients_of, heads, loss_of, losses_without, pairs_of, transformer_of
from regard.explore.pruning import config_without, prune, prune_heads
from regard.nn.state import Observer
from regard.tasks.decode import decode
from regard.tasks.engine import Backend
from regard.tasks.fit import begin_with
from regard.tasks.forced import forced

SHAPE = {"width": 32, "heads": 4, "feedforward": 64, "encoder_layers": 2, "decoder_layers": 2}
OFF = (Head("encoder", 1, 2), Head("encoder", 1, 4), Head("cross", 2, 1), Head("decoder", 1, 3), Head("decoder", 2, 4))
needs_engine = pytest.mark.skipif(decoding.refusal() is not None, reason=str(decoding.refusal()))


@pytest.fixture(scope="module", params=["post", "pre"])
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> bundles.Bundle:
    path = tmp_path_factory.mktemp("heads") / "bundle"
    return small_bundle(path, model={**SHAPE, "norm": request.param})


@pytest.fixture(scope="module")
def translator(bundle: bundles.Bundle) -> regard.Translator:
    return regard.load(bundle.path, device="cpu")


def exact(translator: regard.Translator) -> nn.Module:
    return copy.deepcopy(transformer_of(translator)).double()


def with_zero_columns(model: nn.Module, off: tuple[Head, ...], width: int) -> nn.Module:
    """The reference: what the output map reads of these heads is multiplied by zeros."""
    zeroed = copy.deepcopy(model)
    for head in off:
        weight = dict(zeroed.named_parameters())[f"{head.module}.output.weight"]
        with torch.no_grad():
            weight[:, (head.head - 1) * width : head.head * width] = 0
    return zeroed


def test_a_head_that_is_off_is_one_whose_columns_are_zero(translator: regard.Translator) -> None:
    model, pairs = exact(translator), pairs_of(translator, ENGLISH, GERMAN)
    changed = Changed(model, Changes(dict.fromkeys(OFF, 0.0)))
    ours, theirs = (
        forced(each, pairs.read, pairs.written, attention=True) for each in (changed, with_zero_columns(model, OFF, 8))
    )
    for one, other in zip(ours, theirs, strict=True):
        assert one.log_probabilities == pytest.approx(other.log_probabilities, abs=1e-12)
    assert not any(weights[0].any() for weights in [ours[0].attention[1]])  # cross.2.1, which is seen to be off
    plain = forced(model, pairs.read, pairs.written)
    assert plain[0].log_probabilities != pytest.approx(ours[0].log_probabilities, abs=1e-4)
    assert forced(Changed(model, Changes({})), pairs.read, pairs.written) == plain


def test_searching_with_heads_off_is_searching_with_zero_columns(translator: regard.Translator) -> None:
    """Step by step, with a cache and a beam, in PyTorch and in the compiled engine."""
    model, config = exact(translator), config_of(translator.recipe)
    rows = pairs_of(translator, ENGLISH, GERMAN).read
    changed = Backend([Changed(model, Changes(dict.fromkeys(OFF, 0.0)))])
    backends = [changed, Backend([with_zero_columns(model, OFF, 8)])]
    if decoding.refusal() is None:
        arrays = translator.bundle.weights(shapes_of(config, len(translator.source), len(translator.target)))
        backends.append(Backend(decoders=[packed(without(arrays, config, OFF), config, "float32")]))
    found = [decode(each, rows, translator.recipe.search) for each in backends]
    for one in found[1:]:
        assert [best.ids for best, *_ in one] == [best.ids for best, *_ in found[0]]
        assert [best.score for best, *_ in one] == pytest.approx([best.score for best, *_ in found[0]], abs=1e-4)


def test_nothing_stays_on_the_model(translator: regard.Translator) -> None:
    model = exact(translator)
    rows, before = pairs_of(translator, ENGLISH, GERMAN).read, None
    for changes in (
        Changes({}),
        Changes({OFF[0]: 0.0}, parameters={"encoder.0.feedforward.inner.weight": 3.0}),
        Changes({}),
    ):
        found = decode(Backend([Changed(model, changes)]), rows[:3], translator.recipe.search)
        before = before if before is not None else found
    assert found == before


def test_the_loss_without_a_head_is_that_of_the_other_ways(translator: regard.Translator) -> None:
    model, pairs = exact(translator), pairs_of(translator, ENGLISH[:5], GERMAN[:5])
    config = config_of(translator.recipe)
    found = dict(losses_without(model, pairs.read, pairs.written, all_heads(config), off=OFF[:1]))
    assert len(found) == 24
    for head in (OFF[1], OFF[2], OFF[3]):
        reference = forced(with_zero_columns(model, (OFF[0], head), 8), pairs.read, pairs.written)
        assert found[head] == pytest.approx(-sum(sum(each.log_probabilities) for each in reference), rel=1e-10)
        assert loss_of(model, pairs, (OFF[0], head)) * pairs.tokens == pytest.approx(found[head], rel=1e-10)


def test_gradients_of_masks_are_those_by_finite_differences(translator: regard.Translator) -> None:
    model, config = exact(translator), config_of(translator.recipe)
    pairs = pairs_of(translator, ENGLISH[:3], GERMAN[:3])
    loss, found = gradients_of(model, config, pairs.read, pairs.written)
    assert loss == pytest.approx(loss_of(model, pairs) * pairs.tokens, rel=1e-12)
    step = 1e-5
    for head in (Head("encoder", 1, 1), Head("encoder", 2, 3), Head("cross", 1, 4), Head("decoder", 2, 2)):
        each = 0.0
        for read, written in zip(pairs.read, pairs.written, strict=True):  # the absolute value is of each pair
            sides = [
                -sum(forced(Changed(model, Changes({head: 1 + way * step})), [read], [written])[0].log_probabilities)
                for way in (1, -1)
            ]
            each += abs(sides[0] - sides[1]) / (2 * step)
        assert found[head] == pytest.approx(each, rel=1e-5)


def test_a_ranking_says_what_is_lost(translator: regard.Translator) -> None:
    said: list[str] = []
    found = heads(translator, ENGLISH, GERMAN, bleu=["encoder.1.1", "cross.2"], batch_size=5, progress=said.append)
    assert len(found.effects) == 24
    assert [effect.loss for effect in found.effects] == sorted((e.loss for e in found.effects), reverse=True)
    assert found.correlation is not None
    assert -1 <= found.correlation <= 1
    assert sum(effect.bleu is not None for effect in found.effects) == 5
    assert said[0] == "read 5 of 12 pairs"
    fast = heads(translator, ENGLISH, GERMAN, exact=False)
    assert fast.correlation is None
    assert {e.head: e.gradient for e in fast.effects} == pytest.approx(
        {e.head: e.gradient for e in found.effects}, rel=1e-4
    )
    assert json.loads(json.dumps(found.to_dict()))["effects"][0]["head"] == str(found.effects[0].head)


def test_ranks_are_correlated_by_hand() -> None:
    assert spearman([1, 2, 3], [10, 20, 30]) == pytest.approx(1)
    assert spearman([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    assert spearman([1, 2, 2, 4], [1, 3, 2, 4]) == pytest.approx(0.9486832980505138)
    with pytest.raises(DataError, match="equal"):
        spearman([1, 1], [1, 2])


def test_a_pruned_bundle_computes_what_the_masked_one_does(bundle: bundles.Bundle, tmp_path: Path) -> None:
    found = prune_heads(bundle.path, tmp_path / "small", [*map(str, OFF)])
    assert found.parameters_before - found.parameters_after == 5 * (4 * 32 * 8 + 3 * 8)
    assert found.bytes_after < found.bytes_before
    small, whole = regard.load(tmp_path / "small"), regard.load(bundle.path)
    config = config_of(small.recipe)
    assert (config.encoder_heads, config.decoder_heads, config.cross_heads) == ((2, 4), (3, 3), (4, 3))
    assert small.bundle.provenance.notes["pruned_heads"] == [*map(str, OFF)]
    pairs = pairs_of(whole, ENGLISH, GERMAN)
    masked = Changed(exact(whole), Changes(dict.fromkeys(OFF, 0.0)))
    known, ours = (forced(each, pairs.read, pairs.written) for each in (masked, exact(small)))
    for one, other in zip(known, ours, strict=True):
        assert other.log_probabilities == pytest.approx(one.log_probabilities, abs=1e-9)
    rows = decode(Backend([masked]), pairs.read, whole.recipe.search)
    for precision in ("exact", "auto"):  # in PyTorch, and in the compiled engine where it is built
        translated = small.translate(ENGLISH, precision=precision)
        assert [t.hypotheses[0].ids for t in translated] == [tuple(best.ids) for best, *_ in rows]
        assert [t.hypotheses[0].score for t in translated] == pytest.approx([b.score for b, *_ in rows], abs=1e-4)
    if decoding.refusal() is None:
        assert small.engine.refusal() is None


def test_a_pruned_bundle_is_pruned_again_quantized_and_trained_on(bundle: bundles.Bundle, tmp_path: Path) -> None:
    prune_heads(bundle.path, tmp_path / "one", ["encoder.1.2"])
    prune_heads(tmp_path / "one", tmp_path / "two", ["encoder.1.2"])  # the third that there was
    prune_heads(bundle.path, tmp_path / "both", ["encoder.1.2", "encoder.1.3"])
    two, both = (bundles.load(tmp_path / name) for name in ("two", "both"))
    for (name, one), (_, other) in zip(two.model().named_parameters(), both.model().named_parameters(), strict=True):
        assert torch.equal(one, other), name
    assert main(["quantize", str(tmp_path / "two"), str(tmp_path / "int8")]) == 0
    smaller = prune_heads(tmp_path / "int8", tmp_path / "int8 pruned", ["cross.1.1"])
    assert smaller.bytes_after < smaller.bytes_before
    bundles.load(tmp_path / "int8 pruned").model()
    model = bundles.load(tmp_path / "one").model().train()
    assert begin_with(model, tmp_path / "one") == []
    observe = Observer()
    tokens = torch.tensor([[5, 6, 3]])
    from regard.nn.state import whole

    hidden, _ = model.decode(tokens, model.start(model.encode(tokens, whole(tokens)), whole(tokens)), None, observe)
    model.project(hidden).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_the_least_useful_go_and_every_attention_keeps_one(bundle: bundles.Bundle, tmp_path: Path) -> None:
    for name, how in {"rank": {}, "greedy": {"greedy": True, "exact": False}}.items():
        found = prune(bundle.path, tmp_path / name, (ENGLISH, GERMAN), 0.75, **how)
        assert len(found.off) == 18
        config = config_of(bundles.load(found.out).recipe)
        assert all(set(config.heads_in(part)) == {1} for part in ("encoder", "decoder", "cross"))
        assert found.loss_after is not None
        assert math.isfinite(found.loss_after)
    with pytest.raises(DataError, match="only 18 can"):
        prune(bundle.path, tmp_path / "x", (ENGLISH, GERMAN), 0.9)
    with pytest.raises(DataError, match="between 0 and 1"):
        prune(bundle.path, tmp_path / "x", (ENGLISH, GERMAN), 1.5)
    with pytest.raises(DataError, match="layer 1 of encoder would keep no head"):
        prune_heads(bundle.path, tmp_path / "x", ["encoder.1"])
    assert not (tmp_path / "x").exists()


def test_what_cannot_be_pruned_is_said(tmp_path: Path) -> None:
    shared = small_bundle(tmp_path / "shared", model={**SHAPE, "key_value_heads": 2})
    with pytest.raises(ModelError, match="cannot be taken out"):
        prune_heads(shared.path, tmp_path / "x", ["cross.1.1"])
    with pytest.raises(BundleError, match="is the bundle itself"):
        prune_heads(shared.path, shared.path, ["cross.1.1"])
    with pytest.raises(ModelError, match="heads to switch off"):
        heads(Path(__file__).parents[1] / "bundle/made-by-0.1/luong", ["a"], ["b"])
    recurrent = small_bundle(tmp_path / "recurrent", model={**SHAPE, "decoder_mixer": "ssru"})
    with pytest.raises(ModelError, match="a decoder without heads"):
        heads(recurrent.path, ["a"], ["b"])
    assert [part.name for part in regard.look(recurrent.path, "a small house").parts] == ["encoder", "cross"]
    config = config_of(shared.recipe)
    with pytest.raises(DataError, match="no such head"):
        heads_named(["encoder.3.1"], config)
    for changes in (
        Changes({Head("encoder", 1, 1): 1000.0}),
        Changes({Head("encoder", 1, 9): 0.0}),
        Changes({}, [Edit("cross", 1, 1, 1, 1, 2.0)]),
        Changes({}, [Edit("cross", 1, 1, 1, 1, 0.5)] * 1001),
    ):
        with pytest.raises(DataError):
            checked(changes, config)
    with pytest.raises(DataError, match="parameter 'x'"):
        Changed(shared.model(), Changes({}, parameters={"x": 2.0}))
    with pytest.raises(RegardError):
        config_without(config_of(small_bundle(tmp_path / "b", model=SHAPE).recipe), all_heads(config)[:4])


def test_heads_of_a_recipe_must_fit() -> None:
    from regard.models.transformer import TransformerConfig

    for wrong in ({"encoder_heads": (2,)}, {"cross_heads": (5, 1)}, {"decoder_heads": (0, 1)}):
        with pytest.raises(ValueError, match="heads"):
            TransformerConfig(**SHAPE, **wrong)
    with pytest.raises(ValueError, match="share nothing"):
        TransformerConfig(**SHAPE, encoder_heads=(2, 2), positions="alibi")
    fits = TransformerConfig(**SHAPE, cross_heads=(4, 2))
    assert fits.cross_attention == (2, 2)
    assert "cross_heads" in fits.beyond


def test_weights_put_by_hand(translator: regard.Translator) -> None:
    model, pairs = exact(translator), pairs_of(translator, ENGLISH[:1], GERMAN[:1])
    edits = [Edit("cross", 2, 3, 2, 1, 0.75), Edit("encoder", 1, 0, 0, 2, 1.0), Edit("decoder", 1, 1, 3, 4, 0.5)]
    edited, plain = Changed(model, Changes({}, edits)), forced(model, pairs.read, pairs.written, attention=True)[0]
    found = forced(edited, pairs.read, pairs.written, attention=True)[0].attention[1]
    assert found[2, 1, 0] == pytest.approx(0.75)
    assert found.sum(-1) == pytest.approx(1.0)
    only = Changed(model, Changes({}, edits[:1]))
    ours = forced(only, pairs.read, pairs.written, attention=True)[0].attention[1]
    assert ours[2, 1, 1:] / 0.25 == pytest.approx(
        plain.attention[1][2, 1, 1:] / (1 - plain.attention[1][2, 1, 0]), abs=1e-6
    )
    assert ours[[0, 1, 3]] == pytest.approx(plain.attention[1][[0, 1, 3]])
    # A weight on what is not yet written stays hidden: the future is invisible.
    hidden = Changed(model, Changes({}, [Edit("decoder", 1, 1, 1, 4, 1.0)]))
    first, whole_line = (forced(hidden, pairs.read, [pairs.written[0][:n]])[0] for n in (1, 8))
    assert first.log_probabilities[0] == pytest.approx(whole_line.log_probabilities[0], abs=1e-12)
    # Step by step it is the row of the step.
    [[best]] = decode(Backend([only]), pairs.read, translator.recipe.search.model_copy(update={"max_length": 6}))
    assert sum(forced(only, pairs.read, [best.ids])[0].log_probabilities[:6]) == pytest.approx(
        best.log_probability, abs=1e-9
    )


def test_the_command(bundle: bundles.Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, lines in (("a", ENGLISH), ("b", GERMAN)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    sides = ["--source", str(tmp_path / "a"), "--target", str(tmp_path / "b")]
    assert main(["heads", str(bundle.path), *sides, "--lines", "4", "--bleu", "encoder.1.1"]) == 0
    shown = capsys.readouterr().out
    assert "rank correlation" in shown
    assert "4 pairs" in shown
    assert main(["heads", str(bundle.path), *sides, "--by", "gradient", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["effects"]) == 24
    out = tmp_path / "pruned"
    assert main(["heads", str(bundle.path), *sides, "--prune", "0.33", "--out", str(out)]) == 0
    assert "7 of 24 heads are out" in capsys.readouterr().out
    assert main(["translate", str(out), str(tmp_path / "a")]) == 0
    capsys.readouterr()
    assert main(["heads", str(bundle.path), "--off", "cross.2.1", "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["off"] == ["cross.2.1"]
    for wrong in (["--prune", "0.3"], ["--out", str(out)], ["--off", "x", "--out", str(out)], []):
        assert main(["heads", str(bundle.path), *wrong]) == 2
        assert capsys.readouterr().err


def test_pairs_without_text_are_refused(translator: regard.Translator) -> None:
    with pytest.raises(TextError, match="no pair has text"):
        pairs_of(translator, ["", " "], ["a", ""])


def test_what_pruned_layers_look_at_is_shown(bundle: bundles.Bundle, tmp_path: Path) -> None:
    prune_heads(bundle.path, tmp_path / "small", ["cross.1.1", "cross.1.4", "encoder.2.3"])
    found = regard.look(tmp_path / "small", ENGLISH[0], target=GERMAN[0])
    cross = found.part("cross")
    assert cross.weights.shape[:2] == (2, 4)
    assert not cross.weights[0, 2:].any()
    assert cross.matrix().sum(-1) == pytest.approx(1.0, abs=1e-5)
    assert cross.matrix(1).sum(-1) == pytest.approx(1.0, abs=1e-5)
    engine = regard.load(tmp_path / "small").translate(ENGLISH[:2], alignment=True, attention=True)
    assert all(translation.alignment is not None for translation in engine)
