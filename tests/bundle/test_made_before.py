"""Bundles that version 0.1 wrote load unchanged and translate as that version did.

`made-by-0.1` holds two of them: a Transformer with a calibration and a shortlist, and an int8 model of Luong's. Their
recipes and files use the older keys (`train.rate`, `search.no_repeat`, `pieces`); `translations.json` is what version
0.1 made of the lines in it, with the log-probability of each.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import regard
from regard import bundle as bundles
from regard.bundle.load import computes_otherwise
from regard.models import FAMILIES

pytestmark = pytest.mark.filterwarnings("ignore::regard.errors.RegardWarning")  # int8 is not for Luong's

PLACE = Path(__file__).parent / "made-by-0.1"
BEFORE: dict[str, Any] = json.loads((PLACE / "translations.json").read_text("utf-8"))


@pytest.mark.parametrize("name", BEFORE["translations"])
def test_it_translates_as_it_did_then(name: str) -> None:
    translator = regard.load(PLACE / name)
    for search, options in (("default", {}), ("greedy", {"beam": 1})):
        found = translator.translate(BEFORE["lines"], **options)
        expected = BEFORE["translations"][name][search]
        assert [t.text for t in found] == [text for text, _ in expected]
        assert [t.log_probability for t in found] == pytest.approx([p for _, p in expected], abs=1e-3)


def test_the_older_keys_are_read_under_their_present_names() -> None:
    recipe = bundles.load(PLACE / "transformer").recipe
    assert (recipe.train.max_updates, recipe.train.learning_rate) == (1500, 0.004)
    assert recipe.search.no_repeat_ngram_size == 9
    assert bundles.load(PLACE / "luong").recipe.model.init_range == 0.2


def test_its_calibration_and_shortlist_are_read() -> None:
    bundle = bundles.load(PLACE / "transformer")
    assert bundle.calibration is not None
    assert bundle.calibration.temperature == pytest.approx(0.8725, abs=1e-4)
    assert len(bundle.calibration.tokens) > 1
    shortlist = bundle.shortlist()
    assert shortlist is not None
    assert len(shortlist.starts) == len(bundle.source) + 1


@pytest.mark.parametrize(
    ("family", "settings", "said"),
    [
        ("transformer", {"positions": "alibi", "heads": 6, "width": 96}, "slopes for 6 heads"),
        ("self-attentive", {"pool": "end"}, "last state of each direction"),
        ("transformer", {"positions": "alibi", "heads": 4, "width": 96}, ""),
        ("transformer", {}, ""),
    ],
)
def test_a_model_that_would_answer_otherwise_now_is_refused(family: str, settings: dict[str, Any], said: str) -> None:
    model = FAMILIES[family].config(**settings)
    assert computes_otherwise(model, "0.2.0") is None
    found = computes_otherwise(model, "0.1.0")
    assert said in found if found else not said
