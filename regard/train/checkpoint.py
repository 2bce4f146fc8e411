"""What a run leaves on disk: how far it is, its journal, checkpoints to go on from exactly, averages of its weights.

A checkpoint is a directory: `tensors.safetensors`, and `state.json` with the SHA-256 of the tensors and of itself. It
is written under another name, forced to disk, and renamed, so that a crash at any moment leaves the last whole one; a
directory without a valid `state.json` is never taken for one.

Where weights are sharded each process writes a file of its own, with its rows of every tensor; end to end, in the order
of their names, they are the whole tensors, whatever number of processes reads them. (PyTorch's own distributed
checkpoints pickle: their metadata on disk, or, in the safetensors format, the plans that the processes exchange.)
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from regard.errors import CheckpointError, ParallelError, TrainingError
from regard.machine import atomic_rename, digest, sync, write_atomically
from regard.settings import TrainConfig

from .parallel import Parallel, like
from .step import Named, State

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

_VERSION = 3

Event = dict[str, Any]  # what happened, by the name under "event", in plain values
Report = Callable[[Event], None]  # hears of events


@dataclass
class Plateau:
    """A scale of the learning rate, multiplied by `factor` when `patience` validations in a row bring no gain."""

    factor: float = 0.5
    patience: int = 3
    scale: float = 1.0
    waited: int = 0  # validations without gain since the last gain, or since the scale was last lowered

    def validated(self, improved: bool) -> None:
        """Count one validation."""
        self.waited = 0 if improved else self.waited + 1
        if self.waited > self.patience:
            self.scale *= self.factor
            self.waited = 0


@dataclass
class Progress:
    """How far a run is: plain values that every checkpoint holds."""

    update: int = 0  # updates done
    microstep: int = 0  # batches done
    pending: int = 0  # target tokens whose gradients wait for the next update
    pending_loss: float = 0.0
    tokens: int = 0  # target tokens seen, padding not counted
    window: dict[str, float] = field(default_factory=lambda: {"loss": 0.0, "tokens": 0.0, "seconds": 0.0})
    """What was summed since the last "train" event."""
    best: Event = field(default_factory=lambda: {"value": None, "update": 0, "scores": {}})
    """The best validation so far; of the value that is judged by, higher is better."""
    waited: int = 0  # validations since the best one
    plateau: Plateau = field(default_factory=Plateau)
    seconds: float = 0.0  # spent training, validation included, over all resumptions
    trained: float = 0.0  # of these, what went into batches and updates; with several processes, the mean of theirs
    cuts: int = 0  # batches cut in two because they did not fit in memory

    @classmethod
    def restored(cls, values: Event) -> Progress:
        """As it was when `asdict` made these values of it."""
        return cls(**{**values, "plateau": Plateau(**values["plateau"])})


class Averaging:
    """Which weights a run ends with, as `train.average` and `train.keep` say; snapshots lie in its directory."""

    def __init__(self, config: TrainConfig, directory: Path, parameters: Mapping[str, nn.Parameter]) -> None:
        self.config, self.snapshots, self.best = config, directory / "snapshots", directory / "best.safetensors"
        moving = config.average == "ema"
        self.ema: dict[str, Tensor] = {n: p.detach().clone() for n, p in parameters.items()} if moving else {}

    def follow(self, parameters: Mapping[str, nn.Parameter], update: int) -> None:
        """Move the average towards the parameters after an update."""
        # Early on the average must not remember the random start.
        decay = min(self.config.ema_decay, (1 + update) / (10 + update))
        torch._foreach_lerp_(list(self.ema.values()), [p.detach() for p in parameters.values()], 1.0 - decay)

    def snapshot(self, weights: dict[str, Tensor], update: int) -> None:
        """Keep these weights, and of all that were kept the last `average_last`."""
        self.snapshots.mkdir(parents=True, exist_ok=True)
        write_durably(self.snapshots / f"update-{update:09d}.safetensors", weights)
        for old in sorted(self.snapshots.glob("*.safetensors"))[: -self.config.average_last]:
            old.unlink()

    def final(self, trained: dict[str, Tensor]) -> dict[str, Tensor]:
        """The weights that the bundle gets; `trained` are the moving average, or without one those trained last."""
        if self.config.keep == "best" and self.best.exists():
            return load_file(self.best)
        snapshots = sorted(self.snapshots.glob("*.safetensors"))
        if self.config.average == "last" and snapshots:
            held = [load_file(path) for path in snapshots]
            return {n: torch.stack([h[n] for h in held]).double().mean(0).to(held[0][n]) for n in held[0]}
        return trained


class Journal:
    """Writes every event of training to `log.jsonl` and to TensorBoard's files, then passes it on."""

    def __init__(self, out: Path, report: Report) -> None:
        self.out, self.report = out, report
        self.curves: SummaryWriter | None = None

    def open(self, update: int) -> None:
        """Begin after `update`: what a run that was killed wrote beyond its checkpoint is dropped and written again."""
        path = self.out / "log.jsonl"
        kept = []
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() and update else ():
            with suppress(ValueError):  # the line that was being written when the run was killed
                if json.loads(line)["update"] <= update:
                    kept.append(line + "\n")
        write_atomically(path, "".join(kept))
        with suppress(ImportError):
            from torch.utils.tensorboard import SummaryWriter

            self.curves = SummaryWriter(str(self.out / "curves"), purge_step=update + 1)

    def __call__(self, event: Event) -> None:
        """Write and pass on one event; those of no update are only passed on."""
        if "update" in event:
            with (self.out / "log.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps({k: None if v != v else v for k, v in event.items()}) + "\n")
            for key, value in event.items():
                if self.curves is not None and isinstance(value, float) and value == value:
                    self.curves.add_scalar(f"{event['event']}/{key}", value, event["update"])
        self.report(event)

    def close(self) -> None:
        """Close TensorBoard's files."""
        if self.curves is not None:
            with suppress(OSError):  # every value is in log.jsonl too
                self.curves.close()


@dataclass(frozen=True)
class Checkpoint:
    """Tensors by name, and the plain values that go with them."""

    tensors: Mapping[str, Tensor]
    state: Event
    path: Path | None = None  # where it was read


def _write(path: Path, tensors: Mapping[str, Tensor]) -> None:
    save_file({k: v.detach().contiguous() for k, v in tensors.items()}, path)


def write_durably(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write a safetensors file under another name, force it to disk and rename it; refuses what is not finite."""
    _check_finite(path, tensors, Parallel())
    part = path.with_name(path.name + ".part")
    try:
        _write(part, tensors)
        atomic_rename(part, path)
    except (OSError, SafetensorError) as error:
        part.unlink(missing_ok=True)
        raise _not_saved(path, error) from error


def _not_saved(path: Path, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"{path}: could not be saved ({error}); the checkpoints before it are whole. Free some space and go on with "
        "--resume"
    )


def _check_finite(path: Path, tensors: Mapping[str, Tensor], parallel: Parallel) -> None:
    """Raises TrainingError, in every process, for tensors that are not finite in one of them."""
    wrong = next((n for n, t in tensors.items() if t.is_floating_point() and not bool(t.isfinite().all())), None)
    if any(parallel.sum(wrong is not None)):
        raise TrainingError(
            f"{path}: is not saved, since {wrong or 'a tensor of another process'} holds numbers that are not finite: "
            "training has diverged. Begin again with a lower train.learning_rate, a longer train.warmup or "
            "train.clip = 1.0; what was saved before is whole."
        )


def save(directory: Path, name: str, checkpoint: Checkpoint, keep: int, parallel: Parallel | None = None) -> Path:
    """Save under `directory/name`, then remove all but the newest `keep`; on failure the old ones are untouched.

    All processes of a run must call it; the first one writes, or each its shards.
    """
    parallel = parallel or Parallel()
    directory.mkdir(parents=True, exist_ok=True)
    part, path = directory / f"{name}.part", directory / name
    tensors = _own(checkpoint.tensors, parallel) if parallel.sharded else checkpoint.tensors
    _check_finite(path, tensors, parallel)
    files, written = ["tensors.safetensors"], ""
    if parallel.sharded:
        files = [f"tensors-{i + 1:05d}-of-{parallel.world:05d}.safetensors" for i in range(parallel.world)]
    try:
        if parallel.main:
            for left in directory.glob("*.part"):  # what a crash left behind
                shutil.rmtree(left, ignore_errors=True)
            part.mkdir()
        parallel.barrier()
        if parallel.main or parallel.sharded:
            file = part / files[parallel.rank]
            _write(file, tensors)
            sync(file)
            written = digest(file)
        digests = parallel.digests(written) if parallel.sharded else [written]
        if parallel.main:
            held = {"version": _VERSION, "sha256": dict(zip(files, digests, strict=True)), "state": checkpoint.state}
            state = {**held, "own_sha256": _digest_of(held)}
            (part / "state.json").write_text(json.dumps(state, indent=1), encoding="utf-8")
            sync(part / "state.json")
            sync(part)
            if path.exists():
                shutil.rmtree(path)
            part.rename(path)
            sync(directory)
    except (OSError, SafetensorError) as error:
        if parallel.main:
            shutil.rmtree(part, ignore_errors=True)
        raise _not_saved(path, error) from error
    if parallel.main:
        for old in _all(directory)[:-keep]:
            shutil.rmtree(old, ignore_errors=True)
    parallel.barrier()
    return path


def _digest_of(held: Event) -> str:
    """SHA-256 of plain values, however they were spaced when they were written."""
    return hashlib.sha256(json.dumps(held, sort_keys=True).encode()).hexdigest()


def _own(tensors: Mapping[str, Tensor], parallel: Parallel) -> dict[str, Tensor]:
    """What this process writes: its rows of sharded tensors; what every process holds alike, the first one writes."""
    found = {}
    for name, tensor in tensors.items():
        local: Any = getattr(tensor, "to_local", None)
        if local is not None and len(rows := local()):
            found[name] = rows
        elif local is None and parallel.main:
            found[name] = tensor
    return found


def _all(directory: Path) -> list[Path]:
    """Finished checkpoints, oldest first; names sort by number."""
    return sorted(p for p in directory.glob("update-*") if not p.name.endswith(".part"))


class _Whole(Mapping[str, Tensor]):
    """The tensors of one or more files, read when asked for; rows that lie in several files are put end to end."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._files: dict[str, list[Any]] = {}
        for path in paths:
            file: Any = safe_open(path, "pt")
            for name in file.keys():  # noqa: SIM118  (it is no dict)
                self._files.setdefault(name, []).append(file)

    def __getitem__(self, name: str) -> Tensor:
        rows = [file.get_tensor(name) for file in self._files[name]]
        return rows[0] if len(rows) == 1 else torch.cat(rows)

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def load(path: Path) -> Checkpoint:
    """Read a checkpoint back, its tensors whole; damage is an error that names the file."""
    try:
        held = json.loads((path / "state.json").read_text(encoding="utf-8"))
        if held["version"] != _VERSION:
            raise CheckpointError(f"{path}: checkpoint version {held['version']}, this Regard reads {_VERSION}")
        own = held.pop("own_sha256")
        files = {path / name: known for name, known in held["sha256"].items()}
        wrong = None if own == _digest_of(held) else path / "state.json"
        if wrong := wrong or next((file for file, known in files.items() if digest(file) != known), None):
            raise CheckpointError(
                f"{wrong}: not the file that was saved (its SHA-256 differs); remove {path} to resume from the one "
                "before"
            )
        return Checkpoint(_Whole(sorted(files)), held["state"], path)
    except (OSError, ValueError, KeyError, AttributeError, SafetensorError) as error:
        raise CheckpointError(
            f"{path}: damaged checkpoint ({error}); remove it to resume from the one before"
        ) from error


def newest_whole(directory: Path, parallel: Parallel, report: Report) -> Checkpoint | None:
    """The newest checkpoint that is whole; None where there is none at all. All processes of a run must ask.

    Newer ones that are damaged are renamed and reported. Raises CheckpointError where no other one is left.
    """
    paths = _all(directory)
    newest = 1 + int(paths[-1].name.rpartition("-")[2]) if paths else 0
    if parallel.sum(newest) != [newest * parallel.world]:
        raise ParallelError(
            f"{directory}: not every process sees the same newest checkpoint; "
            "keep the run's directory on a file system that all machines share."
        )
    while paths:
        path = paths.pop()
        try:
            return load(path)
        except CheckpointError as error:
            parallel.barrier()  # nobody reads it any more
            if not paths:
                raise
            report({"event": "damaged", "checkpoint": str(path), "why": str(error), "instead": str(paths[-1])})
            if parallel.main:
                aside = path.with_name(f"damaged-{path.name}")
                shutil.rmtree(aside, ignore_errors=True)
                path.rename(aside)
    return None


# -- what optimisers keep ----------------------------------------------------------------------------------------------

_PREFIX = "optimizer."


def state_of(
    optimizers: Sequence[torch.optim.Optimizer], parameters: Named
) -> tuple[dict[str, Tensor], dict[str, State]]:
    """What optimisers keep: tensors as "optimizer.key.parameter", and each parameter's values that are no tensors."""
    tensors: dict[str, Tensor] = {}
    values: dict[str, State] = {}
    for optimizer in optimizers:
        for name, parameter in parameters.items():
            for key, value in optimizer.state.get(parameter, {}).items():
                if isinstance(value, Tensor):
                    tensors[f"{_PREFIX}{key}.{name}"] = value
                else:
                    values.setdefault(name, {})[key] = value
    return tensors, values


def restore_state(
    optimizers: Sequence[torch.optim.Optimizer],
    parameters: Named,
    tensors: Mapping[str, Tensor],
    values: Mapping[str, State],
) -> None:
    """Give optimisers back what `state_of` took from them; other tensors of a checkpoint are left alone."""
    names = {parameter: name for name, parameter in parameters.items()}
    titles: dict[str, dict[str, str]] = {name: {} for name in values}
    for title in tensors:
        if title.startswith(_PREFIX):
            key, _, name = title.removeprefix(_PREFIX).partition(".")
            titles.setdefault(name, {})[key] = title
    for optimizer, group in ((o, g) for o in optimizers for g in o.param_groups):
        for parameter in group["params"]:
            if (name := names[parameter]) in titles:
                state = {k: _like(tensors[title], k, parameter, group) for k, title in titles[name].items()}
                optimizer.state[parameter] = {**values.get(name, {}), **state}


def _like(value: Tensor, key: str, parameter: nn.Parameter, group: State) -> Tensor:
    """Where an optimiser keeps this tensor: one of the parameter's shape lies as the parameter does."""
    if value.shape == parameter.shape:
        return like(value, parameter)
    # PyTorch keeps the count of steps on the CPU, except where one kernel does all of an update.
    on_cpu = key == "step" and not (group.get("fused") or group.get("capturable"))
    return value if on_cpu else value.to(parameter.device)
