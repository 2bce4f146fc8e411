"""The compiled decoder's laws on ARM, emulated: laws.cpp needs no Python, zig builds it and qemu runs it."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FLAGS = ("-std=c++20", "-O1", "-w", f"-I{ROOT}/regard/kernels", f"-I{ROOT}/regard/engine")
LAWS = str(Path(__file__).with_name("laws.cpp"))
LACKING = [name for name in ("g++", "qemu-aarch64") if shutil.which(name) is None]
LACKING += [] if importlib.util.find_spec("ziglang") else ["ziglang"]
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(LACKING), reason=f"needs {', '.join(LACKING)}")]


def found(compiler: list[str], program: Path, *run: str) -> list[list[float]]:
    """The precision, score and ids of each sentence."""
    subprocess.run([*compiler, *FLAGS, LAWS, "-o", str(program)], check=True)
    said = subprocess.run([*run, str(program)], check=True, capture_output=True, text=True).stdout
    return [[float(word) for word in line.split()] for line in said.splitlines()]


@pytest.mark.parametrize("processor", ["generic", "generic+v8_2a+dotprod", "generic+v8_2a+dotprod+i8mm"])
def test_an_arm_processor_finds_what_this_one_finds(processor, tmp_path):
    ours = found(["g++", "-pthread"], tmp_path / "ours")
    zig = [sys.executable, "-m", "ziglang", "c++", "-target", "aarch64-linux-musl", "-static", f"-mcpu={processor}"]
    theirs = found(zig, tmp_path / "theirs", "qemu-aarch64")
    assert len(ours) == 9
    for one, other in zip(ours, theirs, strict=True):
        assert one[:2] == pytest.approx(other[:2], abs=0.1 if one[0] == 2 else 1e-2)
        assert one[2:] == other[2:] or one[0] > 0
