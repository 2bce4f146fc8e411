"""What this machine offers, what Regard makes of it, and why.

Versions, processor, kernels, whether the rows of a product depend on their neighbours; and what translates a bundle.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from regard.data.shards import cores
from regard.engine import decoding
from regard.errors import install
from regard.nn.attention import multihead
from regard.nn.layers import STAND_INS, unavailable
from regard.train import resolve_precision

from .finish import versions
from .options import search_with
from .translate import Translator, load

_FLAGS = (
    *("sse4_2", "avx", "avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16"),
    *("asimd", "bf16", "i8mm", "sve"),
)
_OPTIONAL = {
    "tensorboard": f"curves while training: {install('curves')}",
    "babel": f"the built-in corpus: {install('demo')}",
    "matplotlib": f"pictures: {install('pictures')}",
    "rouge-score": f"ROUGE: {install('rouge')}",
}
_CALLS: dict[str, dict[str, Any]] = {
    "attention of 32 tokens, packed": {"keys": 32, "packed": True},
    "attention of 32 tokens": {"keys": 32},
    "attention of 1,024 tokens": {"keys": 1024},
    "attention whose weights are shown": {"keys": 32, "want_weights": True},
}

_ASKED: dict[str, dict[str, object]] = {
    "by default": {},
    "--precision exact": {"precision": "exact"},
    "--precision float32": {"precision": "float32"},
    "--precision int8": {"precision": "int8"},
    "--precision int8, with rules or samples": {"precision": "int8", "samples": 1},
    "--precision int8 --coverage 0.2": {"precision": "int8", "coverage": 0.2},
}
"""Options and what they ask for, in the place of what the bundle's recipe does."""


@dataclass(frozen=True)
class Finding:
    """One fact about the machine; `good` is False for what the user may want to mend, and `note` says how."""

    topic: str
    name: str
    value: str
    note: str = ""
    good: bool = True

    def to_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        return dict(vars(self))


Found = Callable[..., Finding]  #: Makes a finding of one topic, of the other fields.


def doctor(directory: str | Path = ".", bundle: str | Path | None = None) -> list[Finding]:
    """All findings; `directory` is where a run would be written. Of a bundle also what translates with it, and why.

    What cannot be looked at here is a finding too. Raises RegardError for a bundle that cannot be used.
    """
    found: list[Finding] = []
    for part in (_versions, _machine, _arithmetic, _kernels, _training, partial(_disk, Path(directory))):
        topic = getattr(part, "__name__", "_machine").strip("_")
        try:
            found.extend(part(partial(Finding, topic)))
        except Exception as error:  # a machine may be in any state, and this is what is asked when it is in a bad one
            found.append(Finding(topic, "could not be looked at", f"{type(error).__name__}: {error}", good=False))
    return found if bundle is None else [*found, *_translating(load(bundle), partial(Finding, "translating"))]


def rows_differ_by(dtype: torch.dtype, width: int = 512) -> float:
    """How much an element of a product changes, relatively, with the number of rows that are multiplied together.

    width: of the vectors, (rows, width) by (width, width). 0 means the same bits; sentences in a batch are such rows.
    """
    generator = torch.Generator().manual_seed(1)
    vectors, weights = (torch.randn(n, width, generator=generator).to(dtype) for n in (320, width))
    whole = vectors @ weights.T
    largest = max(float((vectors[:n] @ weights.T - whole[:n]).abs().max()) for n in (1, 2, 3, 5, 8, 13, 40, 100))
    return largest / float(whole.abs().max())


def _versions(found: Found) -> Iterator[Finding]:
    for name, version in versions().items():
        yield found(name, version)
    for package, use in _OPTIONAL.items():
        try:
            yield found(package, metadata.version(package))
        except metadata.PackageNotFoundError:
            yield found(package, "not installed", f"only for {use}")


def _machine(found: Found) -> Iterator[Finding]:
    try:
        lines = [line.partition(":") for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()]
    except OSError:  # not on Linux
        lines = []
    facts = {key.strip(): value.strip() for key, _, value in reversed(lines)}  # of the first processor
    flags = (facts.get("flags") or facts.get("Features") or "").split()
    yield found("system", f"{platform.system()} {platform.release()} ({platform.machine()})")
    yield found("processor", facts.get("model name") or platform.processor() or platform.machine())
    available, threads = cores(), torch.get_num_threads()
    yield found("cores", str(available))
    note = "" if threads == available else "set OMP_NUM_THREADS to the number of cores, unless others work here too"
    yield found("threads that PyTorch uses", str(threads), note, good=threads <= available)
    yield found("instructions", " ".join(f for f in _FLAGS if f in flags) or "unknown")
    yield found("instructions that PyTorch uses", torch.backends.cpu.get_cpu_capability())
    with suppress(AttributeError, ValueError, OSError):
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        yield found("memory", f"{memory / 2**30:.1f} GiB")
    for i in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(i)
        yield found(f"GPU {i}", f"{properties.name}, {properties.total_memory / 2**30:.1f} GiB")
    if not torch.cuda.is_available():
        built = torch.version.cuda
        reason = "this build of PyTorch has no CUDA" if built is None else f"CUDA {built} is built in, no GPU is seen"
        yield found("GPU", "none", reason)


