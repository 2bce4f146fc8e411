"""What this machine offers, what Regard makes of it, and why.

Versions, processor, kernels; what training has here, if PyTorch is installed; and what translates a bundle.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from regard.bundle import versions
from regard.data.shards import cores
from regard.engine import decoding
from regard.errors import install
from regard.kernels.build import default_threads
from regard.search.table import search_with
from regard.tasks.engine import has_torch
from regard.tasks.translate import Translator, load

_FLAGS = (
    *("sse4_2", "avx", "avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16"),
    *("asimd", "bf16", "i8mm", "sve"),
)
_OPTIONAL = {
    "torch": f"training, and what the compiled decoder does not do: {install('train')}",
    "sacrebleu": f"BLEU, chrF and TER: {install('metrics')}",
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
    training = (_kernels, _training) if has_torch() else ()
    for part in (_versions, _machine, _decoder, *training, partial(_disk, Path(directory))):
        topic = getattr(part, "__name__", "_machine").strip("_")
        try:
            found.extend(part(partial(Finding, topic)))
        except Exception as error:  # a machine may be in any state, and this is what is asked when it is in a bad one
            found.append(Finding(topic, "could not be looked at", f"{type(error).__name__}: {error}", good=False))
    return found if bundle is None else [*found, *_translating(load(bundle), partial(Finding, "translating"))]


def _versions(found: Found) -> Iterator[Finding]:
    there = versions(*_OPTIONAL)
    for name in dict.fromkeys((*there, *_OPTIONAL)):
        yield found(name, there.get(name, "not installed"), "" if name in there else f"only for {_OPTIONAL[name]}")


def _machine(found: Found) -> Iterator[Finding]:
    try:
        lines = [line.partition(":") for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()]
    except OSError:  # not on Linux
        lines = []
    facts = {key.strip(): value.strip() for key, _, value in reversed(lines)}  # of the first processor
    flags = (facts.get("flags") or facts.get("Features") or "").split()
    yield found("system", f"{platform.system()} {platform.release()} ({platform.machine()})")
    yield found("processor", facts.get("model name") or platform.processor() or platform.machine())
    available, threads = cores(), default_threads()
    yield found("cores", str(available))
    note = "" if threads == available else "set OMP_NUM_THREADS to the number of cores, unless others work here too"
    yield found("threads that translate", str(threads), note, good=threads <= available)
    yield found("instructions", " ".join(f for f in _FLAGS if f in flags) or "unknown")
    with suppress(AttributeError, ValueError, OSError):
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        yield found("memory", f"{memory / 2**30:.1f} GiB")


def _decoder(found: Found) -> Iterator[Finding]:
    refusal = decoding.refusal()
    yield found("compiled decoder", "refused" if refusal else "built", refusal or "")
    value = "float64, in PyTorch" if refusal else "float32, in the compiled decoder"
    why = "so a translation does not depend on its neighbours; what the decoder does not know is multiplied in float64"
    yield found("precision of translating when auto", value, why)


def _kernels(found: Found) -> Iterator[Finding]:
    import torch

    from regard.kernels.native import map_seconds_said
    from regard.nn.attention import multihead
    from regard.nn.layers import STAND_INS, unavailable
    from regard.train import resolve_precision

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    fast = resolve_precision("auto", device)
    why = map_seconds_said(512) if device.type == "cpu" else "as the GPU has instructions for it"
    yield found("precision of training when auto", "bfloat16" if fast else "float32", why)
    for what, size in _CALLS.items():
        asked = multihead.probe(device.type, dtype=torch.bfloat16 if fast else torch.float32, **size)
        kernel, refusals = multihead.choose(asked)
        yield found(what, kernel.name, "; ".join(f"not {name}: {reason}" for name, reason in refusals.items()))
    kinds = {"float32": torch.float32, "bfloat16": torch.bfloat16}
    for name in STAND_INS:
        reasons = {kind: unavailable(name, "cpu", dtype) for kind, dtype in kinds.items()}
        taken = ", ".join(kind for kind, reason in reasons.items() if reason is None)
        note = "; ".join(dict.fromkeys(filter(None, reasons.values())))
        yield found(f"compiled {name}, on CPUs", taken or "refused", note)


def _translating(translator: Translator, found: Found) -> Iterator[Finding]:
    for options, changes in _ASKED.items():
        why = translator.why_not_compiled(search_with(translator.recipe.search, changes))
        yield found(options, "PyTorch" if why else "compiled decoder", why or "")
    learnt = translator.bundle is not None and translator.bundle.shortlist() is not None
    yield found("--shortlist", "learnt" if learnt else "none", "" if learnt else "`regard shortlist`")


def _training(found: Found) -> Iterator[Finding]:
    """What training has here."""
    import torch
    from torch import distributed

    yield found("threads that PyTorch uses", str(torch.get_num_threads()))
    yield found("instructions that PyTorch uses", torch.backends.cpu.get_cpu_capability())
    for i in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(i)
        yield found(f"GPU {i}", f"{properties.name}, {properties.total_memory / 2**30:.1f} GiB")
    gpu, built = torch.cuda.is_available(), torch.version.cuda
    if not gpu:
        reason = "this build of PyTorch has no CUDA" if built is None else f"CUDA {built} is built in, no GPU is seen"
        yield found("GPU", "none", reason)
    several = distributed.is_available()
    backends = {"gloo": several and distributed.is_gloo_available(), "nccl": gpu and distributed.is_nccl_available()}
    named = ", ".join(name for name, yes in backends.items() if yes)
    yield found("several processes", named or "none", "" if backends["nccl"] else "not nccl: no GPU, or not built in")


def _disk(directory: Path, found: Found) -> Iterator[Finding]:
    free = shutil.disk_usage(directory).free
    note = "little is left for checkpoints and bundles" if free < 2**30 else ""
    yield found(f"free space in {directory.resolve()}", f"{free / 2**30:.1f} GiB", note, good=not note)
