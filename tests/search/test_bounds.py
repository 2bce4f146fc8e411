"""Settings of a search have upper bounds, so that no bundle and no flag asks for more memory than there is."""

from __future__ import annotations

import pytest
from bundles import small_bundle

from regard.errors import ModelError
from regard.search.table import MOST_HYPOTHESES, SearchConfig, search_with
from regard.tasks.translate import load


@pytest.mark.parametrize(
    "settings",
    [
        {"beam": 2**57},
        {"beam": MOST_HYPOTHESES + 1},
        {"batch_size": 2**64},
        {"samples": 10**9},
        {"groups": 10**9},
        {"extra_length": 10**9},
        {"max_length": 10**9},
        {"passes": 10**9},
        {"alpha": 1e308},
        {"alpha": float("inf")},
        {"temperature": float("nan")},
        {"coverage": 1e300},
    ],
    ids=lambda settings: " ".join(f"{key} {value}" for key, value in settings.items()),
)
def test_what_is_beyond_a_bound_is_refused_with_its_name(settings):
    [(key, value)] = settings.items()
    with pytest.raises(ModelError, match=rf"^{key} = .*must be"):
        search_with(SearchConfig(), {key: value})


def test_n_best_has_a_bound(tmp_path):
    small_bundle(tmp_path / "bundle")
    translator = load(tmp_path / "bundle")
    for count in (0, 1_000_000):
        with pytest.raises(ModelError, match=f"n_best is {count}; it must be from 1 to 1000"):
            translator.translate(["A man."], n_best=count)
