"""Make wheels that bring the compiled parts, for some platforms or all: `python tools/wheels.py [PLATFORM…]`.

The compiler is `zig c++`, which builds for every platform on any: `pip install build wheel ziglang`. Wheels go to
`dist`. Where none of them fits, a C++ compiler builds the parts on the machine that runs them.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from regard.kernels.build import FLAGS, KINDS, SOURCES, sources_digest  # noqa: E402

PLATFORMS = {
    "manylinux_2_17_x86_64": ("x86_64", "x86_64-linux-gnu.2.17", "regard.so"),
    "manylinux_2_17_aarch64": ("aarch64", "aarch64-linux-gnu.2.17", "regard.so"),
    "macosx_11_0_arm64": ("aarch64", "aarch64-macos.11.0", "regard.dylib"),
    "macosx_11_0_x86_64": ("x86_64", "x86_64-macos.11.0", "regard.dylib"),
    "win_amd64": ("x86_64", "x86_64-windows-gnu", "regard.dll"),
}
"""Of each tag of a wheel: the architecture, as zig calls the platform, and what the library is called there."""
PROCESSORS = {
    "generic": "x86_64",
    "avx2": "x86_64_v3",
    "avx512": "x86_64_v4+avx512vnni",
    "avx512_bf16": "x86_64_v4+avx512vnni+avx512bf16",
    "amx": "x86_64_v4+avx512vnni+avx512bf16+amx_tile+amx_int8+amx_bf16",
    "neon": "generic",
    "dotprod": "generic+v8_2a+dotprod",
    "i8mm": "generic+v8_2a+dotprod+i8mm",
}
"""Zig's names for the kinds of processors."""
PARTS = (
    *(SOURCES / f"{name}.cpp" for name in ("native", "products", "recurrent", "rows")),
    ROOT / "regard/engine/decoding.cpp",
)
_JOBS = 2


def library(platform: str, folder: Path) -> Path:
    """The compiled parts for a platform, for all kinds of its processors, in one library."""
    architecture, target, name = PLATFORMS[platform]
    kinds = list(KINDS[architecture])
    runs = [(SOURCES / "processor.cpp", kinds[0], f"-DSOURCES={sources_digest()}")]
    # From the least kind on: of functions that several objects contain, linkers take the first.
    runs += [(part, kind, f"-DPREFIX={kind}_{part.stem}_") for kind in kinds for part in PARTS]

    def compiled(run: tuple[Path, str, str]) -> Path:
        source, kind, macro = run
        made = folder / f"{kind}_{source.stem}.o"
        processor = f"-mcpu={PROCESSORS[kind]}"
        _zig(target, processor, *FLAGS, macro, f"-I{SOURCES}", "-c", str(source), "-o", str(made))
        return made

    with ThreadPoolExecutor(_JOBS) as pool:
        objects = list(pool.map(compiled, runs))
    made = folder / name
    _zig(target, f"-mcpu={PROCESSORS[kinds[0]]}", "-shared", "-s", *map(str, objects), "-o", str(made))
    return made


def _zig(target: str, *arguments: str) -> None:
    quiet = "-Wno-pass-failed", "-Wno-align-mismatch", "-Wno-unused-function"
    subprocess.run([sys.executable, "-m", "ziglang", "c++", "-target", target, *quiet, *arguments], check=True)


def wheel(pure: Path, platform: str, out: Path) -> Path:
    """A wheel of the package with its compiled parts for a platform."""
    with tempfile.TemporaryDirectory() as space:
        folder = Path(space)
        made = library(platform, folder)
        _wheel("unpack", str(pure), "--dest", str(folder / "whole"))
        [whole] = (folder / "whole").iterdir()
        inside = whole / "regard" / "kernels" / "lib"
        inside.mkdir()
        shutil.copy2(made, inside)
        [about] = whole.glob("*.dist-info/WHEEL")
        about.write_text(about.read_text("utf-8").replace("Root-Is-Purelib: true", "Root-Is-Purelib: false"), "utf-8")
        _wheel("pack", str(whole), "--dest-dir", str(folder))
        _wheel("tags", "--platform-tag", platform, str(folder / pure.name))
        [tagged] = folder.glob(f"*{platform}.whl")
        print(f"{tagged.name}: {tagged.stat().st_size / 2**20:.1f} MiB, library {made.stat().st_size / 2**20:.1f} MiB")
        return Path(shutil.copy2(tagged, out))


def _wheel(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "wheel", *arguments], check=True, stdout=subprocess.DEVNULL)


def main(platforms: list[str]) -> None:
    """Make the wheels of these platforms, or of all."""
    if unknown := set(platforms) - set(PLATFORMS):
        sys.exit(f"no such platform: {', '.join(unknown)}; there are {', '.join(PLATFORMS)}")
    out = ROOT / "dist"
    out.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        built = [sys.executable, "-m", "build", "--wheel", "--outdir", folder, str(ROOT)]
        subprocess.run(built, check=True, stdout=subprocess.DEVNULL)
        [pure] = Path(folder).glob("*.whl")
        for platform in platforms or PLATFORMS:
            wheel(pure, platform, out)


if __name__ == "__main__":
    main(sys.argv[1:])
