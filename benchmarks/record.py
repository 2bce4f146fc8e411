"""What a benchmark says about itself: the command, the machine, the versions; and its results in a file."""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from regard.bundle import versions
from regard.kernels import build

__all__ = ["RESULTS", "circumstances", "write"]

RESULTS = Path(__file__).parent / "results"


def circumstances() -> dict[str, Any]:
    """When, on what, at which commit and by which command a result was made."""
    words = [Path(sys.argv[0]).name, *sys.argv[1:]]
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "command": f"python benchmarks/{shlex.join(words)}",
        "machine": f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        "instructions": _instructions(),
        "compiler": "zig c++ (a wheel's library)" if _is_shipped() else build.compiler()[1].partition("\n")[0],
        "commit": _commit(),
        "versions": versions(),
    }


def _is_shipped() -> bool:
    """Whether compiled parts are taken from the library of a wheel: one that other sources made is not."""
    return build._shipped(build.SOURCES / "native.cpp", "")[0] is not None


def _commit() -> str:
    """The commit that was measured; with "changed" behind it where a tracked file differs from it."""
    found = subprocess.run(
        ["git", "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=, changed"],
        cwd=Path(__file__).parent, capture_output=True, text=True,
    )  # fmt: skip
    return found.stdout.strip() or "no checkout"


def _cpuinfo(key: str) -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), "")


def _processor() -> str:
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def _instructions() -> list[str]:
    """The instruction sets of this processor that the compiled parts have code for."""
    wanted = ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16", "asimddp", "i8mm", "bf16")
    found = {*_cpuinfo("flags").split(), *_cpuinfo("Features").split()}
    return [name for name in wanted if name in found]


def write(path: Path, result: dict[str, Any]) -> None:
    """Write results as JSON; the file appears only when whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(result, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    part.replace(path)
