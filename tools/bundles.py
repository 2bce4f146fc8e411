"""Make the ready bundles and the package that brings them, regard-bundles: `python tools/bundles.py [NAME…]`.

Which there are, by what commands they are made and where they then lie is in bundles.toml. What is there already is
not made again, and a training that was interrupted goes on. Each is packed with weights in int8 where its kind of model
has that; none may have more than 15 MB and all together 60 MB. The package holds data alone; the wheel is pip's work.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from regard import __version__  # noqa: E402
from regard.bundle import load  # noqa: E402
from regard.errors import RegardError  # noqa: E402
from regard.tuning.quantize import quantize  # noqa: E402

TABLE = ROOT / "tools" / "bundles.toml"
LARGEST, LARGEST_IN_ALL = 15_000_000, 60_000_000
"""Bytes of a bundle, and of all."""
PROJECT = f"""[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "regard-bundles"
version = "{__version__}"
description = "Ready bundles for Regard, each with a MODEL_CARD.md that names its data and licences."
requires-python = ">=3.11"

[tool.setuptools]
packages = ["regard_bundles"]

[tool.setuptools.package-data]
regard_bundles = ["*/*"]
"""


def made(entry: dict[str, str | list[str]], place: Path) -> Path:
    """The bundle of an entry, by its commands where it is not there yet. Raises SystemExit where one fails."""
    bundle = place / str(entry["bundle"])
    for command in () if bundle.exists() else entry["make"]:
        words = shlex.split(os.path.expandvars(command))
        if "--out" in words and words[1] == "train":
            run = place / words[words.index("--out") + 1]
            if (run / "bundle").exists():
                continue
            words += ["--resume"] if (run / "checkpoints").exists() else []
        print(shlex.join(words), flush=True)
        if code := subprocess.run([sys.executable, "-m", *words], cwd=place).returncode:
            sys.exit(f"{words[0]} {words[1]} ended with {code}; the same command goes on.")
    return bundle


def packed(bundle: Path, out: Path) -> int:
    """Copies the bundle, its weights in int8 where that is possible; returns its bytes. SystemExit: it is too large."""
    try:
        quantize(bundle, out)
    except RegardError:  # it is in int8 already, or of a kind that has none
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(bundle, out)
    load(out)  # which checks it
    size = sum(file.stat().st_size for file in out.iterdir())
    if size > LARGEST:
        sys.exit(f"{out.name} has {size:,} bytes, and a ready bundle has {LARGEST:,} at most.")
    return size


def package(bundles: dict[str, Path], out: Path) -> None:
    """Writes the package's source, with these bundles, into a folder. SystemExit: together they are too large."""
    inside = out / "regard_bundles"
    inside.mkdir(parents=True)
    (out / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    (inside / "__init__.py").write_text('"""Ready bundles for Regard, a folder each."""\n', encoding="utf-8")
    sizes = {name: packed(bundle, inside / name) for name, bundle in bundles.items()}
    for name, size in sizes.items():
        print(f"{name}: {size / 1e6:.1f} MB", flush=True)
    if sum(sizes.values()) > LARGEST_IN_ALL:
        sys.exit(f"the bundles have {sum(sizes.values()):,} bytes, and may have {LARGEST_IN_ALL:,}.")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="of bundles.toml; left out: all")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where the wheel goes (default: dist)")
    given = parser.parse_args()
    table = tomllib.loads(TABLE.read_text("utf-8"))
    if unknown := [name for name in given.names if name not in table]:
        sys.exit(f"{unknown[0]} is not in {TABLE.name}; there are {', '.join(table)}.")
    bundles = {name: made(table[name], ROOT) for name in given.names or table}
    with tempfile.TemporaryDirectory() as place:
        package(bundles, Path(place) / "source")
        words = ["pip", "wheel", "--no-deps", "--quiet", "--wheel-dir", str(given.out), str(Path(place) / "source")]
        subprocess.run([sys.executable, "-m", *words], check=True)
    print(*sorted(given.out.glob("regard_bundles-*.whl")), sep="\n")


if __name__ == "__main__":
    main()
