"""Translating, scoring, evaluating and inspecting with a bundle."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bundles import ENGLISH, GERMAN, small_bundle

import regard
from regard import bundle as bundles
from regard.engine import decoding
from regard.errors import BundleError, DataError, ModelError, TextError
from regard.inspection.inspect import inspect, verify
from regard.tasks.evaluate import evaluate_lines
from regard.tasks.forced import perplexity_of, score_lines
from regard.tasks.translate import Translator, load


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    return load(small_bundle(tmp_path_factory.mktemp("bundles") / "small"), device="cpu")


@pytest.fixture(scope="module")
def multilingual(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    return load(small_bundle(tmp_path_factory.mktemp("bundles") / "many", tags=("de", "fr")), device="cpu")


def corpus() -> list[str]:
    """Sixty lines of many lengths."""
    words = " ".join(ENGLISH).split()
    draw = random.Random(3)
    return [" ".join(draw.choices(words, k=draw.randint(1, 15))) for _ in range(60)]


@pytest.mark.parametrize("beam", [1, 3])
def test_a_translation_does_not_depend_on_its_neighbours(translator: Translator, beam: int) -> None:
    lines = corpus()
    order = random.Random(1).sample(range(len(lines)), len(lines))
    whole = translator.translate(lines, beam=beam, batch_size=128)
    assert len({t.text for t in whole}) > 10, "the outputs differ, so the test can fail"
    for size in (1, 7, 32):
        shuffled = translator.translate([lines[i] for i in order], beam=beam, batch_size=size)
        again = dict(zip(order, shuffled, strict=True))
        for i, translation in enumerate(whole):
            assert again[i].text == translation.text
            assert again[i].target_tokens == translation.target_tokens
            assert again[i].log_probability == pytest.approx(translation.log_probability, abs=1e-9)


def test_the_fast_way_gives_nearly_the_same_scores(translator: Translator) -> None:
    lines = corpus()[:20]
    exact = translator.translate(lines, beam=1)
    fast = translator.translate(lines, beam=1, precision="float32")
    same = [abs(a.log_probability - b.log_probability) < 1e-3 for a, b in zip(exact, fast, strict=True)]
    assert sum(same) >= 18


def test_empty_lines_stay_empty_and_the_order_is_kept(translator: Translator) -> None:
    lines = ["", ENGLISH[0], "   ", ENGLISH[1], ""]
    found = translator.translate(lines)
    assert [found[i].text for i in (0, 2, 4)] == ["", "", ""]
    assert found[1].text == translator.translate([ENGLISH[0]])[0].text
    assert found[3].text == translator.translate([ENGLISH[1]])[0].text
    assert translator.translate([]) == []


def test_an_output_is_one_line(translator: Translator) -> None:
    assert not any(set("\n\r\0") & set(t.text) for t in translator.translate(corpus()))


def test_the_n_best_come_best_first(translator: Translator) -> None:
    for found in translator.translate(ENGLISH[:4], n_best=3):
        assert len(found.hypotheses) == 3
        scores = [h.score for h in found.hypotheses]
        assert scores == sorted(scores, reverse=True)
        assert (found.text, found.score) == (found.hypotheses[0].text, found.hypotheses[0].score)
        assert len({h.tokens for h in found.hypotheses}) == 3


def test_attention_is_a_distribution_over_the_source(translator: Translator) -> None:
    for found in translator.translate(ENGLISH[:3], attention=True):
        assert found.attention is not None
        assert found.attention.shape == (len(found.target_tokens), len(found.source_tokens))
        assert np.allclose(found.attention.sum(1), 1, atol=1e-5)
        assert found.source_tokens[-1] == "</s>"


def test_unfamiliar_tokens_are_counted(translator: Translator) -> None:
    plain, strange = translator.translate(["A man", "A 漢"])
    assert plain.unknown_count == 0
    assert strange.unknown_count == 3


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a\0b", r"line 2 contains a NUL \(U\+0000\) at character 2"),
        ("a\nb", "line 2 contains a line break at character 2"),
        ("x " * 3000, r"line 2 has [\d,]+ tokens .* at most 1,024"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(translator: Translator, line: str, message: str) -> None:
    with pytest.raises(TextError, match=message):
        translator.translate(["fine", line])


def test_a_string_is_not_a_list_of_lines(translator: Translator) -> None:
    with pytest.raises(TextError, match="put it in a list"):
        translator.translate("Hello")


def test_another_pair_of_languages_is_refused(translator: Translator) -> None:
    translator.translate(ENGLISH[:1], from_="en", to="de")
    with pytest.raises(ModelError, match=r"translates to German \(de\), not to French \(fr\)"):
        translator.translate(ENGLISH[:1], to="fr")
    with pytest.raises(ModelError, match=r"translates from English \(en\), not from German \(de\)"):
        translator.translate(GERMAN[:1], from_="de")


def test_a_multilingual_bundle_wants_to_know_the_language(multilingual: Translator) -> None:
    tagged = multilingual.translate([f"<2de> {ENGLISH[0]}"])[0]
    assert multilingual.translate([ENGLISH[0]], to="de")[0] == tagged
    assert multilingual.translate(["<2de> ", ""])[0].text == ""
    with pytest.raises(TextError, match=r"line 1 .* begin it with one of <2de>, <2fr> .* \(--to de\)"):
        multilingual.translate([ENGLISH[0]])
    with pytest.raises(TextError, match="line 1 asks for <2it>, and this bundle knows <2de>, <2fr>"):
        multilingual.translate([f"<2it> {ENGLISH[0]}"])
    with pytest.raises(TextError, match="line 1 begins with <2de> but 'fr' was asked for"):
        multilingual.translate([f"<2de> {ENGLISH[0]}"], to="fr")
    with pytest.raises(ModelError, match=r"cannot translate to Italian \(it\); it knows de, fr"):
        multilingual.translate([ENGLISH[0]], to="it")


def test_wrong_settings_are_refused(translator: Translator) -> None:
    with pytest.raises(ModelError, match="beam = 0"):
        translator.translate(ENGLISH[:1], beam=0)
    with pytest.raises(ModelError, match="n_best is 0"):
        translator.translate(ENGLISH[:1], n_best=0)
    assert translator.bundle is not None
    with pytest.raises(ModelError, match='bfloat16: there is no such option any more; set precision to "bfloat16"'):
        translator.translate(ENGLISH[:1], bfloat16=True)
    with pytest.raises(ModelError, match="batch_independent: there is no such option any more"):
        translator.translate(ENGLISH[:1], batch_independent=False)
    with pytest.raises(ModelError, match="cannot be used"):
        load(translator.bundle, device="cuda:99")


def test_learned_positions_bound_the_length(tmp_path: Path) -> None:
    """Also where the search would allow more than there are places: the output then ends at the last one."""
    table = {"width": 32, "heads": 2, "feedforward": 64, "positions": "learned", "max_positions": 40}
    short = load(small_bundle(tmp_path / "learned", model=table), device="cpu")
    longest = "a" * 1000
    while len(short.source.encode(longest)) > short.limit:
        longest = longest[:-1]
    assert len(short.source.encode(longest)) == short.limit == 40 - 1
    with pytest.raises(TextError, match="at most 39 in one line"):
        short.translate([longest + "b" * 10])
    beyond = {"extra_length": 50, "max_length": 80}
    for exact in (True, False):  # in PyTorch, and compiled where it can be
        found = short.translate(
            [longest, "a"], search={**beyond, "min_length": 40}, precision="exact" if exact else "float32"
        )
        assert [len(each.target_tokens) for each in found] == [40, 40]
        assert all(
            0 < len(t.target_tokens) <= 40
            for t in short.translate([longest, "a"], search=beyond, precision="exact" if exact else "float32")
        )


def test_scores_are_the_searchs_own(translator: Translator) -> None:
    """The log-probability of what the search found, computed all at once, is what the search added up step by step."""
    lines = corpus()[:12]
    found = [t for t in translator.translate(lines, beam=2) if t.ended]
    for translation, line in zip(translator.translate(lines, beam=2), lines, strict=True):
        ids = translator.target.encode(translation.text)
        if not translation.ended or translator.target.tokens(ids) != list(translation.target_tokens[:-1]):
            continue  # the search's tokens are not how the tokeniser cuts that text
        scored = score_lines(translator, [line], [translation.text])[0]
        assert scored.log_probability == pytest.approx(translation.log_probability, abs=1e-4)
    assert len(found) > 0


def test_a_score_does_not_depend_on_its_neighbours(translator: Translator) -> None:
    whole = score_lines(translator, ENGLISH, GERMAN, batch_size=128)
    alone = [score_lines(translator, [s], [t])[0] for s, t in zip(ENGLISH, GERMAN, strict=True)]
    padded = score_lines(translator, ENGLISH, GERMAN, precision="float32")
    assert [s.log_probability for s in alone] == pytest.approx([s.log_probability for s in whole], abs=1e-9)
    assert [s.log_probability for s in padded] == pytest.approx([s.log_probability for s in whole], abs=1e-3)
    assert all(len(s.tokens) == len(s.log_probabilities) and s.tokens[-1] == "</s>" for s in whole)
    assert perplexity_of(whole).unit == "per token"
    with pytest.raises(TextError, match="12 source lines but 11 target lines"):
        score_lines(translator, ENGLISH, GERMAN[1:])


def test_an_evaluation_says_what_made_it(translator: Translator, tmp_path: Path) -> None:
    hypotheses = [t.text for t in translator.translate(ENGLISH)]
    perfect = evaluate_lines(translator, ENGLISH, hypotheses, groups=["odd\tall", "even\tall"] * 6)
    assert perfect.scores["exact-match"].value == 100
    assert perfect.scores["bleu"].signature.startswith("nrefs:1")
    assert perfect.hypotheses == hypotheses
    assert perfect.decoding["precision"] == ("float64" if decoding.refusal() else "float32")
    assert perfect.to_dict()["sentences_per_second"] > 0
    assert list(perfect.groups) == ["all", "even", "odd"]
    assert perfect.groups["odd"]["exact-match"].value == 100

    (tmp_path / "s").write_text("\n".join(ENGLISH) + "\n", encoding="utf-8")
    (tmp_path / "r").write_text("\n".join(GERMAN) + "\n", encoding="utf-8")
    assert translator.bundle is not None
    from_files = regard.evaluate(
        translator.bundle.path, source=tmp_path / "s", reference=tmp_path / "r", metrics=["chrf"], resamples=0
    )
    assert list(from_files.scores) == ["bleu", "chrf"], "BLEU always"


def test_an_evaluation_searches_as_it_is_asked(translator: Translator) -> None:
    asked = {"samples": 2, "temperature": "0.5", "seed": 7, "max_length": 6}
    found = evaluate_lines(translator, ENGLISH, GERMAN, metrics=["chrf"], search=asked, resamples=0)
    assert found.hypotheses == [t.text for t in translator.translate(ENGLISH, search=asked)]
    assert found.hypotheses != evaluate_lines(translator, ENGLISH, GERMAN, metrics=["chrf"], resamples=0).hypotheses
    assert (found.decoding["samples"], found.decoding["temperature"], found.decoding["stop"]) == (2, 0.5, "bound")
    with pytest.raises(ModelError, match="search has no key 'stopp'; did you mean 'stop'"):
        evaluate_lines(translator, ENGLISH, GERMAN, search={"stopp": "full"})


def test_an_evaluation_of_what_does_not_match_is_refused(translator: Translator) -> None:
    with pytest.raises(TextError, match="12 source lines but 11 reference lines"):
        evaluate_lines(translator, ENGLISH, GERMAN[1:])
    with pytest.raises(TextError, match="12 source lines but 1 group lines"):
        evaluate_lines(translator, ENGLISH, GERMAN, groups=["x"])
    with pytest.raises(DataError, match="no metric named 'blue'"):
        evaluate_lines(translator, ENGLISH, GERMAN, metrics=["blue"])
    with pytest.raises(DataError, match="no line to evaluate"):
        evaluate_lines(translator, [], [])


def test_a_bundle_can_be_looked_into_and_verified(translator: Translator, tmp_path: Path) -> None:
    assert translator.bundle is not None
    found = inspect(translator.bundle.path, again=True)
    assert found.verified
    assert found.parameters == sum(p.numel() for p in translator.bundle.model().parameters())
    assert found.languages == "en to de"
    assert found.to_dict()["golden"][0][0] == ENGLISH[0]

    wrong = [
        translator.bundle.golden[0].model_copy(update={"target_ids": (70,), "output": translator.target.decode([70])})
    ]
    bundle = translator.bundle
    changed = bundles.save(
        tmp_path / "changed",
        recipe=bundle.recipe,
        weights=dict(bundle.model().named_parameters()),
        source=bundle.source,
        target=bundle.target,
        provenance=bundle.provenance,
        golden=wrong,
    )
    assert inspect(changed).verified is False
    with pytest.raises(BundleError, match=r"(?s)1 of 1 golden sentences come out different.*should give .*and gives"):
        inspect(changed, again=True)
    with pytest.raises(BundleError, match="no golden sentences"):
        verify(replace(bundle, golden=()))