def _arithmetic(found: Found) -> Iterator[Finding]:
    fast = resolve_precision("auto", _device())
    why = "the hardware multiplies it faster" if fast else "the hardware has no faster bfloat16"
    yield found("precision of training when auto", "bfloat16" if fast else "float32", why)
    for dtype in (torch.float32, torch.float64):
        differ = rows_differ_by(dtype)
        value = f"by {differ:.0e} of the largest" if differ else "no: the same bits"
        yield found(f"{_name(dtype)} products change with the batch", value)
    value = "float64, in PyTorch" if decoding.refusal() else "float32, in the compiled decoder"
    why = "so a translation does not depend on its neighbours; what the decoder does not know is multiplied in float64"
    yield found("precision of translating when auto", value, why)


def _kernels(found: Found) -> Iterator[Finding]:
    device = _device()
    dtype = torch.bfloat16 if resolve_precision("auto", device) else torch.float32
    for what, size in _CALLS.items():
        kernel, refusals = multihead.choose(multihead.probe(device.type, dtype=dtype, **size))
        yield found(what, kernel.name, "; ".join(f"not {name}: {reason}" for name, reason in refusals.items()))
    for name in STAND_INS:
        reasons = {kind: unavailable(name, "cpu", kind) for kind in (torch.float32, torch.bfloat16)}
        taken = ", ".join(_name(kind) for kind, reason in reasons.items() if reason is None)
        note = "; ".join(dict.fromkeys(reason for reason in reasons.values() if reason is not None))
        yield found(f"compiled {name}, on CPUs", taken or "refused", note)
    refusal = decoding.refusal()
    yield found("compiled decoder", "refused" if refusal else "built", refusal or "")
    quick = ", ".join(name for name in decoding.PRECISIONS if decoding.is_fast(name))
    yield found("precisions that it multiplies fast", quick, "`--precision` chooses one of them")


def _translating(translator: Translator, found: Found) -> Iterator[Finding]:
    for options, changes in _ASKED.items():
        why = translator.why_not_compiled(search_with(translator.recipe.search, changes))
        yield found(options, "PyTorch" if why else "compiled decoder", why or "")
    learnt = translator.bundle is not None and translator.bundle.shortlist() is not None
    yield found("--shortlist", "learnt" if learnt else "none", "" if learnt else "`regard shortlist`")


def _training(found: Found) -> Iterator[Finding]:
    """What makes training fast, whether it is there, and why not."""
    fast = {"avx512_bf16": torch.cpu._is_avx512_bf16_supported(), "AMX": torch.cpu._is_amx_tile_supported()}
    there = ", ".join(name for name, yes in fast.items() if yes)
    why = "" if there else "this processor multiplies float32 as fast"
    yield found("bfloat16 products of this processor", there or "none", why)
    compiler = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    why = f"with {compiler}" if compiler else "no C++ compiler was found; install one, such as Debian's g++"
    yield found("torch.compile", "possible, not used" if compiler else "refused", why)
    gpu = torch.cuda.is_available()
    yield found("CUDA", "yes" if gpu else "refused", "" if gpu else "no GPU is seen, or none is built in")
    eight = gpu and torch.cuda.get_device_capability() >= (8, 9)
    why = "" if eight else "it needs a GPU of compute capability 8.9 or more (Ada, Hopper)"
    yield found("fp8 products", "possible here, not used" if eight else "refused", why)
    if not distributed.is_available():
        yield found("several processes", "none", "this build of PyTorch has no torch.distributed")
        return
    backends = {"gloo": distributed.is_gloo_available(), "nccl": distributed.is_nccl_available() and gpu}
    named = ", ".join(name for name, yes in backends.items() if yes)
    yield found("several processes", named or "none", "" if backends["nccl"] else "not nccl: no GPU, or not built in")


def _disk(directory: Path, found: Found) -> Iterator[Finding]:
    free = shutil.disk_usage(directory).free
    note = "little is left for checkpoints and bundles" if free < 2**30 else ""
    yield found(f"free space in {directory.resolve()}", f"{free / 2**30:.1f} GiB", note, good=not note)


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
