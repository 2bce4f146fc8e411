"""Ready bundles: packed by the tool, found by name where the package is installed, and never imported."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import regard
from regard.apps.cli import main
from regard.errors import BundleError

ROOT = Path(__file__).resolve().parents[2]
SMALL = ROOT / "tests" / "bundle" / "made-by-0.1" / "transformer"


@pytest.fixture
def tool() -> ModuleType:
    pytest.importorskip("torch")
    spec = importlib.util.spec_from_file_location("bundles_tool", ROOT / "tools" / "bundles.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def installed(tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package's source with one bundle, as if it were installed; importing it would be an error."""
    tool.package({"small": SMALL}, tmp_path / "source")
    (tmp_path / "source" / "regard_bundles" / "__init__.py").write_text("raise SystemExit('imported')", "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path / "source"))
    return tmp_path / "source" / "regard_bundles"


def test_a_ready_bundle_is_loaded_by_its_name(
    installed: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    translator = regard.load("ready:small")
    assert translator.bundle is not None
    assert translator.bundle.path == installed / "small"
    (tmp_path / "line").write_text("abc\n", "utf-8")
    assert main(["translate", "ready:small", str(tmp_path / "line")]) == 0
    assert capsys.readouterr().out == regard.load(installed / "small").translate(["abc"])[0].text + "\n"
    assert "regard_bundles" not in sys.modules


@pytest.mark.parametrize("name", ["ready:large", "ready:", "ready:../small", "ready:small/../small"])
def test_another_name_is_refused_with_those_that_there_are(installed: Path, name: str) -> None:
    with pytest.raises(BundleError, match=r"there are ready:small \(docs/bundle\.md"):
        regard.load(name)


def test_without_the_package_the_way_out_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("regard.bundle.format.find_spec", lambda name: None)
    assert main(["translate", "ready:small"]) == 2
    assert "regard-bundles is not installed" in capsys.readouterr().err


def test_what_is_too_large_is_not_packed(tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool, "LARGEST", 10_000)
    with pytest.raises(SystemExit, match="10,000 at most"):
        tool.package({"small": SMALL}, tmp_path / "one")
    monkeypatch.setattr(tool, "LARGEST", 15_000_000)
    monkeypatch.setattr(tool, "LARGEST_IN_ALL", 10_000)
    with pytest.raises(SystemExit, match="may have 10,000"):
        tool.package({"small": SMALL}, tmp_path / "all")


def test_what_is_missing_is_made_and_what_was_interrupted_goes_on(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def run(words: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
        asked.append(words[2:])
        return subprocess.CompletedProcess(words, 0)

    monkeypatch.setattr(tool.subprocess, "run", run)
    entry = {
        "recipe": "a.toml",
        "bundle": "runs/a/small",
        "make": ["regard train a.toml --out runs/a", "regard distill x"],
    }
    (tmp_path / "runs" / "a" / "checkpoints").mkdir(parents=True)
    assert tool.made(entry, tmp_path) == tmp_path / "runs" / "a" / "small"
    assert asked == [["regard", "train", "a.toml", "--out", "runs/a", "--resume"], ["regard", "distill", "x"]]
    asked.clear()
    shutil.copytree(SMALL, tmp_path / "runs" / "a" / "bundle")
    tool.made(entry, tmp_path)
    assert asked == [["regard", "distill", "x"]]
    asked.clear()
    shutil.copytree(SMALL, tmp_path / "runs" / "a" / "small")
    tool.made(entry, tmp_path)
    assert asked == []


def test_every_ready_bundle_has_a_recipe_that_is_there(tool: ModuleType) -> None:
    table = tool.tomllib.loads(tool.TABLE.read_text("utf-8"))
    assert table
    assert [name for name, entry in table.items() if not (ROOT / entry["recipe"]).exists()] == []
