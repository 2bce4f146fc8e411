"""What comes with a translation: confidence, alignment, places; and how far confidence may be believed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bundles import ENGLISH, GERMAN, small_bundle
from hypothesis import given, settings
from hypothesis import strategies as st

from regard import bundle as bundles
from regard.apps.cli import main
from regard.bundle import Calibration, add_calibration, on_curve
from regard.errors import BundleError, DataError, TextError
from regard.models.transformer import TransformerConfig, build
from regard.pictures import reliability as reliability_picture
from regard.tasks.details import links_of, steps_of, sums_of, words_of
from regard.tasks.forced import forced, score_lines
from regard.tasks.lines import LongTranslation, translate_long
from regard.tasks.translate import Translator, load
from regard.terminology.constraints import Constraints
from regard.text import END, PAD, TextConfig, Tokenizer
from regard.text.sentences import words
from regard.tuning.calibrate import calibrate, fit_temperature, mutual_information
from regard.tuning.reliability import curve, kept_words, reliability

LINES = [*ENGLISH[:4], "", "A 😀 can't — 3.5 %", "▁ cafe\u0301 \u05e9\u05dc\u05d5\u05dd"]


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    return load(small_bundle(tmp_path_factory.mktemp("bundles") / "small", seed=9), device="cpu")


# -- places ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("Don't pay 3.5%, ok?", ["Don't", "pay", "3.5", "%", ",", "ok", "?"]),
        ("two-year (a- b)", ["two-year", "(", "a", "-", "b", ")"]),
        ("我爱 Tokyo。", ["我", "爱", "Tokyo", "。"]),
        ("👍🏽 cafe\u0301 हिन्दी", ["👍🏽", "cafe\u0301", "हिन्दी"]),
        (" \t\u3000", []),
    ],
)
def test_words_stand_where_they_are_in_any_script(line: str, found: list[str]) -> None:
    assert [line[start:end] for start, end in words(line)] == found


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=30))
def test_words_cover_all_but_spaces_once(line: str) -> None:
    places = words(line)
    ends = [0, *(end for _, end in places)]
    assert all(behind <= start < end <= len(line) for behind, (start, end) in zip(ends, places, strict=False))
    covered = {i for start, end in places for i in range(start, end)}
    assert all(line[i].isspace() or not line[i].isprintable() for i in range(len(line)) if i not in covered)


@pytest.mark.parametrize("normalization", ["identity", "nfc", "nfkc"])
def test_tokens_stand_where_they_are_whatever_is_done_to_the_line(normalization: Any) -> None:
    tokenizer = Tokenizer.train([*ENGLISH, *GERMAN], size=400, settings=TextConfig(normalization=normalization))
    for line in [*LINES, "  two  spaces ", "\ufb01ne \u00bd"]:
        places = tokenizer.spans(line)
        assert [start for start, _ in places] == sorted(start for start, _ in places)
        assert {i for start, end in places for i in range(start, end)} == set(range(len(line)))
        ids = tokenizer.encode(line)
        text = tokenizer.decode(ids)
        spans = tokenizer.spans_of(ids)
        assert {i for start, end in spans for i in range(start, end)} == set(range(len(text)))
        if text == line:
            assert spans == places
    assert tokenizer.spans_of([*tokenizer.encode("A man"), END])[-1] == (5, 5)


def test_a_words_tokens_are_added_and_a_lone_space_is_the_next_words() -> None:
    text, places = "ab cd", [(0, 2), (3, 5)]
    tokens = [(0, 1), (1, 2), (2, 3), (3, 5)]
    assert sums_of([-1.0, -2.0, -4.0, -8.0, -16.0], tokens, places) == [-3.0, -12.0]
    assert [w.text for w in words_of(text, places)] == ["ab", "cd"]
    assert sums_of([-1.0], [(0, 2)], [(0, 1), (1, 2)]) == [-1.0, -1.0], "two words of one token"


def test_links_follow_the_weights() -> None:
    weights = np.array([[0.1, 0.7, 0.2], [0.6, 0.2, 0.2]], dtype=np.float32)
    found = links_of(weights, [(0, 2), (3, 5)], [(0, 1), (1, 3), (4, 6)], [(0, 2), (3, 5)], [(0, 3), (4, 6)])
    assert [(link.source, link.target) for link in found] == [(0, 0), (0, 1)]
    assert [link.weight for link in found] == pytest.approx([0.8, 0.8])
    assert links_of(weights[:, :0], [(0, 2), (3, 5)], [], [(0, 2)], []) == ()
    layers = [np.full((2, 4, 3), 0.5, np.float32), np.arange(24, dtype=np.float32).reshape(2, 4, 3)]
    assert steps_of(layers, "input", 2).tolist() == layers[1].mean(0)[1:, :-1].tolist()
    assert steps_of(layers, "output", 0).tolist() == ((layers[0].mean(0) + layers[1].mean(0)) / 2)[:-1, :-1].tolist()


# -- with a translation ------------------------------------------------------------------------------------------------


def test_confidence_is_the_models_own_probability(translator: Translator) -> None:
    """Uncalibrated: what `score` says of the same tokens, and for a word the product of its tokens."""
    for line, found in zip(LINES, translator.translate(LINES, confidence=True), strict=True):
        if not line:
            assert found.words == ()
            assert found.confidences == ()
            continue
        assert len(found.confidences) == len(found.target_tokens)
        assert math.prod(found.confidences) == pytest.approx(math.exp(found.log_probability), rel=1e-6)
        assert [word.text for word in found.words] == [found.text[w.start : w.end] for w in found.words]
        assert all(0 < word.confidence <= 1 for word in found.words if word.confidence is not None)
        scored = score_lines(translator, [line], [found.text])[0]
        if scored.tokens == found.target_tokens:
            assert [math.exp(x) for x in scored.log_probabilities] == pytest.approx(found.confidences)


def test_a_forced_phrase_is_no_surer_for_being_forced(translator: Translator) -> None:
    [kept] = translator.translate([ENGLISH[0]], search={"max_length": 1}, confidence=True)
    assert len(kept.confidences) == len(kept.target_tokens) == 1
    [other] = translator.translate([ENGLISH[0]], constraints=Constraints(include=("Spielhaus",)), confidence=True)
    [word] = [word for word in other.words if word.text == "Spielhaus"]
    assert (word.confidence or 0) < 0.01, "a random model does not believe in it"


def test_details_do_not_depend_on_the_batch(translator: Translator) -> None:
    asked = {"confidence": True, "alignment": True, "attention": True}
    whole = translator.translate(LINES, **asked)  # type: ignore[arg-type]
    for line, found in zip(LINES, whole, strict=True):
        [alone] = translator.translate([line], batch_size=1, **asked)  # type: ignore[arg-type]
        assert alone.confidences == pytest.approx(found.confidences, rel=1e-6)
        assert [(a.source, a.target) for a in alone.alignment] == [(a.source, a.target) for a in found.alignment]
        if line:
            assert found.attention is not None
            assert found.attention.shape == (len(found.target_tokens), len(found.source_tokens))
            assert found.attention.sum(axis=1) == pytest.approx(1, abs=1e-5)
            assert all(found.source_words[link.source].text in line for link in found.alignment)
            assert {link.target for link in found.alignment} <= set(range(len(found.words)))
    plain = translator.translate(LINES)
    assert [p.text for p in plain] == [w.text for w in whole]
    assert all(p.words == () and p.confidences == () and p.attention is None for p in plain)


def test_a_line_that_is_cut_keeps_its_places(translator: Translator) -> None:
    line = f"  {ENGLISH[3]}  {ENGLISH[4]} {ENGLISH[9]}"

    def translate(lines: Any) -> Any:
        return translator.translate(lines, confidence=True, alignment=True)

    [found] = translate_long(translator, [line], translate, always=True)
    assert isinstance(found, LongTranslation)
    assert len(found.parts) == 3
    assert all(line[w.start : w.end] == w.text for w in found.source_words)
    assert all(found.text[w.start : w.end] == w.text for w in found.words)
    assert [w.text for w in found.source_words] == [line[a:b] for a, b in words(line)]
    assert max(link.source for link in found.alignment) > len(found.parts[0].source_words)
    assert len(found.confidences) == len(found.target_tokens)


def test_a_languages_tag_is_no_word(tmp_path: Path) -> None:
    many = load(small_bundle(tmp_path / "many", tags=("de", "fr")), device="cpu")
    [asked] = many.translate([ENGLISH[0]], to="fr", alignment=True)
    [written] = many.translate([f"<2fr> {ENGLISH[0]}"], alignment=True)
    assert [w.text for w in asked.source_words] == [ENGLISH[0][a:b] for a, b in words(ENGLISH[0])]
    assert [w.start + len("<2fr> ") for w in asked.source_words] == [w.start for w in written.source_words]
    assert asked.alignment == written.alignment


def test_json_of_the_command_line(translator: Translator, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert translator.bundle is not None
    (tmp_path / "in").write_text(f"{ENGLISH[0]}\n\n{ENGLISH[1]}\n", encoding="utf-8")
    line = ["translate", str(translator.bundle.path), str(tmp_path / "in")]
    assert main(line) == 0
    plain = capsys.readouterr().out.splitlines()
    assert main([*line, "--confidence", "--alignment", "--attention", "--n-best", "2"]) == 0
    found = [json.loads(each) for each in capsys.readouterr().out.splitlines()]
    assert [one["text"] for one in found] == plain
    assert [one["line"] for one in found] == [1, 2, 3]
    assert {"words", "tokens", "source_words", "alignment", "attention", "hypotheses"} <= found[0].keys()
    assert found[0]["words"][0].keys() == {"text", "start", "end", "confidence"}
    assert found[1].keys() == {"line", "text", "log_probability", "score", "ended", "unknown_count"}
    assert main([*line, "--json"]) == 0
    assert "words" not in json.loads(capsys.readouterr().out.splitlines()[0])
    assert main([*line, "--stream", "--confidence"]) == 2


# -- calibration -------------------------------------------------------------------------------------------------------


def steps(seed: int, sharpness: float, count: int = 4000) -> Any:
    """Logits of a model that is surer than it may be by `sharpness`, and what came."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(count, 12, generator=generator) * 1.5
    wanted = torch.multinomial(logits.softmax(-1), 1, generator=generator)[:, 0]
    return lambda: iter([(logits * sharpness, wanted)])


