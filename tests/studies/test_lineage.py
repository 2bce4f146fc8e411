"""The recurrent families as users meet them: bundles, search, alignments, plans; and what they refuse."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import toy
from bundles import ENGLISH, GERMAN, small_bundle
from torch import Tensor

from regard import recipe as recipes
from regard.errors import ModelError, RecipeError, RegardError
from regard.exchange.export import export
from regard.kernels import native
from regard.linking.align import align_lines
from regard.models import FAMILIES
from regard.models.luong import LuongConfig
from regard.nn.layers import only_references
from regard.nn.state import KeysValues, Observer
from regard.tasks.costs import count_costs
from regard.tasks.details import with_unknown_replaced
from regard.tasks.forced import forced
from regard.tasks.translate import Translator, load
from regard.tasks.translation import Candidate, Translation
from regard.text import UNK

REFUSED = native.unavailable("cpu", torch.float32)
SIZES: dict[str, dict[str, Any]] = {
    "seq2seq": {"family": "seq2seq", "width": 24, "embedding": 16, "layers": 2},
    "bahdanau": {"family": "bahdanau", "width": 24, "encoder_width": 32, "embedding": 16, "readout": 20},
    "luong": {"family": "luong", "width": 24, "embedding": 16, "layers": 2},
}
RECURRENT = list(SIZES)


@pytest.fixture(scope="module")
def translators(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Translator]:
    folder = tmp_path_factory.mktemp("bundles")
    for family, sizes in SIZES.items():
        small_bundle(folder / family, model={**sizes, "init_range": 0.3})
    return {family: load(folder / family, device="cpu") for family in RECURRENT}


@pytest.mark.parametrize("family", RECURRENT)
def test_a_bundle_translates_alone_as_in_company(translators: dict[str, Translator], family: str) -> None:
    translator = translators[family]
    short = {"max_length": 6}
    ensemble_with = [t.text for t in translator.translate(ENGLISH[:4], beam=3, search=short)]
    assert ensemble_with == [translator.translate([line], beam=3, search=short)[0].text for line in ENGLISH[:4]]
    assert any(ensemble_with)


@pytest.mark.parametrize("family", ["bahdanau", "luong"])
def test_those_that_look_align_and_show_where(translators: dict[str, Translator], family: str) -> None:
    found = align_lines(translators[family], ENGLISH[:2], GERMAN[:2])
    assert all(alignment.links for alignment in found)
    (shown,) = translators[family].translate(ENGLISH[:1], attention=True, beam=1, search={"max_length": 6})
    assert shown.attention is not None
    assert shown.attention.shape == (len(shown.target_tokens), len(shown.source_tokens))


def test_one_fixed_vector_has_nothing_to_see_to_count_or_to_align_by(translators: dict[str, Translator]) -> None:
    for refused in (
        lambda: align_lines(translators["seq2seq"], ENGLISH[:1], GERMAN[:1]),
        lambda: translators["seq2seq"].translate(ENGLISH[:1], attention=True),
        lambda: translators["seq2seq"].translate(ENGLISH[:1], search={"coverage": 0.2}),
    ):
        with pytest.raises(RegardError, match=r"attention|layer"):
            refused()


@pytest.mark.parametrize("family", RECURRENT)
def test_no_other_library_is_given_what_it_cannot_hold(
    translators: dict[str, Translator], family: str, tmp_path: Path
) -> None:
    bundle = translators[family].bundle
    assert bundle is not None
    with pytest.raises(ModelError, match=f"its model is a {family}"):
        export(bundle.path, "huggingface", tmp_path / "out", verify=False)


@pytest.mark.parametrize("family", ["seq2seq", "bahdanau"])
def test_costs_are_counted_as_for_any_model(family: str) -> None:
    config, build = FAMILIES[family].config, FAMILIES[family].build
    sizes = config(**{k: v for k, v in SIZES[family].items() if k != "family"})
    costs = count_costs(sizes, 50, 60, bfloat16=True)
    assert costs.parameters == sum(p.numel() for p in build(sizes, 50, 60).parameters())
    one, more, most = (float(costs.flops.of(n, n)) for n in (10, 20, 30))
    assert 0 < one < more < most
    # The products of all weights that a token passes through, three times with their gradients; attention comes on top.
    through = sum(p.numel() for n, p in build(sizes, 50, 60).named_parameters() if p.dim() == 2 and "source" not in n)
    assert more - one > 6 * 10 * 0.5 * (through - 60 * 16)


@pytest.mark.skipif(REFUSED is not None, reason=str(REFUSED))
@pytest.mark.parametrize("name", [name for name in toy.CONFIGS if name.startswith(("seq2seq", "bahdanau", "luong"))])
def test_a_whole_models_gradients_agree_with_the_reference(name: str) -> None:
    def gradients(dtype: torch.dtype) -> dict[str, Tensor]:
        model: Any = toy.make(toy.CONFIGS[name], dtype=dtype)
        (source, reading), (target, writing) = toy.padded(toy.SOURCES), toy.padded(toy.TARGETS)
        hidden, _ = model.decode(target, model.start(model.encode(source, reading), reading), writing)
        inside = torch.arange(target.shape[1]) < writing.lengths[:, None]
        model.project(hidden)[inside].square().mean().backward()
        return {n: p.grad.double() for n, p in model.named_parameters() if p.grad is not None}

    compiled = gradients(torch.float32)
    with only_references():
        exact = gradients(torch.float64)
    assert compiled.keys() == exact.keys()
    for key, value in exact.items():
        torch.testing.assert_close(compiled[key], value, rtol=1e-4, atol=1e-5)


def _weights(config: Any) -> tuple[Tensor, list[int]]:
    """Recorded weights (B, T, S) of a model, and the sources' lengths."""
    model: Any = toy.make(config, dtype=torch.float64)
    (source, reading), (target, writing) = toy.padded(toy.SOURCES), toy.padded(toy.TARGETS)
    observe = Observer("cross")
    model.decode(target, model.start(model.encode(source, reading), reading), writing, observe)
    return observe.weights["cross"][0][:, 0].detach(), [len(row) for row in toy.SOURCES]


