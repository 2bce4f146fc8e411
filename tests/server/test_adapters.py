"""Bundles served with adapters: alone, of several, under corrections, replaced on disk, and those that do not fit."""

from __future__ import annotations

import shutil
from pathlib import Path

import httpx
import numpy as np
import pytest
from serving import BUNDLES, serving

import regard
from regard import bundle as bundles
from regard.adaptation.file import DOWN, UP, Adapter, Card, digest_of
from regard.apps.cli import main
from regard.errors import BundleError, ModelError
from regard.server.limits import Limits
from regard.server.service import Service, joined

BUNDLE = BUNDLES / "transformer"
ENGLISH = f"en-de={BUNDLE}"
OUTER = "decoder.0.feedforward.outer.weight"
LINES = ["abc de", "bhdg be", "hab", "gg fab cad"]


def adapter(file: Path, seed: int, weights: str = "") -> Path:
    """An adapter of random numbers, which changes what is translated."""
    draw, (rows, columns) = np.random.default_rng(seed), (24, 48)
    parts = {
        OUTER + UP: draw.normal(0, 0.5, (rows, 2)).astype(np.float32),
        OUTER + DOWN: draw.normal(0, 0.5, (2, columns)).astype(np.float32),
    }
    return Adapter(Card(weights=weights or digest_of(bundles.load(BUNDLE))), parts).write(file)


def said(file: Path | None = None) -> list[str]:
    """What the bundle makes of the lines with this adapter."""
    return [each.text for each in regard.load(BUNDLE, adapter=file or "").translate(LINES)]


def served(service: Service, source: str = "en", target: str = "de") -> list[str]:
    return [joined(found) for found in service.translate(LINES, source, target)]


def test_a_server_translates_with_an_adapter(tmp_path: Path) -> None:
    file = adapter(tmp_path / "a.safetensors", 1)
    assert said(file) != said()
    with serving(adapters=[file]) as address:
        body = {"q": LINES, "source": "en", "target": "de"}
        assert httpx.post(f"{address}/translate", json=body).json()["translatedText"] == said(file)


def test_each_of_several_bundles_has_its_own(tmp_path: Path) -> None:
    file = adapter(tmp_path / "a.safetensors", 1)
    service = Service([ENGLISH, f"fr-de={BUNDLE}"], Limits(), adapters=[f"fr-de={file}"])
    try:
        assert served(service) == said()
        assert served(service, "fr") == said(file)
    finally:
        service.close()


def test_corrections_are_learnt_on_top_and_undone_to_the_bit(tmp_path: Path) -> None:
    file = adapter(tmp_path / "a.safetensors", 1)
    before = said(file)
    with serving(adapters=[file], corrections=tmp_path / "kept") as address:

        def translated() -> list[object]:
            asked = [httpx.post(f"{address}/v1/translate", json={"text": line}).json() for line in LINES]
            return [each["translations"] for each in asked]

        first = translated()
        body = {"text": LINES[0], "translation": "EDE ABC"}
        [made] = httpx.put(f"{address}/v1/corrections", json=body).raise_for_status().json()["corrections"]
        assert made["before"] == before[0]
        assert translated()[0][0]["lines"][0]["text"] == "EDE ABC"  # type: ignore[index]  # of JSON
        whole = tmp_path / "whole.safetensors"
        whole.write_bytes(httpx.get(f"{address}/v1/corrections/export").raise_for_status().content)
        assert said(whole)[0] == "EDE ABC"  # what is taken along has the adapter in it
        httpx.delete(f"{address}/v1/corrections/{made['id']}").raise_for_status()
        assert translated() == first
        httpx.put(f"{address}/v1/corrections", json=body).raise_for_status()
    with serving(adapters=[file], corrections=tmp_path / "kept") as address:
        assert len(httpx.get(f"{address}/v1/corrections").json()["corrections"]) == 1
    with serving(corrections=tmp_path / "kept") as address:  # it was learnt for other weights
        assert httpx.get(f"{address}/v1/corrections").json()["corrections"] == []


def test_a_changed_adapter_is_read_again(tmp_path: Path) -> None:
    place, file = tmp_path / "bundle", tmp_path / "a.safetensors"
    shutil.copytree(BUNDLE, place)
    adapter(file, 1)
    service = Service([f"en-de={place}"], Limits(), adapters=[file])
    try:
        assert served(service) == said(file)
        assert service.reload() == []
        adapter(file, 2)
        assert service.reload() == [place]
        now = said(file)
        assert served(service) == now
        adapter(file, 3, weights="0" * 64)
        with pytest.raises(BundleError, match="another bundle"):
            service.reload()
        assert served(service) == now
        file.unlink()
        with pytest.raises(BundleError, match="no such adapter"):
            service.reload()
        assert served(service) == now
    finally:
        service.close()


@pytest.mark.parametrize(
    ("files", "error", "says"),
    [
        (["{0}/strange.safetensors"], BundleError, "strange.safetensors: belongs to another bundle .*use it with"),
        (["{0}/missing.safetensors"], BundleError, "missing.safetensors: there is no such adapter; .*regard adapt"),
        (["{0}"], BundleError, "is no file; name the one that `regard adapt"),
        (["fr-de={0}/a.safetensors"], ModelError, "--adapter fr-de=.*no bundle translates this pair; serve one"),
        (["en-de={0}/a.safetensors", "{0}/a.safetensors"], ModelError, "are both for .*served with one"),
    ],
)
def test_an_adapter_that_does_not_fit_is_refused(
    tmp_path: Path, files: list[str], error: type[Exception], says: str
) -> None:
    adapter(tmp_path / "a.safetensors", 1)
    adapter(tmp_path / "strange.safetensors", 1, weights="0" * 64)
    with pytest.raises(error, match=says):
        Service([ENGLISH], Limits(), adapters=[each.format(tmp_path) for each in files])


def test_of_several_bundles_the_adapters_is_named(tmp_path: Path) -> None:
    file = adapter(tmp_path / "a.safetensors", 1)
    with pytest.raises(ModelError, match=r"does not say which of the bundles .*en-de="):
        Service([ENGLISH, f"fr-de={BUNDLE}"], Limits(), adapters=[file])


def test_the_command_line_takes_adapters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", ENGLISH, "--adapter", f"en-de={tmp_path / 'missing.safetensors'}"]) == 2
    assert "there is no such adapter" in capsys.readouterr().err
