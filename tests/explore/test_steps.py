"""What could have been written at each step: the probabilities are the model's own."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from bundles import ENGLISH, GERMAN, small_bundle

from regard.apps.cli import main
from regard.errors import TextError
from regard.explore.steps import step_by_step
from regard.tasks.forced import hidden_of, logits_of, score_lines
from regard.tasks.translate import Translator, load

LINE, TARGET = ENGLISH[4], GERMAN[4]


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    made = tmp_path_factory.mktemp("steps") / "bundle"
    small_bundle(made, search={"beam": 2, "precision": "exact", "min_length": 3, "no_repeat_ngram_size": 2})
    return load(made, device="cpu")


def test_they_are_the_models_probabilities(translator: Translator) -> None:
    found = step_by_step(translator, LINE, target=TARGET, top=5)
    model = translator.engine.model_for("exact")
    written = translator.target.encode(TARGET)
    with torch.inference_mode():
        hidden, wanted = hidden_of(model, [translator.source.encode(LINE)], [written])
        [logits] = logits_of(model, hidden.flatten(0, 1))
        every = logits.log_softmax(-1).numpy()
    assert len(found.steps) == len(written) + 1
    for step, row, token in zip(found.steps, every, wanted[0].tolist(), strict=True):
        assert step.token == translator.target.tokens([token])[0]
        assert step.log_probability == pytest.approx(row[token], abs=1e-9)
        assert step.entropy == pytest.approx(-(np.exp(row) * row).sum(), abs=1e-9)
        assert step.rank == 1 + (row > row[token]).sum()
        best = np.sort(row)[::-1][:5]
        np.testing.assert_allclose([each.probability for each in step.alternatives], np.exp(best), atol=1e-12)
        if step.rank <= 5:
            assert step.token in [each.token for each in step.alternatives]


def test_they_add_up_to_the_score(translator: Translator) -> None:
    found = step_by_step(translator, LINE)
    [best] = translator.translate([LINE])
    assert found.target == best.text
    assert tuple(step.token for step in found.steps) == best.target_tokens
    assert math.fsum(step.log_probability for step in found.steps) == pytest.approx(best.log_probability, abs=1e-9)
    [scored] = score_lines(translator, [LINE], [TARGET], precision="exact")
    forced = step_by_step(translator, LINE, target=TARGET)
    np.testing.assert_allclose([step.log_probability for step in forced.steps], scored.log_probabilities, atol=1e-9)


def test_the_command_line(translator: Translator, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert translator.bundle is not None
    call = ["look", str(translator.bundle.path), LINE, "--target", TARGET, "--steps"]
    assert main(call) == 0
    assert len(capsys.readouterr().out.splitlines()) >= len(translator.target.encode(TARGET))
    assert main([*call, "--out", str(tmp_path / "steps.json")]) == 0
    plain = json.loads((tmp_path / "steps.json").read_text("utf-8"))
    assert plain == json.loads(step_by_step(translator, LINE, target=TARGET).to_json())
    with pytest.raises(TextError, match="no text"):
        step_by_step(translator, "")
