"""Heads off and weights put by hand while a line is translated; and one head opened, with its numbers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from bundles import ENGLISH, GERMAN, small_bundle

import regard
from regard import bundle as bundles
from regard.apps.cli import main
from regard.engine import decoding
from regard.errors import DataError, TextError
from regard.explore.changes import Changes, Edit, Head, all_heads, config_of
from regard.explore.live import look_changed, translate_changed
from regard.explore.opened import open_head
from regard.nn.state import Observer
from regard.tasks.lines import pad
from regard.text import BEGIN, END

MADE_BEFORE = Path(__file__).parents[1] / "bundle" / "made-by-0.1" / "transformer"
SHAPE = {"width": 32, "heads": 4, "feedforward": 64, "encoder_layers": 2, "decoder_layers": 2}
KINDS = {
    "post": {},
    "pre": {"norm": "pre", "positions": "learned"},
    "rotary": {"norm": "pre", "positions": "rotary"},
    "biases": {"positions": "t5"},
    "shared keys": {"key_value_heads": 2},
    "pruned": {"cross_heads": (4, 2), "encoder_heads": (3, 4)},
}


@pytest.fixture(scope="module", params=KINDS)
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> bundles.Bundle:
    return small_bundle(tmp_path_factory.mktemp("live") / "bundle", model={**SHAPE, **KINDS[request.param]})


@pytest.fixture(scope="module")
def translator() -> regard.Translator:
    return regard.load(MADE_BEFORE, device="cpu")


def one_that_matters(translator: regard.Translator, line: str) -> Head:
    """A head without which a line is translated otherwise."""
    for head in all_heads(config_of(translator.recipe)):
        found = translate_changed(translator, line, Changes({head: 0.0}), precision="exact")
        if found.text != found.plain:
            return head
    raise AssertionError("no head matters")


def test_both_ways_write_the_same(translator: regard.Translator) -> None:
    if decoding.refusal() is not None:
        pytest.skip(str(decoding.refusal()))
    for head in all_heads(config_of(translator.recipe)):
        ours, theirs = (
            translate_changed(translator, "a e ff", Changes({head: 0.0}), precision=precision)
            for precision in ("float32", "exact")
        )
        assert (ours.computed, theirs.computed) == ("engine", "pytorch")
        assert (ours.text, ours.plain) == (theirs.text, theirs.plain)
        assert ours.score == pytest.approx(theirs.score, abs=1e-4)


def test_a_head_changes_the_translation_and_others_are_not_touched(translator: regard.Translator) -> None:
    before = translator.translate(["a e ff"])[0].text
    head = one_that_matters(translator, "a e ff")
    found = translate_changed(translator, "a e ff", Changes({head: 0.0}))
    assert found.text != found.plain == before
    assert translator.translate(["a e ff"])[0].text == before
    weaker = translate_changed(translator, "a e ff", Changes({head: 1.0}))
    assert weaker.text == before
    assert weaker.computed == "pytorch"
    edits = [Edit("cross", 1, 0, 0, 1, 1.0)]  # it looks at nothing but the first token
    assert translate_changed(translator, "a e ff", Changes({}, edits)).text != before
    name = "decoder.0.feedforward.outer.weight"
    assert translate_changed(translator, "a e ff", Changes({}, parameters={name: -3.0})).text != before


def test_what_it_looks_at_with_heads_off(translator: regard.Translator) -> None:
    head = one_that_matters(translator, "a e ff")
    attention, told = look_changed(translator, "a e ff", Changes({head: 0.0}))
    assert told is not None
    assert attention.target == told.text != told.plain
    part = attention.part(head.part)
    assert not part.weights[head.layer - 1, head.head - 1].any()
    assert part.weights.sum() > 0
    given, none = look_changed(translator, "a e ff", Changes({head: 0.0}), target="FF E A")
    assert none is None
    assert given.target == "FF E A"


def test_an_opened_head_is_what_the_model_computes(bundle: bundles.Bundle) -> None:
    translator = regard.load(bundle.path, device="cpu")
    model = translator.engine.model_for("exact")
    ids, written = translator.encode([ENGLISH[0]])[0], translator.target.encode(GERMAN[0])
    observe = Observer("encoder", "cross", "decoder")
    (read, reading), (tokens, writing) = (pad([row], "cpu") for row in ([*ids, END], [BEGIN, *written]))
    with torch.inference_mode():
        model.decode(tokens, model.start(model.encode(read, reading, observe), reading), writing, observe)
    for name in ("encoder.1.1", "encoder.2.3", "cross.1.2", "cross.2.2", "decoder.1.4", "decoder.2.1"):
        found = open_head(translator, ENGLISH[0], name, target=GERMAN[0])
        head = found.head
        known = observe.weights[head.part][head.layer - 1][0, head.head - 1].numpy()
        assert found.weights == pytest.approx(known, abs=1e-12)
        assert found.weights.shape == (len(found.rows), len(found.columns)) == found.mask.shape
        softmax = np.where(found.mask, np.exp(found.scores - found.scores.max(axis=1, keepdims=True)), 0)
        assert found.weights == pytest.approx(softmax / softmax.sum(axis=1, keepdims=True), abs=1e-12)
        assert found.mixed == pytest.approx(found.weights @ found.values, abs=1e-12)
        if found.head.part != "encoder" and translator.recipe.model.positions != "t5":
            assert found.scores == pytest.approx(found.queries @ found.keys.T, abs=1e-12)
    # All heads' outputs and the bias are what the attention says.
    all_of = [open_head(translator, ENGLISH[0], f"cross.1.{n}", target=GERMAN[0]).output for n in (1, 2, 3, 4)]
    block = model.decoder[0]
    said: list[torch.Tensor] = []
    hook = block.cross.register_forward_hook(lambda module, given, out: said.append(out))
    with torch.inference_mode():
        model.decode(tokens, model.start(model.encode(read, reading), reading), writing)
    hook.remove()
    assert sum(all_of) + block.cross.output.bias.detach().numpy() == pytest.approx(said[0][0].numpy(), abs=1e-10)


def test_an_opened_head_as_values(translator: regard.Translator) -> None:
    found = open_head(translator, "a e ff", "decoder.1.2")
    assert found.rows[0] == "<s>"
    assert found.mask.sum() == len(found.rows) * (len(found.rows) + 1) // 2
    plain = json.loads(json.dumps(found.to_dict(5)))
    assert plain["head"] == "decoder.1.2"
    assert plain["queries"][0] == pytest.approx(found.queries[0], abs=1e-5)
    with pytest.raises(DataError, match="no such head"):
        open_head(translator, "a e ff", "decoder.7.2")
    with pytest.raises(TextError, match="128"):
        open_head(translator, "a e ff", "decoder.1.2", target="A " * 200)
    with pytest.raises(TextError, match="no text"):
        translate_changed(translator, " ", Changes({}))
    with pytest.raises(TextError, match="at most 256"):
        translate_changed(translator, "a b " * 200, Changes({}))


def test_heads_are_off_without_pytorch() -> None:
    if decoding.refusal() is not None:
        pytest.skip(str(decoding.refusal()))
    script = f"""
import sys
sys.modules["torch"] = None
import regard
from regard.explore.changes import Changes, Head
from regard.explore.live import translate_changed
found = translate_changed({str(MADE_BEFORE)!r}, "a e ff", Changes({{Head("cross", 1, 1): 0.0}}))
print(found.computed, found.plain)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "engine FF E A", done.stderr


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], translator: regard.Translator) -> None:
    head = one_that_matters(translator, "a e ff")
    call = ["look", str(MADE_BEFORE), "a e ff", "--off", str(head)]
    assert main(call) == 0
    shown = capsys.readouterr().out
    assert f"without {head}" in shown
    assert "as it is: FF E A" in shown
    assert main([*call, "--out", str(tmp_path / "off.json")]) == 0
    assert json.loads((tmp_path / "off.json").read_text("utf-8"))["target"] != "FF E A"
    assert main([*call[:3], "--open-head", "cross.1.2", "--out", str(tmp_path / "head.json")]) == 0
    assert json.loads((tmp_path / "head.json").read_text("utf-8"))["head"] == "cross.1.2"
    assert main([*call[:3], "--open-head", "cross.1.2"]) == 2
    assert main([*call, "--steps"]) == 2
    assert main([*call[:3], "--off", "cross.9.9"]) == 2
