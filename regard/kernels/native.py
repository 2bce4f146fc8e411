"""Compiled parts of the training step for CPUs (native.cpp): built once on the machine, in seconds, and kept.

A C++ compiler is all they need. Where there is none, or the system is not Linux, `refusal` says so and PyTorch's own
operations do the same work.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

__all__ = [
    "attend",
    "built",
    "call_with_workspace",
    "drop_add",
    "keep_memory",
    "layer_norm",
    "only_references",
    "refusal",
    "smoothed",
    "takes",
]

SOURCES = Path(__file__).parent
"""Where the C++ of the kernels lies."""
_SOURCE = SOURCES / "native.cpp"
_FLAGS = ("-O3", "-march=native", "-std=c++17", "-fPIC", "-fopenmp", "-fno-math-errno", "-fno-trapping-math")
_TYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
_MMAP_THRESHOLD, _TRIM_THRESHOLD, _TOP_PAD = -3, -1, -2  # of malloc.h
_off = False


@contextmanager
def only_references() -> Iterator[None]:
    """Inside, PyTorch's own operations are used although the compiled ones are there: to compare the two."""
    global _off
    before, _off = _off, True
    try:
        yield
    finally:
        _off = before


@cache
def built(source: Path = _SOURCE) -> tuple[ctypes.CDLL | None, str]:
    """The library made of a source file beside this one, or None and the reason in a sentence."""
    if platform.system() != "Linux":
        return None, "compiled kernels are built on Linux only"
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        return None, "no C++ compiler was found (c++, g++ or clang++); install one, such as Debian's g++"
    # PyTorch's own OpenMP, so that there is one pool of threads and not two that fight for the cores.
    runtime = next(iter(sorted((Path(torch.__file__).parent / "lib").glob("libgomp*"))), None)
    if runtime is None:
        return None, "this build of PyTorch does not bring GNU OpenMP"
    try:
        version = subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout
        key = "\0".join((version, torch.__version__, str(runtime), _processor(), *_FLAGS)).encode()
        headers = sorted({*source.parent.glob("*.h"), *SOURCES.glob("*.h")})
        text = b"".join(path.read_bytes() for path in (source, *headers))
        name = f"{source.stem}-{hashlib.sha256(key + text).hexdigest()[:16]}.so"
        place = Path.home() / ".cache" / "regard" / name
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=place.parent) as folder:
                part, made = Path(folder) / "native.o", Path(folder) / "native.so"
                for command in (
                    [compiler, *_FLAGS, f"-I{SOURCES}", "-c", str(source), "-o", str(part)],
                    [compiler, "-shared", str(part), str(runtime), "-o", str(made)],
                ):
                    done = subprocess.run(command, capture_output=True, text=True)
                    if done.returncode:
                        return None, f"{compiler} could not build the kernels: {done.stderr.strip().splitlines()[-1]}"
                os.replace(made, place)
        return ctypes.CDLL(str(place)), ""
    except (OSError, RuntimeError) as error:  # RuntimeError: a user without a home folder
        return None, f"the kernels could not be built or loaded ({error})"


def call_with_workspace(library: ctypes.CDLL, name: str, *arguments: Any) -> None:
    """Call a function that asks for room: called without, it returns the bytes that it needs."""
    function = getattr(library, name)
    function.restype = ctypes.c_int64
    given = [ctypes.c_void_p(a.data_ptr()) if isinstance(a, Tensor) else a for a in arguments]
    room = torch.empty(function(None, *given), dtype=torch.uint8)
    function(ctypes.c_void_p(room.data_ptr()), *given)


