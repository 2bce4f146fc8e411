"""A precision that cannot be had is said once, in a sentence: to who translates, in the run's log, and by doctor."""

from __future__ import annotations

import json
import warnings

import pytest
import torch
from bundles import ENGLISH, GERMAN, UNCOMPILED, small_bundle

from regard import bundle as bundles
from regard.apps import cli
from regard.engine import decoding
from regard.errors import RegardWarning
from regard.inspection.doctor import doctor
from regard.language.open import Pipeline
from regard.nn import layers
from regard.tasks.evaluate import evaluate_lines
from regard.tasks.fit import _paths
from regard.tasks.forced import score_lines
from regard.tasks.translate import load

needs_engine = pytest.mark.skipif(decoding.refusal() is not None, reason=str(decoding.refusal()))
MESSAGE = r"precision int8 is not to be had here, and float64 is used instead: it does not know model.norm_kind = 'rms'"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    path = tmp_path_factory.mktemp("bundle") / "bundle"
    small_bundle(path, model=UNCOMPILED)
    return path


def test_it_is_said_once_and_the_translation_is_that_of_what_is_used(bundle):
    translator = load(bundle)
    search = {"precision": "int8"}
    with pytest.warns(RegardWarning, match=MESSAGE):
        found = translator.translate(ENGLISH[:2], search=search)
    again = translator.translate(ENGLISH[:2], search=search)  # a second warning would be an error here
    assert [each.text for each in found] == [each.text for each in again]
    exact = load(bundle).translate(ENGLISH[:2], search={"precision": "exact"})
    assert [each.text for each in found] == [each.text for each in exact]


def test_what_pytorch_alone_computes_says_that_it_has_no_int8(bundle):
    translator = load(bundle)
    translator.engine.refusal = lambda: "it is another family"
    with pytest.warns(RegardWarning, match="int8 is not to be had here, and float64 is used instead: it is another"):
        found = score_lines(translator, ENGLISH[:2], ENGLISH[:2], precision="int8")
    assert found == score_lines(translator, ENGLISH[:2], ENGLISH[:2], precision="exact")
    held = bundles.load(bundle)
    with pytest.warns(RegardWarning, match="int8 is not to be had here"):
        model = Pipeline(held.model(), held.recipe, held.source, held.target).model_for("int8")
    assert {p.dtype for p in model.parameters()} == {torch.float64}


@needs_engine
def test_scores_are_those_of_the_engine_in_the_precision_that_is_asked_for(tmp_path):
    small_bundle(tmp_path / "bundle")
    translator = load(tmp_path / "bundle")
    exact, auto, int8 = (
        score_lines(translator, ENGLISH, GERMAN, precision=precision) for precision in ("exact", "auto", "int8")
    )
    for one, near, coarse in zip(exact, auto, int8, strict=True):
        assert near.log_probabilities == pytest.approx(one.log_probabilities, abs=2e-5)
        assert coarse.log_probabilities == pytest.approx(one.log_probabilities, abs=0.3)
    assert score_lines(translator, ENGLISH, GERMAN, batch_size=1) == auto
    assert [s.log_probabilities for s in int8] != [s.log_probabilities for s in auto]


def test_an_evaluation_in_int8_takes_its_perplexity_in_int8_and_warns_of_nothing(tmp_path):
    small_bundle(tmp_path / "bundle")
    translator = load(tmp_path / "bundle")
    both = [
        evaluate_lines(translator, ENGLISH[:2], GERMAN[:2], metrics=["perplexity"], precision=precision, resamples=0)
        for precision in ("exact", "int8")
    ]
    assert both[0].scores["perplexity"].value == pytest.approx(both[1].scores["perplexity"].value, rel=0.05)


def test_what_is_the_default_and_what_is_left_to_us_warns_of_nothing(bundle):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for precision in ("exact", "auto"):
            load(bundle).translate(ENGLISH[:1], search={"precision": precision})


def test_the_command_line_shows_it_as_a_sentence(bundle, tmp_path, capsys):
    (tmp_path / "lines").write_text(ENGLISH[0] + "\n", "utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        options = ["--precision", "int8"]
        assert cli.main(["translate", str(bundle), str(tmp_path / "lines"), *options]) == 0
    shown = capsys.readouterr().err
    assert "regard: precision int8 is not to be had here" in shown
    assert "translate.py" not in shown


def test_doctor_says_of_every_kernel_what_it_takes():
    found = {finding.name: finding for finding in doctor()}
    for name in layers.STAND_INS:
        finding = found[f"compiled {name}, on CPUs"]
        assert finding.value == "float32, bfloat16" or finding.note
    assert json.dumps([finding.to_dict() for finding in found.values()])


class _Trainer:
    """As much of one as its ways of computing depend on."""

    device, bfloat16, constant = torch.device("cpu"), False, 0


def test_the_log_of_a_run_says_what_products_refuse():
    refused = _paths(_Trainer(), "packed")["not"]
    assert refused["compiled linear"] == "it is for bfloat16"
    assert refused["compiled projected_loss"] == "it is for bfloat16"
    with layers.only_references():
        assert _paths(_Trainer(), "packed")["not"]["compiled layer_norm"] == "compiled kernels are switched off"
