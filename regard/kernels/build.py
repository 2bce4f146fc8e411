"""The compiled parts: C++ that comes built with a wheel, for several kinds of processors, or is built where it runs.

What came with the package is used if it was made of the C++ files that lie here. Else a C++ compiler (GCC 12, Clang 16,
or newer) builds each part once, in seconds, and it is kept in a folder of the user's own. Where something lacks, the
reason is said in a sentence. PyTorch is not needed.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from regard.errors import KernelError
from regard.machine import alone_in, atomic_rename

SOURCES = Path(__file__).parent
"""Where the C++ of the kernels lies, and the headers that every compiled part may read."""
SHIPPED = SOURCES / "lib" / {"win32": "regard.dll", "darwin": "regard.dylib"}.get(sys.platform, "regard.so")
"""The library that a wheel brings; tools/wheels.py builds it."""
KINDS: dict[str, dict[str, str]] = {
    "x86_64": {
        "generic": "-march=x86-64",
        "avx2": "-march=x86-64-v3",
        "avx512": "-march=x86-64-v4 -mavx512vnni",
        "avx512_bf16": "-march=x86-64-v4 -mavx512vnni -mavx512bf16",
        "amx": "-march=x86-64-v4 -mavx512vnni -mavx512bf16 -mamx-tile -mamx-int8 -mamx-bf16",
    },
    "aarch64": {
        "neon": "-march=armv8-a",
        "dotprod": "-march=armv8.2-a+dotprod",
        "i8mm": "-march=armv8.2-a+dotprod+i8mm",
    },
}
"""The kinds of processors of an architecture that parts are compiled for, from the least on, as compilers call them."""
FLAGS = (
    *("-O3", "-std=c++20", "-fPIC", "-fvisibility=hidden"),
    *("-fopenmp-simd", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"),
)
_MACHINE = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
_NO_MEMORY = -2  # as entry.h has it
_user: Callable[[], int] = getattr(os, "geteuid", int)  # 0 on Windows, as its files have it


class Library:
    """The functions of one compiled part, as attributes; they return 64-bit numbers where nothing else is said."""

    def __init__(self, file: ctypes.CDLL, prefix: str = "") -> None:
        self._file, self._prefix = file, prefix

    def __getattr__(self, name: str) -> ctypes._NamedFuncPointer:
        function: ctypes._NamedFuncPointer = getattr(self._file, self._prefix + name)
        function.restype = ctypes.c_int64
        setattr(self, name, function)
        return function


@cache
def built(source: Path) -> tuple[Library | None, str]:
    """The part that a C++ file makes, or None and the reason in a sentence."""
    kind = os.environ.get("REGARD_CPU", "")
    if kind and kind not in (kinds := KINDS.get(_MACHINE, {})):
        return None, f"REGARD_CPU is {kind!r}; on {_MACHINE} it may be {', '.join(kinds) or 'nothing'}"
    found, reason = _shipped(source, kind)
    if found is None and not reason and kind:
        processor, reason = _built_here(SOURCES / "processor.cpp", "")
        if processor is not None and kind not in (able := _able(processor)):
            reason = _other(kind, able)
    if found is None and not reason:
        found, reason = _built_here(source, kind)
    if found is not None and hasattr(found, "use_threads"):
        found.use_threads(default_threads())
    return found, reason


def checked(library: Library, result: int) -> int:
    """What an entry returned; raises MemoryError, or KernelError with the entry's own message, if it failed."""
    if result >= 0:
        return result
    said = error_of(library)
    if result == _NO_MEMORY:
        raise MemoryError(said)
    raise KernelError(f"a compiled kernel cannot work with what it was given: {said}.")


def error_of(library: Library) -> str:
    """What the last entry that failed in this thread had to say."""
    library.error_message.restype = ctypes.c_char_p
    said: bytes = library.error_message()
    return said.decode(errors="replace")


def sources_digest() -> str:
    """What tells the C++ files of one version from another's."""
    text = hashlib.sha256()
    for path in sorted(path for folder in (SOURCES, SOURCES.parent / "engine") for path in folder.glob("*.[ch]*")):
        text.update(path.name.encode() + path.read_bytes().replace(b"\r\n", b"\n"))
    return text.hexdigest()


def _able(file: ctypes.CDLL | Library) -> list[str]:
    """The kinds of processors that this one is, from the least on."""
    return [kind for kind in KINDS.get(_MACHINE, {}) if file.can_run(kind.encode())]


def _other(kind: str, able: list[str]) -> str:
    return f"REGARD_CPU is {kind!r}, and this processor can do {', '.join(able) or 'none of these'}"


def _shipped(source: Path, kind: str) -> tuple[Library | None, str]:
    """The part in the library that came with the package; None if it is not there, or why it cannot be used."""
    try:
        file = ctypes.CDLL(str(SHIPPED))
        file.sources_digest.restype = ctypes.c_char_p
        if file.sources_digest().decode() != sources_digest():
            return None, ""
    except (OSError, AttributeError):
        return None, ""
    able = _able(file)
    if kind and kind not in able:
        return None, _other(kind, able)
    prefix = f"{kind or able[-1]}_{source.stem}_"
    return (Library(file, prefix), "") if hasattr(file, f"{prefix}error_message") else (None, "")