def _processor() -> str:
    """What -march=native depends on: a home folder may be shared by machines that differ."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.machine())


@cache
def keep_memory() -> None:
    """Let the C library keep large blocks that are freed, instead of asking for zeroed pages at every step."""
    if platform.system() == "Linux" and (set_option := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        for option, value in ((_MMAP_THRESHOLD, 2**30), (_TRIM_THRESHOLD, 2**31 - 1), (_TOP_PAD, 2**26)):
            set_option(option, value)


def refusal() -> str | None:
    """None if the compiled kernels can be used here, else why not."""
    return "compiled kernels are switched off" if _off else built()[1] or None


def takes(*tensors: Tensor) -> bool:
    """Whether these tensors are what the compiled kernels work on: on a CPU, of one type, float32 or bfloat16."""
    first = tensors[0]
    if first.device.type != "cpu" or first.dtype not in _TYPES or any(t.dtype != first.dtype for t in tensors[1:]):
        return False
    return refusal() is None


_POINTER, _LONG, _INT, _FLOAT, _WORD = (
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.c_int,
    ctypes.c_float,
    ctypes.c_uint32,
)


_NOTHING = _WORD(0), _FLOAT(1.0), _WORD(0), _WORD(0)
"""Is dropped."""


def _call(name: str, like: Tensor, *arguments: Any) -> None:
    library = built()[0]
    assert library is not None
    getattr(library, f"{name}_{_TYPES[like.dtype]}")(*arguments)


def _at(x: Tensor | None) -> ctypes.c_void_p:
    return _POINTER(None if x is None else x.data_ptr())


def _heads(x: Tensor) -> tuple[Any, ...]:
    """A tensor (1, H, L, D) as pointer, stride of heads, stride of tokens; D must be contiguous."""
    return _at(x), _LONG(x.stride(1)), _LONG(x.stride(2))


def _like_rows(x: Tensor) -> Tensor:
    """An empty (1, H, L, D) whose memory is (L, H, D), so that heads join again without a copy."""
    _, heads, tokens, width = x.shape
    return x.new_empty(1, tokens, heads, width).transpose(1, 2)


# -- attention ---------------------------------------------------------------------------------------------------------


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, starts: Tensor, key_starts: Tensor, causal: bool) -> Tensor:
        q, k, v = (x if x.stride(3) == 1 else x.contiguous() for x in (q, k, v))
        out = q.new_empty(1, q.shape[2], q.shape[1], v.shape[3]).transpose(1, 2)
        out[:, :, int(starts[-1]) :] = 0  # a tail that belongs to no sequence
        sizes = _INT(len(starts) - 1), _INT(q.shape[1]), _INT(q.shape[3]), _INT(v.shape[3]), _INT(causal)
        places = _at(starts), _at(key_starts)
        _call("attend", q, *_heads(q), *_heads(k), *_heads(v), *_heads(out), *places, *sizes)
        ctx.save_for_backward(q, k, v, starts, key_starts)
        ctx.sizes = sizes
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        q, k, v, starts, key_starts = ctx.saved_tensors
        g = gradients[0] if gradients[0].stride(3) == 1 else gradients[0].contiguous()
        made = tuple(_like_rows(x) for x in (q, k, v))
        for x, ends in zip(made, (starts, key_starts, key_starts), strict=True):
            x[:, :, int(ends[-1]) :] = 0
        heads = [y for x in (q, k, v, g, *made) for y in _heads(x)]
        _call("attend_back", q, *heads, _at(starts), _at(key_starts), *ctx.sizes)
        return (*made, None, None, None)


def attend(q: Tensor, k: Tensor, v: Tensor, starts: Tensor, key_starts: Tensor, causal: bool) -> Tensor:
    """Dot-product attention of packed sequences: q (1, H, L, D), k (1, H, S, D), v (1, H, S, E) -> (1, H, L, E).

    Sequence b's queries are starts[b] to starts[b + 1], its keys likewise (int32, (B + 1,)); it sees its own keys only,
    if `causal` up to its own place.
    """
    return _Attend.apply(q, k, v, starts, key_starts, causal)  # type: ignore[no-any-return, no-untyped-call]


# -- the loss ----------------------------------------------------------------------------------------------------------


def smoothed(logits: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """Label-smoothed losses (n,) of contiguous logits (n, V), which become their gradient in place."""
    losses = logits.new_empty(len(logits), dtype=torch.float32)
    n, v = logits.shape
    _call("smoothed", logits, _at(logits), _LONG(n), _LONG(v), _at(targets), _FLOAT(smoothing), _at(losses))
    return losses


# -- dropout and residual ----------------------------------------------------------------------------------------------


def _drawn(probability: float) -> tuple[Any, ...]:
    """A probability in 2^-32ths, the scale that makes up for it, and the seeds of one call's mask."""
    dropped = min(round(probability * 2**32), 2**32 - 1)
    seeds = torch.randint(2**32, (2,)).tolist()
    return _WORD(dropped), _FLOAT(2**32 / (2**32 - dropped)), _WORD(seeds[0]), _WORD(seeds[1])


class _DropAdd(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor | None, y: Tensor, probability: float) -> Tensor:
        ctx.settings = _drawn(probability)
        ctx.residual = x is not None
        y = y.contiguous()
        x = None if x is None else x.contiguous()
        out = torch.empty_like(y)
        _call("drop_add", y, _at(x), _at(y), _at(out), _LONG(y.numel()), *ctx.settings)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        g = gradients[0].contiguous()
        out = torch.empty_like(g)
        _call("drop_add", g, _at(None), _at(g), _at(out), _LONG(g.numel()), *ctx.settings)
        return g if ctx.residual else None, out, None


def drop_add(x: Tensor | None, y: Tensor, probability: float) -> Tensor:
    """x + dropout(y), or dropout(y) alone; the mask is a hash of place and seed, made again in the backward pass."""
    return _DropAdd.apply(x, y, probability)  # type: ignore[no-any-return, no-untyped-call]


# -- layer norm --------------------------------------------------------------------------------------------------------


class _LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor | None, gain: Tensor, bias: Tensor, epsilon: float, probability: float
    ) -> Tensor:
        x = x.contiguous()
        y = None if y is None else y.contiguous()
        out, kept = torch.empty_like(x), x.new_empty(x.numel() // x.shape[-1], 2, dtype=torch.float32)
        summed = x if y is None else torch.empty_like(x)
        ctx.sizes, ctx.added = (_LONG(len(kept)), _INT(x.shape[-1])), y is not None
        ctx.settings = _NOTHING if y is None else _drawn(probability)
        places = (_at(t) for t in (x, y, gain, bias, summed, out, kept))
        _call("norm", x, *places, *ctx.sizes, _FLOAT(epsilon), *ctx.settings)
        ctx.save_for_backward(summed, gain, kept)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x, gain, kept = ctx.saved_tensors
        g, dx, threads = gradients[0].contiguous(), torch.empty_like(x), torch.get_num_threads()
        dy = torch.empty_like(x) if ctx.added else None
        partial = kept.new_empty(threads, 2, x.shape[-1])
        places = (_at(t) for t in (x, gain, g, kept, dx, dy, partial))
        _call("norm_back", x, *places, _INT(threads), *ctx.sizes, *ctx.settings)
        both = partial.sum(0).to(gain.dtype)
        return dx, dy, both[0], both[1], None, None


def layer_norm(
    x: Tensor, gain: Tensor, bias: Tensor, epsilon: float, added: Tensor | None = None, probability: float = 0.0
) -> Tensor:
    """Layer norm over the last axis, whose size D is a multiple of 16, of x, or of x + dropout(added)."""
    return _LayerNorm.apply(x, added, gain, bias, epsilon, probability)  # type: ignore[no-any-return, no-untyped-call]
