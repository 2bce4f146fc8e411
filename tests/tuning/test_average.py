"""The mean of several bundles' weights, as a bundle."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from bundles import small_bundle

from regard import bundle as bundles
from regard.apps.cli import main
from regard.errors import BundleError, ModelError
from regard.inspection.inspect import verify
from regard.tuning.average import average
from regard.tuning.quantize import quantize
from regard.tuning.shortlist import shortlist


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    paths = [tmp_path_factory.mktemp("three") / f"seed{seed}" for seed in (1, 2, 3)]
    for seed, path in enumerate(paths, start=1):
        small_bundle(path, seed=seed)
    return paths


def _weights(path: Path) -> dict[str, torch.Tensor]:
    return {name: p.detach() for name, p in bundles.load(path).model().named_parameters()}


@pytest.mark.parametrize("shares", [(), (2.0, 1.0, 0.0)])
def test_each_weight_is_the_mean(three: list[Path], tmp_path: Path, shares: tuple[float, ...]) -> None:
    found = average(three, tmp_path / "mean", shares=shares)
    each, counts = [_weights(path) for path in three], shares or (1.0, 1.0, 1.0)
    for name, mean in _weights(tmp_path / "mean").items():
        expected = sum(n * weights[name].double() for n, weights in zip(counts, each, strict=True)) / sum(counts)
        torch.testing.assert_close(mean, expected.float(), rtol=0, atol=0)
    verify(found)
    assert [made["share"] for made in found.provenance.notes["average"]] == [*counts]
    assert found.provenance.scores == []
    assert [golden.source for golden in found.golden] == [golden.source for golden in bundles.load(three[0]).golden]


def test_a_bundle_and_itself_are_that_bundle_with_its_shortlist(three: list[Path], tmp_path: Path) -> None:
    one = tmp_path / "one"
    small_bundle(one)
    shortlist(one, ["A man is smiling."] * 4, ["Ein Mann lächelt."] * 4)
    found = average([one, one], tmp_path / "same")
    assert found.files["weights.safetensors"].sha256 == bundles.load(one).files["weights.safetensors"].sha256
    assert found.golden == bundles.load(one).golden
    assert found.shortlist() is not None


def test_models_that_were_trained_with_other_dropouts_have_a_mean(three: list[Path], tmp_path: Path) -> None:
    model = bundles.load(three[0]).recipe.model.model_dump()
    small_bundle(tmp_path / "other", seed=4, model={**model, "dropout": 0.4})
    average([three[0], tmp_path / "other"], tmp_path / "mean")
    small_bundle(tmp_path / "pre", seed=4, model={**model, "norm": "pre"})
    with pytest.raises(ModelError, match="only models of a kind"):
        average([three[0], tmp_path / "pre"], tmp_path / "mean")


def test_what_has_no_mean_is_refused(three: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(ModelError, match="1 bundles and 1 shares; give two"):
        average(three[:1], out)
    with pytest.raises(ModelError, match="2 bundles and 3 shares"):
        average(three[:2], out, shares=[1, 1, 1])
    for shares in ([1, -1], [0, 0], [1, float("inf")], [1, float("nan")]):
        with pytest.raises(ModelError, match="none may be below 0"):
            average(three[:2], out, shares=shares)
    small_bundle(tmp_path / "apart", separate=True, model={"width": 32, "heads": 2, "share": "none"})
    with pytest.raises(ModelError, match=r"apart: its \[model\] is not that of"):
        average([three[0], tmp_path / "apart"], out)
    small_bundle(tmp_path / "tagged", tags=("de", "fr"))
    with pytest.raises(ModelError, match="tagged: its vocabulary is not that of"):
        average([three[0], tmp_path / "tagged"], out)
    sides = {"source": "train.de", "target": "train.en", "source_language": "de", "target_language": "en"}
    small_bundle(tmp_path / "back", data=sides)
    with pytest.raises(ModelError, match=r"back: it translates de to en, and .*seed1 en to de;"):
        average([three[0], tmp_path / "back"], out)
    quantize(three[0], tmp_path / "int8")
    with pytest.raises(ModelError, match="int8: its weights were made small"):
        average([three[0], tmp_path / "int8"], out)
    with pytest.raises(BundleError, match="would be lost"):
        average(three, three[1])
    assert not out.exists()


def test_the_command(three: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["average", *map(str, three[:2]), "--out", str(tmp_path / "mean")]
    assert main([*given, "--shares", "1,3"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'mean'}\n"
    assert [made["share"] for made in bundles.load(tmp_path / "mean").provenance.notes["average"]] == [1, 3]
    assert main([*given, "--shares", "1,x"]) == 2
    assert "--shares 1,x: must be numbers" in capsys.readouterr().err