@pytest.mark.parametrize("sharpness", [0.5, 1.0, 3.0])
def test_the_temperature_is_found(sharpness: float) -> None:
    parts = steps(1, sharpness)
    temperature = fit_temperature(parts)
    assert temperature == pytest.approx(sharpness, rel=0.05)
    [(logits, wanted)] = parts()

    def nll(value: float) -> float:
        return float(torch.nn.functional.cross_entropy(logits.double() / value, wanted))

    assert nll(temperature) <= min(nll(1.0), nll(0.97 * temperature), nll(1.03 * temperature))
    assert fit_temperature(parts, start=5.0) == pytest.approx(temperature, rel=1e-3)


def test_a_temperature_is_a_distribution_still() -> None:
    """Made to write any of them, the probabilities of all first tokens sum to one, whatever the temperature."""
    bundle_ids = [[token] for token in range(4, 400)]

    def sums(model: Any, temperature: float) -> float:
        made = forced(model, [[5, 6]] * len(bundle_ids), bundle_ids, temperature=temperature, batch_size=400)
        [ended] = forced(model, [[5, 6]], [[]], temperature=temperature)
        return math.exp(ended.log_probabilities[0]) + sum(math.exp(one.log_probabilities[0]) for one in made)

    torch.manual_seed(1)
    config = TransformerConfig(width=16, heads=2, feedforward=16, encoder_layers=1, decoder_layers=1)
    model = build(config, 400, 400, PAD).double().eval()
    rest = [math.exp(forced(model, [[5, 6]], [[i]], temperature=2.0)[0].log_probabilities[0]) for i in (0, 1, 2)]
    assert sums(model, 2.0) + sum(rest) == pytest.approx(1)
    plain, same = (forced(model, [[5, 6]], [[7]], **asked)[0] for asked in ({}, {"temperature": 1.0}))
    assert plain.log_probabilities == same.log_probabilities


