"""A shortlist comes from a file, which may hold anything: what does not fit the vocabularies is refused by name."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from bundles import ENGLISH, GERMAN, small_bundle

from regard import bundle as bundles
from regard.bundle.save import _with
from regard.errors import BundleError, RegardError
from regard.tasks.translate import load
from regard.text import END, UNK
from regard.tuning.shortlist import shortlist

LINE = ["Two dogs."]


@pytest.fixture(scope="module")
def listed(tmp_path_factory):
    path = tmp_path_factory.mktemp("listed") / "bundle"
    small_bundle(path)
    shortlist(path, ENGLISH, GERMAN, each=5, always=3)
    return path


def numbers(*values, kind=np.int32):
    return np.array(values, dtype=kind)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"always": numbers(UNK, END, 2**30)}, "a token outside of the target's vocabulary"),
        ({"always": numbers(UNK, END, -1)}, "a token outside of the target's vocabulary"),
        ({"always": numbers(UNK)}, "lack the end of a line"),
        ({"always": numbers(UNK, END, kind=np.float32)}, "always is not one row of numbers of type int32"),
        ({"always": numbers(UNK, END)[None]}, "always is not one row of numbers"),
        ({"starts": numbers(0, 1, kind=np.int64)}, "it has lists of 1 source tokens"),
        ({"starts": "backwards"}, "its lists do not lie end to end"),
        ({"starts": "too far"}, "its lists do not lie end to end"),
        ({"tokens": "outside"}, "a token outside of the target's vocabulary"),
    ],
)
@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_what_does_not_fit_is_refused(listed, tmp_path, changes, reason, precision):
    good = bundles.load(listed)
    kept = good.shortlist()
    assert kept is not None
    backwards, too_far, outside = kept.starts.copy(), kept.starts.copy(), kept.tokens.copy()
    backwards[5], too_far[-1], outside[0] = 2**40, len(kept.tokens) + 9, len(good.target)
    made = {"backwards": backwards, "too far": too_far, "outside": outside}
    changed = {key: made[value] if isinstance(value, str) else value for key, value in changes.items()}
    try:
        bundles.add_shortlist(good, replace(kept, **changed))
        with pytest.raises(BundleError, match=f"{reason}.*learn one with `regard shortlist`"):
            load(listed).translate(LINE, search={"shortlist": True, "precision": precision})
    finally:
        bundles.add_shortlist(bundles.load(listed), kept)


def test_bytes_changed_at_random_end_in_a_message(listed):
    bundle = bundles.load(listed)
    kept = bundle.shortlist()
    whole = (bundle.path / "shortlist.safetensors").read_bytes()
    draw = random.Random(1)
    refused = 0
    try:
        for _ in range(100):
            changed = bytearray(whole)
            for _ in range(draw.randint(1, 8)):
                changed[draw.randrange(min(len(changed), draw.choice([200, len(changed)])))] = draw.randrange(256)
            again = _with(bundle, {"shortlist.safetensors": lambda file, made=changed: file.write_bytes(made)})
            try:
                again.shortlist()
            except RegardError as error:
                refused += "learn one with `regard shortlist`" in str(error)
    finally:
        assert kept is not None
        bundles.add_shortlist(bundles.load(listed), kept)
    assert refused > 50
