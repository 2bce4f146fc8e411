"""The model card says what the bundle's files say, and follows whatever is changed in the bundle."""

from __future__ import annotations

from pathlib import Path

import pytest
from bundles import small_bundle

import regard
from regard import bundle as bundles
from regard.bundle.card import model_card
from regard.bundle.files import MODEL_CARD
from regard.bundle.format import Golden, Provenance
from regard.recipe import parse

SCORE = {
    "name": "BLEU",
    "value": 38.877,
    "signature": "nrefs:1|case:mixed",
    "unit": "points of 100",
    "interval": [37.1, 40.4],
}
CAME = Provenance(
    created="2026-11-22T10:00:00+00:00",
    versions={"regard": "0.2.0"},
    machine="a laptop",
    data={
        "sha256": {"/home/me/train.en": "ab" * 32},
        "filters": {"read": 1200, "kept": 1100, "dropped": {"too long": 100}},
    },
    training={"updates": 4000, "target_tokens": 7819882, "precision": "bfloat16"},
    scores=[{"set": "dev", "scores": {"bleu": SCORE}}],
    notes={"tuned": "alpha 1.2"},
)
RECIPE = """
name = "a | <b>name</b>"
[data]
source = "train.en"
target = "train.de"
source_language = "en"
target_language = "de"
licence = "CC BY 4.0"
"""


def test_it_says_what_the_files_say() -> None:
    golden = [Golden(source="A | b.", source_ids=[4], target_ids=[5], output="C\\n.")]
    card = model_card(parse(RECIPE), 7_066_624, CAME, golden)
    for wanted in (
        'language: ["en", "de"]', "7,066,624 parameters", "(English to German)", "| train.en | `abababababababab…` |",
        "Read: 1,200; kept: 1,100; 100 left out: too long.", "| target tokens | 7,819,882 |",
        "| dev | BLEU, points of 100 | 38.88 (37.10 to 40.40) | `nrefs:1\\|case:mixed` |", "| tuned | alpha 1.2 |",
        "at most 256 tokens", "| A \\| b. | C\\\\n. |", "Of the data: CC BY 4.0.", "# a \\| &lt;b>name",
    ):  # fmt: skip
        assert wanted in card
    assert "/home/me" not in card, "where files lay says something of their owner"


def test_what_is_not_known_is_left_out() -> None:
    card = model_card(parse(RECIPE.replace('licence = "CC BY 4.0"', "")), 10, Provenance(), [])
    assert "## Scores" not in card
    assert "## Data" not in card
    assert "not stated by the recipe" in card
    assert "tokens of a side" not in card, "what was not trained here was not filtered by this recipe"


def test_a_bundle_has_its_card_which_follows_it(tmp_path: Path) -> None:
    bundle = small_bundle(tmp_path / "bundle")
    path = bundle.path
    assert MODEL_CARD in bundle.files
    assert f"{bundle.parameters:,} parameters" in (path / MODEL_CARD).read_text("utf-8")
    changed = bundles.with_recipe(bundle, bundle.recipe, bundle.golden, {"why": "it was tried"}, tmp_path / "other")
    assert "| why | it was tried |" in (changed.path / MODEL_CARD).read_text("utf-8")
    (path / MODEL_CARD).write_text("# The best model in the world\n", "utf-8")
    with pytest.raises(regard.BundleError, match="MODEL_CARD"):
        bundles.load(path)
