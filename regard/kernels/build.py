"""Builds C++ on the machine that will run it, once, in seconds, and keeps the library in a folder of the user's own.

A GNU C++ compiler on Linux is all that is needed; where something lacks, the reason is said in a sentence. PyTorch is
not imported: only its OpenMP runtime is looked for, so that there is one pool of threads in a process and not two.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from regard.disk import atomic_rename, digest
from regard.errors import KernelError

SOURCES = Path(__file__).parent
"""Where the C++ of the kernels lies, and the headers that every compiled part may read."""
_FLAGS = ("-O3", "-std=c++17", "-fPIC", "-fopenmp", "-fno-math-errno", "-fno-trapping-math")
_NO_MEMORY = -2  # as entry.h has it


class _NotBuiltError(Exception):
    """The compiler failed, as it would in any other folder."""


@cache
def built(source: Path, architecture: str = "native") -> tuple[ctypes.CDLL | None, str]:
    """The library of a C++ file for a processor (GCC's -march), or None and the reason in a sentence."""
    if platform.system() != "Linux":
        return None, "compiled kernels are built on Linux only"
    command, version = compiler()
    if command is None:
        return None, version
    runtime = _openmp()
    if runtime is None:
        return None, "this PyTorch does not bring GNU OpenMP (libgomp), which compiled kernels share with it"
    flags = (*_FLAGS, f"-march={architecture}", f"-I{SOURCES}")
    try:
        name = _name(source, (version, str(runtime), _processor(), *flags))
    except OSError as error:
        return None, f"the sources of the kernels cannot be read ({error})"
    failures = []
    for folder in folders():
        try:
            _own(folder)
            return _library(folder / name, source, (command, *flags), runtime), ""
        except _NotBuiltError as error:
            return None, f"{command} could not build {source.name}: {error}"
        except OSError as error:
            failures.append(f"{folder}: {error.strerror or error}")
    return None, f"{source.name} could not be kept ({'; '.join(failures)}); set XDG_CACHE_HOME to a folder of yours"


@cache
def compiler() -> tuple[str | None, str]:
    """A GNU C++ compiler and its version; None and why not."""
    others = [found] if (found := shutil.which("clang++")) else []
    for name in ("c++", "g++"):
        if (command := shutil.which(name)) is None:
            continue
        try:
            version = subprocess.run([command, "--version"], capture_output=True, text=True, errors="replace").stdout
        except OSError:
            continue
        if "clang" not in version.lower():
            return command, version
        others.append(command)
    if others:
        return None, (
            f"{others[-1]} is Clang, whose OpenMP is not the one that PyTorch brings (GNU's), and two of them would "
            "fight for the cores; install g++, such as Debian's package of that name"
        )
    return None, "no C++ compiler was found; install g++, such as Debian's package of that name"


def folders() -> Iterator[Path]:
    """Where built libraries may be kept: the first of these that can be written to and is the user's own."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(given):
        yield Path(given) / "regard"
    with suppress(RuntimeError):  # a user without a home folder
        yield Path.home() / ".cache" / "regard"
    with suppress(OSError):  # no folder for temporary files
        yield Path(tempfile.gettempdir()) / f"regard-{os.geteuid()}"


def entry(library: ctypes.CDLL, name: str) -> Callable[..., int]:
    """A function of a library that returns a number, which `checked` understands."""
    function: ctypes._NamedFuncPointer = getattr(library, name)
    function.restype = ctypes.c_int64
    return function


def checked(library: ctypes.CDLL, result: int) -> int:
    """What an entry returned; raises MemoryError, or KernelError with the entry's own message, if it failed."""
    if result >= 0:
        return result
    said = error_of(library)
    if result == _NO_MEMORY:
        raise MemoryError(said)
    raise KernelError(f"a compiled kernel cannot work with what it was given: {said}.")


def error_of(library: ctypes.CDLL) -> str:
    """What the last entry that failed in this thread had to say."""
    library.error_message.restype = ctypes.c_char_p
    said: bytes = library.error_message()
    return said.decode(errors="replace")


def _openmp() -> Path | None:
    """PyTorch's own runtime."""
    spec = find_spec("torch")
    folders = spec.submodule_search_locations if spec is not None else None
    return next((found for folder in folders or () for found in sorted((Path(folder) / "lib").glob("libgomp*"))), None)


def _name(source: Path, key: tuple[str, ...]) -> str:
    """A name that changes with the sources and with all that a library depends on."""
    headers = sorted({*source.parent.glob("*.h"), *SOURCES.glob("*.h")})
    text = b"".join(path.read_bytes() for path in (source, *headers))
    return f"{source.stem}-{hashlib.sha256(chr(0).join(key).encode() + text).hexdigest()[:16]}.so"


def _processor() -> str:
    """What -march=native depends on: a home folder may be shared by machines that differ."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.machine()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.machine())


def _own(folder: Path) -> None:
    """Make sure that a folder is there, is this user's and nobody else's: what lies in it will be run."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(each.st_uid != os.geteuid() for each in (os.lstat(folder), os.stat(folder))):
        raise PermissionError("it belongs to another user")
    if stat.S_IMODE(os.stat(folder).st_mode) != 0o700:
        folder.chmod(0o700)


def _library(path: Path, source: Path, command: tuple[str, ...], runtime: Path) -> ctypes.CDLL:
    """The library at `path`, which is built if it is not there or not as it was left."""
    if not _whole(path):
        with _alone(path.parent):
            if not _whole(path):  # no other process has built it in the meantime
                _build(path, source, command, runtime)
    return ctypes.CDLL(str(path))


def _digest_of(path: Path) -> Path:
    return path.with_suffix(".sha256")


def _whole(path: Path) -> bool:
    """Whether a library is there, with the contents that it was built with: one that is cut short would kill us."""
    try:
        return _digest_of(path).read_text("ascii").strip() == digest(path)
    except (OSError, ValueError):
        return False


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Inside, no other process builds in this folder."""
    with open(folder / "lock", "w") as lock:
        with suppress(OSError):  # some network file systems have no locks; then two may build the same thing
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(path: Path, source: Path, command: tuple[str, ...], runtime: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        part, made, said = Path(folder) / "part.o", Path(folder) / "made.so", Path(folder) / "digest"
        link = [command[0], "-shared", str(part), str(runtime), f"-Wl,-rpath,{runtime.parent}", "-o", str(made)]
        for each in ([*command, "-c", str(source), "-o", str(part)], link):
            done = subprocess.run(each, capture_output=True, text=True, errors="replace")
            if done.returncode and "No space left" in done.stderr:
                raise OSError("no space is left")
            if done.returncode:
                raise _NotBuiltError(_complaint(done))
        said.write_text(digest(made), "ascii")
        atomic_rename(made, path)
        atomic_rename(said, _digest_of(path))


def _complaint(done: subprocess.CompletedProcess[str]) -> str:
    """What a compiler that failed has to say: its first error, or its last line."""
    lines = done.stderr.strip().splitlines()
    errors = [line for line in lines if "error" in line.lower()]
    return next(iter(errors or lines[-1:]), f"it ended with status {done.returncode} and said nothing")