def _built_here(source: Path, kind: str) -> tuple[Library | None, str]:
    if sys.platform not in ("linux", "darwin"):
        return None, "compiled parts come with the wheel for this system, and are built on Linux and macOS only"
    command, version = compiler()
    if command is None:
        return None, version
    native = "-march=native" if _MACHINE == "x86_64" else "-mcpu=native"
    flags = (*FLAGS, *KINDS.get(_MACHINE, {}).get(kind, native).split(), f"-I{SOURCES}")
    try:
        name = _name(source, (version, processor(), *flags))
    except OSError as error:
        return None, f"the sources of the kernels cannot be read ({error})"
    failures = []
    for folder in folders():
        try:
            own(folder)
            return Library(_library(folder / name, source, (command, *flags))), ""
        except KernelError as error:
            return None, f"{command} could not build {source.name}: {error}"
        except OSError as error:
            failures.append(f"{folder}: {error.strerror or error}")
    return None, f"{source.name} could not be kept ({'; '.join(failures)}); set XDG_CACHE_HOME to a folder of yours"


@cache
def compiler() -> tuple[str | None, str]:
    """A C++ compiler and its version; None and why not."""
    for command in filter(None, map(shutil.which, ("c++", "g++", "clang++"))):
        with suppress(OSError):
            done = subprocess.run([command, "--version"], capture_output=True, text=True, errors="replace")
            return command, done.stdout
    return None, "no C++ compiler was found; install g++, such as Debian's package of that name"


def folders() -> Iterator[Path]:
    """Where built libraries may be kept: the first of these that can be written to and is the user's own."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(given):
        yield Path(given) / "regard"
    with suppress(RuntimeError):  # a user without a home folder
        yield Path.home() / ".cache" / "regard"
    with suppress(OSError):  # no folder for temporary files
        yield Path(tempfile.gettempdir()) / f"regard-{_user()}"


def _name(source: Path, key: tuple[str, ...]) -> str:
    """A name that changes with the sources and with all that a library depends on."""
    headers = sorted({*source.parent.glob("*.h"), *SOURCES.glob("*.h")})
    text = b"".join(path.read_bytes() for path in (source, *headers))
    return f"{source.stem}-{hashlib.sha256(chr(0).join(key).encode() + text).hexdigest()[:16]}.so"


def processor() -> str:
    """What -march=native depends on: a home folder may be shared by machines that differ."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.machine()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.machine())


def own(folder: Path) -> None:
    """Make sure that a folder is there, is this user's and nobody else's: what lies in it will be run."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(each.st_uid != _user() for each in (os.lstat(folder), os.stat(folder))):
        raise PermissionError("it belongs to another user")
    if stat.S_IMODE(os.stat(folder).st_mode) != 0o700:
        folder.chmod(0o700)


def _library(path: Path, source: Path, command: tuple[str, ...]) -> ctypes.CDLL:
    """The library at `path`, which is built if it is not there or not as it was left."""
    if not _whole(path):
        with alone_in(path.parent):
            if not _whole(path):  # no other process has built it in the meantime
                _build(path, source, command)
    return ctypes.CDLL(str(path))


def _whole(path: Path) -> bool:
    """Whether a library is there, with the contents that it was built with: one that is cut short would kill us."""
    try:
        return path.with_suffix(".sha256").read_text("ascii").strip() == _sha256(path)
    except (OSError, ValueError):
        return False


def _sha256(library: Path) -> str:
    return hashlib.sha256(library.read_bytes()).hexdigest()


def _build(path: Path, source: Path, command: tuple[str, ...]) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made, said = Path(folder) / "made.so", Path(folder) / "digest"
        whole = [*command, "-shared", "-pthread", str(source), "-o", str(made)]
        done = subprocess.run(whole, capture_output=True, text=True, errors="replace")
        if done.returncode and "No space left" in done.stderr:
            raise OSError("no space is left")
        if done.returncode:
            raise KernelError(_complaint(done))
        said.write_text(_sha256(made), "ascii")
        atomic_rename(made, path)
        atomic_rename(said, path.with_suffix(".sha256"))


def _complaint(done: subprocess.CompletedProcess[str]) -> str:
    """What a compiler that failed has to say: its first error, or its last line."""
    lines = done.stderr.strip().splitlines()
    errors = [line for line in lines if "error" in line.lower()]
    return next(iter(errors or lines[-1:]), f"it ended with status {done.returncode} and said nothing")


def default_threads() -> int:
    """OMP_NUM_THREADS, or the processors that this process may use; no more than PyTorch takes, if it is loaded."""
    asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    most = int(asked) if asked.isdecimal() and int(asked) else max(1, min(here, math.ceil(min(quota(), here))))
    number = getattr(sys.modules.get("torch"), "get_num_threads", None)  # not while another thread is loading it
    return most if number is None else min(most, number())


_here = threading.local()


@contextmanager
def threads_at_most(most: int) -> Iterator[None]:
    """Lets what this thread has computed take no more threads than these, since others compute beside it."""
    before = getattr(_here, "most", None)
    _here.most = most
    try:
        yield
    finally:
        _here.most = before


def threads_here() -> int:
    """How many threads may work on what this thread has computed now; `default_threads` if nothing is said."""
    return min(default_threads(), getattr(_here, "most", None) or sys.maxsize)


def quota(root: Path = Path("/")) -> float:
    """How many processors' time the control groups of this process allow (version 2 or 1); infinite without a limit."""
    limits = [math.inf]
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text("ascii", errors="replace").splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers or "cpu" in controllers.split(","):
                top = root / "sys/fs/cgroup" / controllers
                group = top / path.lstrip("/")
                limits += [_limit(each) for each in (group, *group.parents) if each.is_relative_to(top)]
    return min(limits)


def _limit(group: Path) -> float:
    """One group's own limit."""
    for names in (["cpu.max"], ["cpu.cfs_quota_us", "cpu.cfs_period_us"]):
        with suppress(OSError, ValueError):  # no such file, or "max"
            most, period = (int(word) for name in names for word in (group / name).read_text("ascii").split())
            return most / period if most > 0 else math.inf
    return math.inf
