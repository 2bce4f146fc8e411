"""Environments of their own for peers that need packages of theirs: made once in .peers/, with pip."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from workers import SCRATCH, BenchmarkError

__all__ = ["interpreter"]

TORCH = "torch==2.13.0"

ENVIRONMENTS: dict[str, tuple[list[str], list[str]]] = {
    "joeynmt": ([TORCH, "joeynmt==2.3.0", "importlib-metadata==10.2.0"], []),  # the last it imports, but does not name
    # eole asks for torch < 2.13; its model and loss work with it, so that all have the same.
    "eole": (
        [TORCH, "numpy==2.4.6", "pydantic==2.14.3", "pyonmttok==1.38.1", "regex==2026.11.15", "safetensors==0.8.0"],
        ["eole==0.6.0"],
    ),
    "marian": ([TORCH, "transformers==5.23.0"], []),
    "pymarian": (["pymarian==1.12.42", "numpy==2.4.6", "pyyaml==6.0.3"], []),
}
"""Peers that need packages of their own: those installed with what they ask for, and those without."""


def interpreter(system: str) -> Path | None:
    """The Python of a system's environment, which is made if it is not there; None for Regard's own."""
    if system not in ENVIRONMENTS:
        return None
    whole, bare = ENVIRONMENTS[system]
    place = SCRATCH / system
    python, stamp = place / "bin" / "python", place / "installed.json"
    wanted = json.dumps([whole, bare, sys.version])
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return python
    print(f"Making the environment of {system} in {place} …", file=sys.stderr, flush=True)
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    with tempfile.TemporaryDirectory() as folder:
        constraints = Path(folder) / "constraints.txt"
        constraints.write_text(TORCH + "\n", encoding="utf-8")
        commands = [[sys.executable, "-m", "venv", "--clear", str(place)], [*pip, "-c", str(constraints), *whole]]
        if bare:
            commands.append([*pip, "--no-deps", *bare])
        for command in commands:
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                said = "\n".join(line for line in done.stderr.splitlines() if not line.startswith("WARNING"))
                raise BenchmarkError(
                    f"the environment of {system} cannot be made:\n{said.strip()}\n"
                    "Mend that, or leave it out by --only."
                )
    stamp.write_text(wanted, encoding="utf-8")
    return python
