"""What searches ask of rows of log-probabilities is the same compiled, in NumPy and in PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.kernels.build import SOURCES, built
from regard.search import arrays

needs_compiler = pytest.mark.skipif(built(SOURCES / "rows.cpp")[0] is None, reason="rows.cpp is not built here")


def values(count: int, vocabulary: int) -> np.ndarray:
    """Rows of a wider array, with equals and with tokens that may not be."""
    draw = np.random.default_rng(vocabulary)
    found = draw.normal(0, 3, (count, vocabulary + 5)).round(2).astype(np.float32)
    found[:, ::7] = -np.inf
    return found[:, :vocabulary]


@needs_compiler
@pytest.mark.parametrize("vocabulary", [2, 63, 64, 65, 500, 4099])
def test_they_are_the_references(vocabulary: int) -> None:
    given = values(5, vocabulary)
    for keep in {1, 2, min(8, vocabulary // 2), min(300, vocabulary // 2)}:
        if keep > vocabulary * 6 // 7 - 1:
            continue
        quick = arrays.likeliest(given, keep)
        reference = np.argsort(-given, axis=-1, kind="stable")[:, :keep]
        assert np.array_equal(quick[1], reference)
        assert np.array_equal(quick[0], np.take_along_axis(given, reference, 1))
        torchs, _ = arrays.likeliest(torch.from_numpy(given), keep)
        assert np.array_equal(quick[0], torchs)
    for temperature in (1.0, 0.01, 7.0):
        exact = (torch.from_numpy(given).double() / temperature).logsumexp(-1).numpy()
        assert arrays.log_totals(given, temperature) == pytest.approx(exact, abs=1e-5, rel=1e-6)
        assert arrays.log_totals(given.astype(np.float64), temperature) == pytest.approx(exact, abs=1e-12)


@needs_compiler
def test_rows_without_numbers_and_without_any_chance() -> None:
    given = np.stack([np.full(70, np.nan), np.full(70, -np.inf)]).astype(np.float32)
    found = arrays.likeliest(given, 3)
    assert np.isnan(found[0][0]).all()
    assert (found[0][1] == -np.inf).all()


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_what_is_made_of_rows_is_what_pytorch_makes(kind: type) -> None:
    near = {"rtol": 1e-5, "atol": 1e-5} if kind is np.float32 else {}
    given = [values(3, 70 + i)[:, :70].astype(kind) for i in range(2)]
    one, two = (torch.from_numpy(each) for each in given)
    mean = torch.stack([one, two]).logsumexp(0) - np.log(2)
    may, tokens = given[1] > 0, np.array([3, 9, 69])
    for rows in (given, [one, two]):
        assert np.allclose(arrays.log_mean(rows), mean.numpy(), **near)
        assert np.allclose(arrays.log_softmax(rows[0]), one.log_softmax(-1).numpy(), **near)
        assert np.array_equal(arrays.masked(rows[0], may), one.masked_fill(~torch.from_numpy(may), -np.inf).numpy())
        assert np.array_equal(arrays.of_tokens(rows[0], tokens), [given[0][i, token] for i, token in enumerate(tokens)])
