"""A bundle from a stranger: whatever is in it, it is refused in words, and before it takes memory or time.

Every change here is resealed: the digests are right, for whoever changes a file can write them anew.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from bundles import small_bundle
from strangers import edit_card, edit_text, put_weights, raw_weights, reseal, weights_of

from regard import bundle as bundles
from regard.apps.cli import main
from regard.errors import BundleError

MADE = Path(__file__).parent / "made-by-0.1" / "transformer"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(MADE, tmp_path / "copy"))


def test_what_is_resealed_without_a_change_is_a_bundle(copy: Path) -> None:
    reseal(copy)
    bundles.load(copy).model()


def fill(name: str, value: float) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        weights = weights_of(folder)
        weights[name].view(-1)[3] = value
        put_weights(folder, weights)

    return change


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


def put(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    reseal(file.parent)


def use(folder: Path) -> None:
    bundle = bundles.load(folder)
    bundle.model()
    bundle.shortlist()


NAME = "decoder.0.feedforward.inner.weight"

CHANGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "ten million layers": (
        lambda f: edit_text(f, "recipe.toml", "encoder_layers = 1", "encoder_layers = 10000000"),
        r"holds \d+ tensors, and \[model\] encoder_layers = 10,000,000",
    ),
    "a width of a million": (
        lambda f: edit_text(f, "recipe.toml", "width = 24", "width = 1048576"),
        "its recipe asks for tables of 1,073,741,824 numbers",
    ),
    "a table of a billion positions": (
        lambda f: edit_text(f, "recipe.toml", "max_positions = 1024", "max_positions = 1000000000"),
        "its recipe asks for tables of 24,000,000,000 numbers",
    ),
    "endless output": (
        lambda f: edit_text(f, "recipe.toml", "extra_length = 50", "extra_length = 1000000000"),
        r"\[search\] extra_length = 1000000000: must be at most",
    ),
    "a beam without bound": (
        lambda f: edit_text(f, "recipe.toml", "beam = 3", f"beam = {2**57}"),
        r"\[search\] beam = \d+: must be",
    ),
    "a penalty without bound": (
        lambda f: edit_text(f, "recipe.toml", "alpha = 0.6", "alpha = 1e308"),
        r"\[search\] alpha = 1e\+308: must be",
    ),
    "a feed-forward layer of a billion": (
        lambda f: edit_text(f, "recipe.toml", "feedforward = 48", "feedforward = 1000000000"),
        r"is \(48,\) and the recipe's model needs \(1000000000,\)",
    ),
    "infinite parameters": (lambda f: edit_card(f, parameters=float("inf")), "bundle.json: damaged or cut short"),
    "files as a list": (lambda f: edit_card(f, files=[1, 2]), "by hand"),
    "a file that is a number": (lambda f: edit_card(f, files={"recipe.toml": 3}), "by hand"),
    "a file outside": (lambda f: edit_card(f, files={"../recipe.toml": {"size": 1, "sha256": "0" * 64}}), "by hand"),
    "a file that is the folder above": (lambda f: edit_card(f, files={"..": {"size": 1, "sha256": "0" * 64}}), "hand"),
    "scores of another shape": (lambda f: edit_card(f, provenance={"scores": [{"scores": {"bleu": 3}}]}), "by hand"),
    "data of another shape": (lambda f: edit_card(f, provenance={"data": {"sha256": "x"}}), "by hand"),
    "no provenance": (lambda f: edit_card(f, provenance=None), "by hand"),
    "weights that are not a number": (fill(NAME, float("nan")), f"{NAME} has numbers that are not finite"),
    "infinite weights": (fill(NAME, float("-inf")), "not finite"),
    "no weights": (lambda f: put_weights(f, {}), "encoder_layers = 1 of its recipe needs"),
    "weights of another kind": (
        lambda f: put_weights(f, {n: w.to(torch.complex64) for n, w in weights_of(f).items()}),
        "is stored as",
    ),
    "whole numbers without a scale": (
        lambda f: put_weights(f, {n: w.to(torch.int8) for n, w in weights_of(f).items()}),
        "is stored as I8",
    ),
    "a scale of another size": (
        lambda f: put_weights(f, {**weights_of(f), NAME: weights_of(f)[NAME].char(), NAME + ":scale": torch.ones(3)}),
        r":scale is \(3,\) and the recipe's model needs \(48,\)",
    ),
    "junk for weights": (lambda f: raw_weights(f, b"junk"), "weights.safetensors"),
    "a header longer than its file": (
        lambda f: put(f / "weights.safetensors", b"\xff" * 8),
        "no header of safetensors",
    ),
    "a layer that is not there": (
        lambda f: edit_text(f, "calibration.json", '"layer": 0', '"layer": 99'),
        "layer = 99, and the model's decoder has 1",
    ),
    "an infinite temperature": (
        lambda f: edit_text(f, "calibration.json", '"temperature": 0.', '"temperature": Infinity, "report": 0.'),
        "Infinity is no number",
    ),
    "golden sentences nested without end": (
        lambda f: put(f / "golden.json", (nested(100_000)).encode()),
        "golden.json: damaged",
    ),
    "a golden sentence of wrong ids": (
        lambda f: put(f / "golden.json", (b'[{"source": "a", "source_ids": ["x"]}]')),
        "by hand",
    ),
    "a recipe nested without end": (
        lambda f: put(f / "recipe.toml", ("a = " + nested(100_000)).encode()),
        "nested too deeply",
    ),
    "junk for a shortlist": (lambda f: put(f / "shortlist.safetensors", b"\x08" + b"\0" * 20), "is no shortlist"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_it_is_refused_in_words(what: str, copy: Path) -> None:
    change, message = CHANGES[what]
    change(copy)
    with pytest.raises(BundleError, match=message):
        use(copy)


@pytest.mark.parametrize("name", ["bundle.json", "golden.json", "recipe.toml", "calibration.json", "subwords.model"])
def test_metadata_of_gigabytes_is_not_read(name: str, copy: Path) -> None:
    """A sparse file costs nothing to send. The card names its size, so that nothing but the limit can refuse it."""
    if name != "bundle.json":
        card = json.loads((copy / "bundle.json").read_bytes())
        card["files"][name]["size"] = 4 << 30
        edit_card(copy, files=card["files"])
    with (copy / name).open("r+b") as file:
        file.truncate(4 << 30)
    with pytest.raises(BundleError, match=rf"{name}: has 4,294,967,296 bytes, and a bundle's has at most"):
        bundles.load(copy)


@pytest.mark.parametrize(("umask", "file", "folder"), [(0o022, 0o644, 0o755), (0o077, 0o600, 0o700)])
def test_who_may_read_a_bundle_is_for_the_umask_to_say(umask: int, file: int, folder: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        bundle = small_bundle(tmp_path / "made")
        bundles.add_calibration(bundle, bundles.Calibration(temperature=2.0))
    finally:
        os.umask(before)
    assert {f.name: f.stat().st_mode & 0o777 for f in bundle.path.iterdir()} == dict.fromkeys(
        [*bundle.files, "bundle.json", "calibration.json"], file
    )
    assert bundle.path.stat().st_mode & 0o777 == folder


def test_inspect_prints_the_digest_of_the_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(MADE)]) == 0
    assert bundles.load(MADE).digest in capsys.readouterr().out
    assert main(["inspect", str(MADE), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["digest"] == bundles.load(MADE).digest


def test_the_digest_tells_any_change_that_was_resealed(copy: Path) -> None:
    before = bundles.load(copy).digest
    assert len(before) == 64
    edit_text(copy, "recipe.toml", "seed = 3", "seed = 4")
    assert bundles.load(copy).digest != before
    edit_text(copy, "recipe.toml", "seed = 4", "seed = 3")
    assert bundles.load(copy).digest == before


def test_little_memory_is_enough_to_refuse(copy: Path) -> None:
    """In a process that may have no more than a little above what importing takes."""
    edit_text(copy, "recipe.toml", "feedforward = 48", "feedforward = 100000000")
    code = (
        "import resource, sys, torch\nfrom regard import bundle\nfrom regard.errors import BundleError\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20),) * 2)\n"
        "try:\n    bundle.load(sys.argv[1]).model()\nexcept BundleError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(copy)], capture_output=True, text=True)
    assert "the recipe's model needs" in done.stdout, done.stderr[-1000:]
