"""The house's laws on what runs: few files on the way of a translation or an update, and nothing loaded in vain."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from regard.engine import decoding

ROOT = Path(__file__).resolve().parents[2]
BUNDLE = ROOT / "tests" / "bundle" / "made-by-0.1" / "transformer"

MOST = {"a line's translation": 15, "recipe to first update": 30, "batch to weights": 12, "loaded by translate": 45}

RECIPE = """
[data]
source = "a.source"
target = "a.target"
valid_lines = 10
batch_tokens = 200
[text]
size = 300
shrink = true
[model]
width = 16
heads = 2
feedforward = 16
encoder_layers = 1
decoder_layers = 1
[train]
max_updates = 4
log_every = 100
average = "none"
"""


def way(*words: str, place: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "way.py"), "--json", *words], cwd=place, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stderr.splitlines()[-1])
    return found


def loaded(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    return set(done.stdout.splitlines()[-1].split())


@pytest.fixture(scope="module")
def translating(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    place = tmp_path_factory.mktemp("translating")
    (place / "line").write_text("abc de\n", encoding="utf-8")
    return way("translate", str(BUNDLE), "line", place=place)


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    place = tmp_path_factory.mktemp("training")
    (place / "a.toml").write_text(RECIPE, encoding="utf-8")
    for side in ("source", "target"):
        (place / f"a.{side}").write_text("".join(f"{i} and {i + 1}\n" for i in range(200)), encoding="utf-8")
    return way("train", "a.toml", "--out", "out", place=place)


def test_a_translation_goes_through_few_files(translating: dict[str, Any]) -> None:
    assert len(translating["files"]) <= MOST["a line's translation"], translating["files"]


def test_a_translation_loads_few_modules(translating: dict[str, Any]) -> None:
    assert len(translating["loaded"]) <= MOST["loaded by translate"], translating["loaded"]


def test_a_translation_loads_nothing_of_training(translating: dict[str, Any]) -> None:
    rooms = {".".join(name.split(".")[:2]) for name in translating["loaded"]}
    assert not rooms & {"regard.train", "regard.data", "regard.studies"}


@pytest.mark.skipif(decoding.refusal() is not None, reason=str(decoding.refusal()))
def test_a_translation_loads_no_torch() -> None:
    assert "torch" not in loaded(f"import regard; regard.load({str(BUNDLE)!r}).translate(['abc de'])")


def test_looking_for_a_name_loads_no_torch() -> None:
    """Our own extensions are loaded only where the table is that they add to: there may be no PyTorch at all."""
    wanted = "from regard.search.table import SearchConfig, search_of; search_of(SearchConfig(method='exact'))"
    found = loaded(wanted)
    assert "regard.studies.exact" in found
    assert not found & {"torch", "regard.train", "regard.linking.guided"}
    later = "import regard.train; from regard.extensions import load_installed as more; assert more() and not more()"
    assert "regard.linking.guided" in loaded(f"{wanted}; {later}")


def test_an_update_goes_through_few_files(training: dict[str, Any]) -> None:
    assert 0 < len(training["from_batch_to_weights"]) <= MOST["batch to weights"], training["from_batch_to_weights"]


def test_training_begins_after_few_files(training: dict[str, Any]) -> None:
    assert 0 < len(training["until_first_update"]) <= MOST["recipe to first update"], training["until_first_update"]


def test_importing_the_package_loads_nothing() -> None:
    found = loaded("import regard")
    assert {name for name in found if name.startswith("regard")} == {"regard", "regard.machine"}
    assert not found & {"torch", "numpy", "pydantic", "rich", "typer", "sentencepiece"}


def test_a_bundle_is_read_without_training() -> None:
    rooms = {".".join(name.split(".")[:2]) for name in loaded("import regard.bundle") if name.startswith("regard.")}
    assert not rooms & {"regard.train", "regard.data", "regard.studies", "regard.tasks"}
