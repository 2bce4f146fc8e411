"""The compiled decoder translates without PyTorch: the arrays it is given are the model's, and nothing imports it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from regard import bundle as bundles
from regard.engine import decoding
from regard.engine.packing import packed, refuses, shapes_of, sinusoids
from regard.models.transformer import TransformerConfig, build
from regard.nn.positions import POSITIONS
from regard.tasks.forced import score_lines
from regard.tasks.translate import load
from regard.tuning.quantize import quantized

needs_compiler = pytest.mark.skipif(decoding.refusal() is not None, reason=str(decoding.refusal()))
ROOT = Path(__file__).parents[2]
BUNDLE = ROOT / "tests" / "bundle" / "made-by-0.1" / "transformer"
SMALL = TransformerConfig(width=22, heads=2, feedforward=35, encoder_layers=2, decoder_layers=1, dropout=0.0)

FORBIDDEN = """
import sys
from importlib.machinery import PathFinder

if MISSING:
    sys.modules["torch"] = None

class Forbidden:
    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        spec = PathFinder.find_spec(name, path)
        spec.loader = self
        return spec
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        raise AssertionError("torch is imported")

sys.meta_path.insert(0, Forbidden())
"""


def run(code: str, *, missing: bool = False) -> subprocess.CompletedProcess[str]:
    """A program in which importing PyTorch fails; or in which it is not even there."""
    program = f"MISSING = {missing}\n{FORBIDDEN}\n{code}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)


@needs_compiler
def test_a_bundle_translates_without_pytorch(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("abc de\nbb\n", encoding="utf-8")
    asked = [
        {},
        {"beam": 1},
        {"n_best": 3},
        {"alpha": 1.0, "penalty": "power"},
        {"shortlist": True},
        {"precision": "int8"},
    ]
    done = run(
        f"import regard\nfrom regard.apps.cli import main\ntranslator = regard.load({str(BUNDLE)!r})\n"
        f"for asked in {asked!r}:\n    print([t.text for t in translator.translate(['abc de', 'bb'], **asked)])\n"
        f"assert main(['translate', {str(BUNDLE)!r}, {str(tmp_path / 'lines')!r}]) == 0\n"
        "assert 'torch' not in sys.modules"
    )
    assert done.returncode == 0, done.stderr[-2000:]
    translator = load(BUNDLE)
    found = [[t.text for t in translator.translate(["abc de", "bb"], **each)] for each in asked]
    exact = [t.text for t in translator.translate(["abc de", "bb"], precision="exact")]
    assert done.stdout.splitlines() == [*map(str, found), *exact]


ASKED = {
    "samples": {"samples": 3, "top_k": 9},
    "nucleus": {"samples": 2, "top_p": 0.7, "temperature": 0.6},
    "include": {"constraints": {"include": ["ab"]}, "beam": 3, "extra_length": 20},
    "forbid": {"constraints": {"forbid": ["b"]}},
    "glossary": {"constraints": {"glossary": [["abc", "ba"]]}, "n_best": 2, "extra_length": 20},
    "prefix": {"constraints": {"prefix": "b"}, "min_length": 3},
    "diverse": {"groups": 2, "beam": 4},
    "coverage": {"coverage": 0.3},
    "shortlist": {"shortlist": True, "samples": 2},
}


@needs_compiler
def test_every_search_runs_without_pytorch_and_finds_what_the_reference_finds() -> None:
    code = (
        f"import regard\nalone = regard.load({str(BUNDLE)!r})\n"
        f"both = regard.load({str(BUNDLE)!r}, with_=[{str(BUNDLE)!r}])\n"
        f"for asked in {[*ASKED.values()]!r}:\n"
        "    print([[h.text for h in t.hypotheses] for t in alone.translate(LINES, **asked)])\n"
        "print([t.text for t in both.translate(LINES, coverage=0.2)])\n"
        "print([t.text for t in both.translate(LINES, ensemble='logs')])\n"
        "print([''.join(alone.stream(line, **how)) for line in LINES for how in ({}, {'beam': 1}, {'samples': 1})])\n"
    )
    lines = ["abc de", "bb"]
    done = run(f"LINES = {lines!r}\n{code}\nassert 'torch' not in sys.modules")
    assert done.returncode == 0, done.stderr[-2000:]
    alone, both = load(BUNDLE), load(BUNDLE, with_=[BUNDLE])
    exact = "exact"
    wanted: list[object] = [
        [[h.text for h in t.hypotheses] for t in alone.translate(lines, precision=exact, **asked)]
        for asked in ASKED.values()
    ]
    wanted += [
        [t.text for t in both.translate(lines, precision=exact, **asked)]
        for asked in ({"coverage": 0.2}, {"ensemble": "logs"})
    ]
    ways = ({}, {"beam": 1}, {"samples": 1})
    wanted.append(["".join(alone.stream(line, precision=exact, **how)) for line in lines for how in ways])
    assert done.stdout.splitlines() == [*map(str, wanted)]


@needs_compiler
def test_what_needs_pytorch_says_how_to_install_it() -> None:
    code = (
        "import regard\nfrom regard.errors import ModelError\n"
        f"translator = regard.load({str(BUNDLE)!r})\nsys.modules['torch'] = None\n"
        "for asked in ({'precision': 'exact'},):\n"
        "    try:\n        translator.translate(['abc'], **asked)\n"
        "    except ModelError as error:\n        print(error)\n"
    )
    said = run(code).stdout.splitlines()
    assert len(said) == 1
    assert said[0].startswith(
        "precision = exact multiplies in float64, which the compiled engine does not, so it needs"
    )
    assert all("needs PyTorch, which is not installed: pip install" in line and "[train]" in line for line in said)


@pytest.mark.parametrize("positions", ["sinusoidal", "sinusoidal-halves"])
def test_positions_are_those_of_the_reference(positions: str) -> None:
    reference = POSITIONS[positions](48, 300)(torch.arange(300), 300).numpy()
    assert np.abs(sinusoids(300, 48, positions) - reference).max() <= np.finfo(np.float32).eps


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"share": "target", "output_bias": True},
        {"share": "none", "positions": "learned", "norm": "pre", "key_width": 5, "value_width": 7},
    ],
    ids=str,
)
def test_parameters_are_those_of_the_model(changes: dict[str, object], tmp_path: Path) -> None:
    config = SMALL.model_copy(update=changes)
    assert refuses(config) is None or decoding.refusal()
    source = 21 if config.share == "all" else 17
    model = build(config, source, 21)
    assert shapes_of(config, source, 21) == {name: tuple(p.shape) for name, p in model.named_parameters()}


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "int8", "float64", "float16"])
def test_weights_are_read_as_the_reference_reads_them(kind: str, tmp_path: Path) -> None:
    held = bundles.load(BUNDLE)
    weights = {name: p.detach().clone() for name, p in held.model().named_parameters()}
    if kind in ("int8", "bfloat16"):
        weights = quantized(weights, kind)
    elif kind != "float32":
        weights = {name: weight.to(getattr(torch, kind)) for name, weight in weights.items()}
    bundles.save(
        tmp_path / "bundle",
        recipe=held.recipe,
        weights=weights,
        source=held.source,
        target=held.target,
        provenance=held.provenance,
        golden=held.golden,
    )
    again = bundles.load(tmp_path / "bundle")
    found = again.weights(shapes_of(again.recipe.model, len(again.source), len(again.target)))
    for name, parameter in again.model().named_parameters():
        assert np.array_equal(found[name], parameter.detach().numpy())
        exact = weights[name].float()
        if kind == "int8" and name + bundles.SCALE in weights:
            exact = exact * weights[name + bundles.SCALE][:, None]
        assert torch.equal(parameter, exact)


@needs_compiler
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"share": "none", "output_bias": True, "norm": "pre", "width": 30},
        {"share": "target", "key_width": 5, "value_width": 7},
    ],
    ids=str,
)
def test_whole_numbers_are_packed_as_the_numbers_they_stand_for(changes: dict[str, object]) -> None:
    config = SMALL.model_copy(update=changes)
    model = build(config, 21, 21)
    stored = quantized({name: p.detach() for name, p in model.named_parameters()}, "int8")
    scales = {name: stored[name + bundles.SCALE].numpy() for name in stored if name + bundles.SCALE in stored}
    plain = {name: p.numpy() for name, p in stored.items() if not name.endswith(bundles.SCALE)}
    floats = {name: p * scales[name][:, None] if name in scales else p for name, p in plain.items()}
    asked: list[str] = []

    def whole(name: str) -> tuple[np.ndarray, np.ndarray] | None:  # type: ignore[type-arg]  # a test's own
        asked.append(name)
        return (plain[name], scales[name]) if name in scales else None

    found = [
        decoder.forced([[5, 6, 7], [8]], [[9, 10], [11, 12, 13]], (2, 3), layers=[0])
        for decoder in (packed(floats, config, "int8", whole), packed(floats, config, "int8"))
    ]
    assert set(asked) >= scales.keys()
    for (likely, weights), (expected, expected_weights) in zip(*found, strict=True):
        np.testing.assert_allclose(likely, expected, rtol=1e-3)  # a scale may differ in its last bit, and so a rounding
        np.testing.assert_allclose(weights, expected_weights, atol=1e-3)


def test_the_command_line_says_how_to_install_it() -> None:
    done = run(f"from regard.apps.cli import main\nsys.exit(main(['look', {str(BUNDLE)!r}, 'abc']))", missing=True)
    assert done.returncode == 2
    assert "needs PyTorch, which is not installed: pip install '.[train]'" in done.stderr


@needs_compiler
def test_a_bundle_is_used_without_pytorch(tmp_path: Path) -> None:
    """The command line's words for using a bundle, in a process in which nothing can import PyTorch."""
    for name, lines in (("source", "abc de\nbb\n"), ("target", "ABC DE\nBB\n")):
        (tmp_path / name).write_text(lines, encoding="utf-8")
    source, target = str(tmp_path / "source"), str(tmp_path / "target")
    asked = [
        ["translate", source, "--confidence", "--alignment", "--attention"],
        ["translate", source, "--replace-unknown"],
        ["score", source, target, "--tokens"],
        ["score", source, target, "--precision", "int8"],
        ["align", source, target],
        ["evaluate", "--source", source, "--reference", target, "--json", "--metric", "perplexity"],
        ["inspect", "--verify"],
        ["doctor"],
    ]
    code = "from regard.apps.cli import main\n" + "".join(
        f"assert main({[word, str(BUNDLE), *others]!r}) == 0\n" for word, *others in asked
    )
    done = run(code, missing=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "translated again in float32, and the same" in done.stdout
    assert "threads that translate" in done.stdout
    assert "threads that PyTorch uses" not in done.stdout
    translator = load(BUNDLE)
    exact = score_lines(translator, ["abc de", "bb"], ["ABC DE", "BB"], precision="exact")
    said = [line.split("\t")[0] for line in done.stdout.splitlines() if line.count("\t") > 1]
    assert [float(each) for each in said] == pytest.approx([each.log_probability for each in exact], abs=1e-4)