def test_no_calibration_changes_nothing() -> None:
    for p in (1e-9, 0.2, 0.5, 1.0):
        assert Calibration().word(math.log(p)) == Calibration().token(math.log(p)) == pytest.approx(p)
    assert Calibration().word(-math.inf) == 0
    bent = Calibration(words=((0.2, 0.1), (0.6, 0.5)), tokens=((0.5, 0.7),))
    assert [bent.word(math.log(p)) for p in (0.01, 0.2, 0.4, 0.9)] == pytest.approx([0.1, 0.1, 0.3, 0.5])
    assert bent.token(math.log(0.01)) == 0.7


def test_a_curve_puts_right_what_is_off() -> None:
    """Confidences whose true shares are known: the curve finds them, and never falls."""
    draw = np.random.default_rng(1)
    sides = []
    for _ in range(2):
        given = draw.random(20_000)
        sides.append((given, draw.random(20_000) < 0.1 + 0.6 * given**2))
    (given, right), (others, what_came) = sides
    points = curve(given.tolist(), right.tolist())
    assert [x for x, _ in points] == sorted({x for x, _ in points})
    assert [y for _, y in points] == sorted({y for _, y in points})
    assert all(y == pytest.approx(0.1 + 0.6 * x**2, abs=0.06) for x, y in points)
    read = [on_curve(points, value) for value in others.tolist()]
    before, after = (reliability(each, what_came.tolist()) for each in (others.tolist(), read))
    assert after.error < 0.02 < 0.15 < before.error
    assert after.auc == pytest.approx(before.auc, abs=0.01)
    assert curve([0.2, 0.8], [True, False]) == ((0.5, 0.5),)


