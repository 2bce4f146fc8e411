"""What a benchmark says about itself: the command, the machine, the versions; and its results in a file."""

from __future__ import annotations

import json
import os
import platform
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from regard.tasks.finish import versions

__all__ = ["RESULTS", "circumstances", "write"]

RESULTS = Path(__file__).parent / "results"


def circumstances() -> dict[str, Any]:
    """When, on what and by which command a result was made."""
    words = [Path(sys.argv[0]).name, *sys.argv[1:]]
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "command": f"python benchmarks/{shlex.join(words)}",
        "machine": f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        "versions": versions(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown processor"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def write(path: Path, result: dict[str, Any]) -> None:
    """Write results as JSON; the file appears only when whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(result, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    part.replace(path)
