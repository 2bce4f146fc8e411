"""Residual branches that a batch goes past."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import toy
from test_additions import _tables, _trained_resumed_and_used

from regard import recipe as recipes
from regard.errors import ModelError
from regard.models import FAMILIES
from regard.models.transformer import TransformerConfig
from regard.nn.layers import NORMS, PostNorm
from regard.tasks.fit import fit
from regard.train.regularizers import terms_of


def _skipping(model: torch.nn.Module, strength: float) -> None:
    (term,) = terms_of({"stochastic-depth": strength}, None, torch.device("cpu"))
    assert term.entry.model is not None
    term.entry.model(term.value, model)


def test_the_last_block_is_skipped_most_often() -> None:
    model = toy.make(TransformerConfig(width=16, heads=2, feedforward=16, encoder_layers=4, decoder_layers=2))
    _skipping(model, 0.4)
    for side, blocks in (("encoder", 4), ("decoder", 2)):
        for i, block in enumerate(getattr(model, side)):
            found = [part.skipped for part in block.modules() if isinstance(part, PostNorm)]
            assert found == pytest.approx([0.4 * (i + 1) / blocks] * (2 if side == "encoder" else 3))


@pytest.mark.parametrize("kind", NORMS)
def test_a_branch_is_whole_or_gone_and_its_mean_stays(kind: str) -> None:
    torch.manual_seed(3)
    residual = NORMS[kind](8, 0.0, "layer").double()
    x, y = torch.randn(3, 5, 8, dtype=torch.float64), torch.randn(3, 5, 8, dtype=torch.float64)
    whole = residual.add(x, y)
    without, more = residual.add(x, torch.zeros_like(y)), residual.add(x, y / 0.75)
    residual.skipped = 0.25
    gone = 0
    for _ in range(400):
        found = residual.add(x, y)
        skipped = torch.allclose(found, without, rtol=1e-6, atol=1e-6)
        gone += skipped
        assert skipped or torch.allclose(found, more, rtol=1e-6, atol=1e-6)
    assert 70 < gone < 130
    assert torch.equal(residual.eval().add(x, y), whole)


def test_a_run_resumes_exactly_and_learns_otherwise(tmp_path: Path) -> None:
    found = _trained_resumed_and_used(_tables(tmp_path, regularizers={"stochastic-depth": 0.5}), tmp_path)
    plain: list[dict[str, object]] = []
    fit(recipes.validate(_tables(tmp_path)), tmp_path / "plain", callbacks=[plain.append])
    assert found[6] != [event["loss"] for event in plain if event["event"] == "train"][-1]


@pytest.mark.parametrize(("family", "strength"), [("seq2seq", 0.2), ("transformer", 1.0)])
def test_what_cannot_be_skipped_is_refused(family: str, strength: float) -> None:
    model = toy.make(FAMILIES[family].config(**FAMILIES[family].small))
    with pytest.raises(ModelError, match=r"stochastic-depth = "):
        _skipping(model, strength)