def test_monotonic_local_attention_sees_the_window_around_its_own_place() -> None:
    small: dict[str, Any] = {"width": 8, "embedding": 8, "layers": 1, "dropout": 0.0, "window": 1}
    for feeding in (True, False):
        weights, lengths = _weights(LuongConfig(**small, attention="local-m", input_feeding=feeding))
        for row, length in zip(weights, lengths, strict=True):
            for t, each in enumerate(row):
                seen = [s for s in range(length) if abs(s - t) <= 1]
                assert each.nonzero().flatten().tolist() == seen
                assert float(each.sum()) == pytest.approx(1.0 if seen else 0.0)


@torch.no_grad()
def test_predictive_local_attention_is_the_windows_softmax_times_a_gaussian() -> None:
    config = LuongConfig(
        width=8, embedding=8, layers=1, dropout=0.0, attention="local-p", window=2, score="dot", input_feeding=False
    )
    model: Any = toy.make(config, dtype=torch.float64)
    looks = model.attention
    x, keys = torch.randn(1, 1, 8, dtype=torch.float64), torch.randn(1, 1, 9, 8, dtype=torch.float64)
    _, found = looks(x, KeysValues(keys, keys), torch.tensor([7]), 0, torch.ones(1, x.shape[1], dtype=torch.bool))
    centre = 7 * float(torch.sigmoid(looks.share.weight @ torch.tanh(looks.place.weight @ x[0, 0])))
    inside = [s for s in range(7) if abs(s - centre) <= 2]
    scores = torch.stack([keys[0, 0, s] @ x[0, 0] for s in inside])
    expected = torch.zeros(9, dtype=torch.float64)
    for s, share in zip(inside, scores.softmax(0), strict=True):
        expected[s] = share * torch.tensor(-((s - centre) ** 2) / (2 * (2 / 2) ** 2)).exp()
    torch.testing.assert_close(found[0, 0, 0], expected)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"family": "bahdanau", "encoder_width": 11}, "encoder_width \\(11\\) must be even"),
        ({"family": "seq2seq", "bidirectional": True}, "set reverse_source = false"),
        ({"family": "luong", "score": "adittive"}, "did you mean additive"),
        ({"family": "luong", "heads": 2}, "heads"),
    ],
)
def test_wrong_values_are_named_with_the_way_out(table: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        recipes.validate({"data": {"source": "a", "target": "b"}, "model": table})


def test_a_score_that_the_widths_do_not_allow_is_refused() -> None:
    config, build = FAMILIES["bahdanau"].config, FAMILIES["bahdanau"].build
    with pytest.raises(ModelError, match="make them equal"):
        build(config(width=8, encoder_width=12, score="dot"), 20, 20)


def test_the_source_word_looked_at_most_takes_the_place_of_an_unknown_one(translators: dict[str, Translator]) -> None:
    """Of a model that is made to write unknown tokens: each becomes the word that its step looked at."""
    for family in ("bahdanau", "luong"):
        translator = translators[family]
        written = (UNK, translator.target.encode(GERMAN[0])[0], UNK)
        text = translator.target.decode(written)
        translation = Translation(text, hypotheses=(Candidate(text, 0.0, 0.0, ("a", "b", "c", "</s>"), True, written),))
        line = "A trendy girl"
        (made,) = forced(translator.model, [translator.source.encode(line)], [written], attention=True)
        found = with_unknown_replaced(translation, line, made, translator.reading, translator.target, None).text
        places, words = translator.source.spans(line), line.split()
        starts = [0, 2, 9]
        for step, ahead in ((0, True), (2, False)):
            weights = made.attention[0][0, step]
            owner = [max(w for w in range(3) if starts[w] <= max(start, end - 1)) for start, end in places]
            sums = [sum(weights[s] for s in range(len(places)) if owner[s] == w) for w in range(3)]
            word = words[max(range(3), key=lambda w: sums[w])]
            assert (found.split()[0] if ahead else found.split()[-1]) == word
        assert "\u2047" not in found


def test_unknown_words_are_replaced_or_spoken_of_not_both(translators: dict[str, Translator]) -> None:
    short = {"max_length": 4}
    with pytest.raises(ModelError, match="one or the other"):
        translators["luong"].translate(ENGLISH[:1], replace_unknown=True, alignment=True, search=short)
    with pytest.raises(ModelError, match="no attention"):
        translators["seq2seq"].translate(ENGLISH[:1], replace_unknown=True, search=short)
    (plain,), (asked,) = (
        translators["luong"].translate(ENGLISH[:1], replace_unknown=r, search=short) for r in (False, True)
    )
    assert plain.text == asked.text


@pytest.mark.parametrize(
    "family", [*RECURRENT, "convs2s", "lstmn", "lstmn-translator", "mask-predict", "self-attentive"]
)
def test_the_page_of_the_lineage_names_every_key_and_its_default(family: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "lineage.md").read_text("utf-8")
    section = re.sub(r"\s+", " ", page.split(f"\n## {family}\n")[1].split("\n## ")[0])
    for key, field in FAMILIES[family].config.model_fields.items():
        if key != "family":
            default = json.dumps(field.default).strip('"').removesuffix(".0")
            assert re.search(rf"`{key}` \({re.escape(default)}[:)]", section), key
