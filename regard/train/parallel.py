"""Training on several processes, as `torchrun` starts them: PyTorch's DDP or FSDP2, and what they must agree on.

Every process walks the same batches and takes its share of each one's rows, so the run is the same one however many
there are. gloo carries it on CPUs, NCCL on GPUs. The directory of a run lies on a file system that all of them see.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous
from torch.func import functional_call

from regard.data.batches import Batch
from regard.errors import ModelError, ParallelError

_SILENCE = timedelta(minutes=10)  # how long a process waits for the others at an update before it takes them for dead
_PATIENCE = timedelta(days=7)
"""How long it waits while the first one prepares, validates, saves or scores; one that ends is noticed at once."""


@dataclass(frozen=True)
class Parallel:
    """This process among those of a run. One that is alone does nothing here: no message, no copy, no other seed."""

    rank: int = 0
    world: int = 1
    local: int = 0  # its number on its own machine
    kind: Literal["ddp", "fsdp"] = "ddp"
    attempt: int = 0  # how often torchrun has started this run again, as far as all know it: on one machine
    patient: dist.ProcessGroup | None = None  # the group of processes that wait for the first one; from `joined`

    @cached_property
    def alone(self) -> bool:
        """Whether there is no other process."""
        return self.world == 1

    @classmethod
    def started(cls, kind: Literal["auto", "ddp", "fsdp"] = "auto") -> Parallel:
        """As torchrun's environment says; alone without one."""

        def read(name: str, default: int) -> int:
            return int(os.environ.get(name, default))

        world = read("WORLD_SIZE", 1)
        attempt = read("TORCHELASTIC_RESTART_COUNT", 0) if read("LOCAL_WORLD_SIZE", world) == world else 0
        return cls(read("RANK", 0), world, read("LOCAL_RANK", 0), "ddp" if kind == "auto" else kind, attempt)

    @property
    def main(self) -> bool:
        """Whether this is the process that prepares, validates, writes and speaks."""
        return self.rank == 0

    @property
    def sharded(self) -> bool:
        """Whether each process holds a part of every weight (FSDP2) instead of all (DDP)."""
        return not self.alone and self.kind == "fsdp"

    def device(self, device: torch.device) -> torch.device:
        """This process's own device of that type."""
        if self.alone or device.type != "cuda":
            return device
        if device.index is not None:
            raise ModelError(f'train.device = "{device}" names one GPU for {self.world} processes; say "cuda".')
        if self.local >= (there := torch.cuda.device_count()):
            raise ModelError(f"process {self.local + 1} of this machine has no GPU of its own; there are {there} GPUs.")
        return torch.device("cuda", self.local)

    def sum(self, *values: float) -> list[float]:
        """Each value summed over the processes, in float64."""
        if self.alone:
            return list(values)
        summed = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(summed)
        return summed.tolist()

    def too_large(self, batch: Batch) -> ModelError:
        """What is to be raised for a batch of which this process's share does not fit in its memory."""
        share = f"process {self.rank + 1} of {self.world}: its share of a batch of {batch.target_tokens} target tokens"
        way = "lower data.batch_tokens and raise train.accumulate, or start more processes."
        return ModelError(f"{share} does not fit in memory; {way}")

    def barrier(self) -> None:
        """Wait, for days if need be, until every process is here."""
        if not self.alone:
            dist.barrier(group=self.patient)

    def digests(self, digest: str) -> list[str]:
        """Every process's SHA-256 in hexadecimal, in order."""
        if self.alone:
            return [digest]
        mine = torch.frombuffer(bytearray.fromhex(digest), dtype=torch.uint8)
        found = [torch.empty_like(mine) for _ in range(self.world)]
        dist.all_gather(found, mine)
        return [bytes(each.tolist()).hex() for each in found]

    def share(self, batch: Batch) -> Batch:
        """This process's rows of a batch: neighbours, with as many tokens as the other shares to half a row.

        A process for which no row is left gets one whose targets are all padding: it takes part, and adds nothing.
        """
        if self.alone:
            return batch
        tokens = batch.source_lengths + batch.target_lengths
        middles = 2 * np.cumsum(tokens) - tokens
        owners = middles * self.world // (2 * tokens.sum())
        start, end = np.searchsorted(owners, [self.rank, self.rank + 1]).tolist()
        if start < end:
            return batch.part(start, end)
        row = batch.part(0, 1)
        return replace(row, target_output=np.full_like(row.target_output, -1))

    def seed(self, seed: int) -> int:
        """A seed of this process's own; the first one's, or that of one alone, is `seed`."""
        return (seed + self.rank * 0xD1B54A32D192ED03) % 2**63

    def wrap(self, step: nn.Module, bfloat16: bool, by_layers: bool = True) -> nn.Module:
        """A `Step` whose backward pass leaves the processes' mean gradient, in float32, in its float32 parameters.

        In bfloat16 it computes with copies cast at every batch, so that gradients are summed, over batches and over
        processes, and reduced in float32 with either kind. With FSDP2 each encoder and decoder layer is gathered when
        it is used, and what lies outside of them at once. Without `by_layers` everything is gathered at once: for a
        model that uses a layer's weights in between its calls, and for one with a part that all layers share.
        """
        if self.alone:
            return step
        if not self.sharded:
            from torch.nn.parallel import DistributedDataParallel

            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)  # the option's new name came after PyTorch 2.9
                return DistributedDataParallel(_Cast(step) if bfloat16 else step, broadcast_buffers=False)

        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        # Of an output that is a view; what is done with it is never done in place.
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
        mesh = init_device_mesh(next(step.parameters()).device.type, (self.world,))
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if bfloat16 else MixedPrecisionPolicy()
        for layers in [m for m in step.modules() if isinstance(m, nn.ModuleList) and by_layers]:
            for layer in layers:
                if (cross := getattr(layer, "cross", None)) is not None:
                    # The memory's keys and values are prepared before the layer itself is entered.
                    fully_shard(cross.key_value, mesh=mesh, mp_policy=policy)
                fully_shard(layer, mesh=mesh, mp_policy=policy)
        fully_shard(step, mesh=mesh, mp_policy=policy)
        return step

    def reducing(self, step: Any, now: bool) -> AbstractContextManager[None]:
        """Around a forward and backward pass: gradients are reduced `now`, or wait to be reduced with the next ones."""
        if self.sharded:
            step.set_requires_gradient_sync(now)
        elif not self.alone and not now:
            waiting: AbstractContextManager[None] = step.no_sync()
            return waiting
        return nullcontext()

    def whole(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Every tensor whole; all processes must ask, and where weights are sharded only the first one is answered."""
        if not self.sharded:
            return dict(tensors)
        found = {}
        for name, tensor in tensors.items():
            full = whole(tensor)
            if self.main:
                found[name] = full.cpu()
        return found


@contextmanager
def joined(parallel: Parallel, device: torch.device) -> Iterator[Parallel]:
    """Inside, the processes of a run are connected. Raises ParallelError where one of them is gone."""
    if parallel.alone:
        yield parallel
        return
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.set_device(device)
    try:
        store, rank, world = next(rendezvous("env://", timeout=_SILENCE))
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if cuda else "gloo",
            timeout=_SILENCE,
            # The store may outlive a killed attempt, whose addresses must not be found in it.
            store=PrefixStore(f"attempt-{parallel.attempt}", store),
            rank=rank,
            world_size=world,
        )
        yield replace(parallel, patient=dist.new_group(backend="gloo", timeout=_PATIENCE))
    except RuntimeError as error:
        if not (isinstance(error, dist.DistError) or "gloo" in str(error)):
            raise
        raise ParallelError(
            f"process {parallel.rank + 1} of {parallel.world} lost the others, one of which has ended or does not "
            "answer; look for its own message, and go on with --resume."
        ) from error
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


class _Cast(nn.Module):
    """A step computed with bfloat16 copies of its float32 parameters; their gradients arrive in float32."""

    def __init__(self, step: nn.Module) -> None:
        super().__init__()
        self.step = step

    def forward(self, x: object) -> object:
        casts = {p: p.bfloat16() for p in self.step.parameters()}
        # Each module once, though it be shared: functional_call would not put back what it finds in two places.
        copies = {
            f"{module}.{name}": casts[p]
            for module, held in self.step.named_modules()
            for name, p in held.named_parameters(recurse=False)
        }
        return functional_call(self.step, copies, (x,), tie_weights=False)


def whole(tensor: Tensor) -> Tensor:
    """A tensor of which every process holds a part, put together; all must ask. Any other tensor is itself."""
    gather = getattr(tensor, "full_tensor", None)
    return tensor if gather is None else gather()


def like(full: Tensor, tensor: Tensor) -> Tensor:
    """A whole tensor as `tensor` is held: on its device, and this process's part of it where that is sharded."""
    mesh = getattr(tensor, "device_mesh", None)
    if mesh is None:
        return full.to(tensor.device)
    from torch.distributed.tensor import distribute_tensor

    held: Any = tensor
    return distribute_tensor(full.to(tensor.device), mesh, held.placements, src_data_rank=None)