def test_the_calibration_error_of_a_case_counted_by_hand() -> None:
    found = reliability([0.95, 0.95, 0.15, 0.05], [True, False, False, True], bins=10)
    assert found.error == pytest.approx((2 * 0.45 + 0.15 + 0.95) / 4)
    assert [b.count for b in found.bins] == [1, 1, 2]
    assert found.auc == pytest.approx((0.5 + 1 + 0 + 0) / 4)
    assert reliability([1.0], [True]).error == 0
    with pytest.raises(DataError, match="0 confidences"):
        reliability([], [])


@pytest.mark.parametrize(
    ("output", "reference", "kept"),
    [
        ("a b c", "a b c", [True, True, True]),
        ("a x c", "a b c", [True, False, True]),
        ("b a", "a b", [False, False]),
        ("x a b", "a b", [False, True, True]),
        ("a", "", [False]),
        ("", "a", []),
    ],
)
def test_words_that_the_reference_keeps(output: str, reference: str, kept: list[bool]) -> None:
    assert kept_words(output.split(), reference.split()) == kept


def test_linked_words_tell_of_each_other() -> None:
    assert mutual_information([("a", "x"), ("b", "y")] * 5) == pytest.approx(math.log(2))
    assert mutual_information([("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")]) == pytest.approx(0)
    assert mutual_information([]) == 0


def test_a_bundle_keeps_its_calibration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = small_bundle(tmp_path / "b", seed=9, search={"beam": 1, "extra_length": 5})
    for name, lines in (("s", ENGLISH * 2), ("r", GERMAN * 2)):
        (tmp_path / name).write_text("\n".join([*lines, ""]) + "\n", encoding="utf-8")
    before = load(bundle).translate(ENGLISH[:2], confidence=True)
    asked = ["--source", str(tmp_path / "s"), "--reference", str(tmp_path / "r"), "--plot", str(tmp_path / "p.svg")]
    assert main(["calibrate", str(bundle.path), *asked]) == 0
    assert "temperature" in capsys.readouterr().out
    changed = bundles.load(bundle.path)
    found = changed.calibration
    assert found is not None
    assert found.report["lines"] == 24
    for name in ("tokens", "words"):
        for when in ("before", "temperature", "after"):
            assert 0 <= found.report[name][when]["error"] <= 1
            assert sum(b["count"] for b in found.report[name][when]["bins"]) == found.report[name][when]["count"]
    assert found.report["tokens"]["before"]["count"] == sum(len(bundle.target.encode(g)) + 1 for g in GERMAN) * 2
    assert len(found.report["mutual_information"]) == 6
    drawn = reliability_picture(found.report)
    assert (tmp_path / "p.svg").read_text("utf-8") == drawn.svg()
    legends = [text.get_text() for axes in drawn.figure.axes for text in axes.get_legend().get_texts()]
    for name, said in zip(("tokens", "words"), (legends[:2], legends[2:]), strict=True):
        errors = [found.report[name][when]["error"] for when in ("before", "after")]
        assert said == [
            f"{when}: calibration error {100 * e:.1f} %" for when, e in zip(("before", "after"), errors, strict=True)
        ]
    assert drawn.render("png").startswith(b"\x89PNG")
    after = load(changed).translate(ENGLISH[:2], confidence=True)
    assert [t.text for t in after] == [t.text for t in before]
    assert after[0].confidences != before[0].confidences
    assert changed.golden == bundle.golden
    assert changed.provenance == bundle.provenance
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")], "nothing is left beside it"
    file = bundle.path / "calibration.json"
    file.write_text(file.read_text("utf-8").replace('"rule"', '"rude"'), encoding="utf-8")
    with pytest.raises(BundleError, match=r"calibration\.json"):
        bundles.load(bundle.path)
    again = add_calibration(changed, Calibration(temperature=2.0))
    assert again.calibration == Calibration(temperature=2.0)


def test_what_cannot_be_calibrated_with_is_refused(translator: Translator) -> None:
    with pytest.raises(TextError, match="12 source lines but 11 reference lines"):
        calibrate(translator, ENGLISH, GERMAN[1:])
    with pytest.raises(DataError, match="2 pairs of lines have text; a calibration needs 20"):
        calibrate(translator, [*ENGLISH[:2], "", "a"], [*GERMAN[:2], "b", " "])
