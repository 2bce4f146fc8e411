"""What a run will need, before it begins: parameters, tokens, memory, model FLOPs, disk and time.

Sizes: S source and T target tokens of a pair, ends counted.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

from regard.data.batches import Batch
from regard.data.store import Progress, pairs_of
from regard.errors import ModelError
from regard.models.blocks import device_named, is_out_of_memory, new_model
from regard.recipe import Recipe
from regard.tasks.costs import Costs, count_costs, fitting_tokens, free_memory, training_memory
from regard.tasks.fit import batches_of, trainer_of
from regard.tasks.prepare import Prepared, check_lines, check_named, given_by, longest_of, prepare, prepare_for
from regard.text import write_lines
from regard.text.lines import Pair
from regard.train import OPTIMIZERS, Event, Options, resolve_precision
from regard.train.regularizers import REGULARIZERS

_BATCHES = 200  # that stand for an epoch's
_SAMPLE = 20_000  # pairs that stand for the corpus where it is not prepared
_LAUNCHING = 0.033  # seconds that a GPU takes for a batch at least: none was measured with less, see docs/gpu.md
_SECONDS = 4.0  # of training that is timed
_FIRST_TOKENS = 512  # of the batch that tells how large a batch takes about two seconds


@dataclass(frozen=True)
class Gpu:
    """A GPU as its maker describes it."""

    name: str
    teraflops: float  # peak of dense products in bfloat16 (without it, float16), summed in float32; 10^12 a second
    gigabytes: int
    utilisation: float  # share of the peak that training is assumed to reach; measured on an H100 and an H200 alone
    note: str = ""


# NVIDIA's data sheets: T4 (2019), V100 (2020), A100 (2021), L4, L40S, H100 SXM (2023), H200 SXM (2024); for RTX 4090
# its white paper on Ada (2023). Figures "with sparsity" are halved.
GPUS = (
    Gpu("T4", 65, 16, 0.25, "no bfloat16: float16 assumed"),
    Gpu("V100", 125, 32, 0.25, "no bfloat16: float16 assumed"),
    Gpu("L4", 121, 24, 0.3),
    Gpu("RTX 4090", 165.2, 24, 0.3),
    Gpu("A100 40 GB", 312, 40, 0.3),
    Gpu("A100 80 GB", 312, 80, 0.3),
    Gpu("L40S", 362, 48, 0.25),
    Gpu("H100 SXM", 989.4, 80, 0.25, "measured with the paper's base model"),
    Gpu("H200 SXM", 989.4, 141, 0.27, "measured with the paper's base model"),
)


@dataclass(frozen=True)
class Measured:
    """What a few seconds of training showed on this machine."""

    device: str
    precision: str
    batch_tokens: int
    tokens_per_second: float  # target tokens
    flops_per_second: float  # model FLOPs
    seconds: float  # of the whole run at that rate, without validation, saving and scoring


@dataclass(frozen=True)
class OnGpu(Gpu):
    """An estimate for a GPU, from its data sheet."""

    fits: bool = False
    seconds: float = 0.0


@dataclass(frozen=True)
class Plan:
    """A run, foreseen."""

    parts: dict[str, int]  # parameters by the model's parts; a shared matrix counts for the first that has it
    tokens: tuple[int, int]  # of the source's and the target's vocabulary
    exact: bool  # pairs and tokens were counted in the prepared store; else a sample of the raw files stands for them
    pairs: int
    source_tokens: int  # an epoch's, ends counted, like those of the target
    target_tokens: int
    longest: int
    device: str
    batch_tokens: int
    chosen: bool  # whether `batch_tokens` is what fits on `device`, the recipe having left it open
    batches: int  # an epoch's, about: the order of each epoch cuts a little differently
    updates: int
    epochs: float
    flops_per_token: float  # model FLOPs of training for a target token; its share of the source's included
    flops: float
    memory: dict[str, dict[str, int]]  # bytes of each thing that stands in memory, on "cpu" and on "cuda"
    free: int  # bytes of memory that are free on `device`
    disk: dict[str, int]
    disk_free: int
    measured: Measured | None
    gpus: tuple[OnGpu, ...]
    notes: tuple[str, ...]

    @property
    def parameters(self) -> int:
        return sum(self.parts.values())

    @property
    def fits(self) -> bool:
        """Whether the run fits into what is free on `device`."""
        return sum(self.memory[torch.device(self.device).type].values()) <= self.free

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "parameters": self.parameters, "fits": self.fits}


def plan(recipe: Recipe, out: str | Path, *, measure: bool = True, progress: Progress | None = None) -> Plan:
    """Foresee the run of a recipe into the directory `out`; nothing is prepared there and nothing is trained.

    With `measure` the model trains for a few seconds, from random weights that are then forgotten. Raises TextError or
    DataError for text that cannot be used, ModelError for a model that cannot be built or an unknown device.
    """
    out, device = Path(out), device_named(recipe.train.device)
    with TemporaryDirectory(prefix="regard-plan-") as folder:
        corpus = _survey(recipe, out, Path(folder), progress)
        bfloat16 = resolve_precision(recipe.train.precision, device, recipe.model.width)
        again = recipe.train.checkpoint_activations
        here = count_costs(recipe.model, *corpus.tokens, bfloat16=bfloat16, objective=recipe.objective, again=again)
        made = _foreseen(recipe, corpus, here, device, out)
        if not measure:
            return made
        try:
            # A run that does not fit here is still timed, on batches that do.
            most = made.batch_tokens
            if not made.fits:
                most = fitting_tokens(here, recipe.train, device.type, free=made.free, longest=made.longest)
            rate, size = _rate(recipe, corpus, device, most, Path(folder))
        except ModelError as error:
            return replace(made, notes=(*made.notes, f"no time was measured: {error}"))
    precision, seconds = "bfloat16" if bfloat16 else "float32", made.flops / made.flops_per_token / rate
    return replace(made, measured=Measured(str(device), precision, size, rate, rate * made.flops_per_token, seconds))


def _foreseen(recipe: Recipe, corpus: Survey, here: Costs, device: torch.device, out: Path) -> Plan:
    """What can be said without training; `here` are the costs on this device."""
    train, on_gpu = recipe.train, here
    if here.bfloat16 != (train.precision != "float32"):
        how: dict[str, Any] = {"objective": recipe.objective, "again": train.checkpoint_activations}
        on_gpu = count_costs(recipe.model, *corpus.tokens, bfloat16=not here.bfloat16, **how)
    tokens, free = recipe.data.batch_tokens, free_memory(device)
    longest = recipe.data.context or corpus.held.train.longest
    if chosen := tokens == 0:
        tokens = fitting_tokens(here, train, device.type, free=free, longest=longest)
    batches = list(islice(batches_of(recipe, corpus.held, tokens), _BATCHES))
    written = sum(batch.target_tokens for batch in batches)
    per_token = _passes(recipe) * sum(_flops(here, batch) for batch in batches) / written
    rows = -(-corpus.target_tokens // recipe.data.context) if recipe.data.context else corpus.pairs
    an_epoch = max(1, round(rows * len(batches) / sum(map(len, batches))))
    updates = min(train.max_updates, -(-train.epochs * an_epoch // train.accumulate) or train.max_updates)
    read = updates * train.accumulate  # batches of the whole run
    per_batch = written / len(batches)
    memory = {
        kind: training_memory(costs, train, kind, tokens=tokens, longest=longest)
        for kind, costs in (("cpu", here), ("cuda", on_gpu))
    }
    memory["cpu"]["lengths of the lines"] = 16 * corpus.pairs
    need = sum(memory["cuda"].values())
    return Plan(
        parts=here.parts,
        tokens=corpus.tokens,
        exact=corpus.exact,
        pairs=corpus.pairs,
        source_tokens=corpus.source_tokens,
        target_tokens=corpus.target_tokens,
        longest=longest,
        device=str(device),
        batch_tokens=tokens,
        chosen=chosen,
        batches=an_epoch,
        updates=updates,
        epochs=read / an_epoch,
        flops_per_token=per_token,
        flops=per_token * read * per_batch,
        memory=memory,
        free=free,
        disk=_disk(recipe, here.parameters, corpus),
        disk_free=shutil.disk_usage(next(p for p in (out, *out.absolute().parents) if p.exists())).free,
        measured=None,
        gpus=tuple(_on_gpu(gpu, per_token * per_batch, read, need) for gpu in GPUS),
        notes=tuple(_notes(recipe, corpus)),
    )


def _passes(recipe: Recipe) -> int:
    """How often each batch is computed: twice where a regulariser compares two dropouts."""
    asked = (REGULARIZERS.get(name) for name, strength in recipe.train.regularizers.items() if strength)
    return 2 if any(one is not None and one.agree is not None for one in asked) else 1


def _flops(costs: Costs, batch: Batch) -> float:
    """Model FLOPs of a batch, padding not counted."""
    return costs.flops.fixed + float(costs.flops.of(batch.source_lengths, batch.target_lengths).sum())


def _disk(recipe: Recipe, parameters: int, corpus: Survey) -> dict[str, int]:
    """Bytes on disk when the run has ended; one more checkpoint stands while one is saved."""
    weights, train = 4 * parameters, recipe.train
    copies = 1 + OPTIMIZERS[train.optimizer].state + (train.average == "ema") + (train.accumulate > 1)
    return {
        "store": corpus.bytes,
        "checkpoints": round(weights * copies) * (train.keep_checkpoints + 1),
        "snapshots": weights * train.average_last if train.average == "last" else 0,
        "best weights": weights if train.keep == "best" else 0,
        "bundle": weights,
    }


def _on_gpu(gpu: Gpu, flops: float, batches: int, need: int) -> OnGpu:
    """flops: of a batch; need: bytes of memory."""
    seconds = batches * max(_LAUNCHING, flops / (gpu.teraflops * 1e12 * gpu.utilisation))
    return OnGpu(**vars(gpu), fits=need <= gpu.gigabytes * 10**9, seconds=seconds)


def _notes(recipe: Recipe, corpus: Survey) -> Iterator[str]:
    if not corpus.exact:
        yield (
            f"pairs and tokens are estimated from {len(corpus.held.train) + len(corpus.held.valid):,} pairs of "
            "the raw files; `regard prepare` on this recipe makes them exact"
        )
    if recipe.train.minutes:
        yield f"training stops after {recipe.train.minutes:g} minutes, whatever updates are left"
    if recipe.train.patience:
        yield f"training may stop before its last update: patience is {recipe.train.patience}"


class _Enough(Exception):  # noqa: N818  (it is no error)
    """Training has shown what it was to show."""


def _rate(recipe: Recipe, corpus: Survey, device: torch.device, tokens: int, folder: Path) -> tuple[float, int]:
    """Target tokens a second, and the tokens of the batches that showed it: the recipe's, or fewer if they are slow."""
    with torch.random.fork_rng():
        model = new_model(recipe.model, *corpus.tokens).to(device)
        first = min(tokens, _FIRST_TOKENS)
        rate = _trained(recipe, corpus, model, first, 0.0, folder)
        size = max(first, min(tokens, int(rate * 2)))
        return _trained(recipe, corpus, model, size, _SECONDS, folder), size


def _trained(recipe: Recipe, corpus: Survey, model: nn.Module, tokens: int, seconds: float, folder: Path) -> float:
    """Train for at least two updates and about `seconds` after the first, which is slow; target tokens a second."""
    began: list[tuple[float, int]] = []

    def listen(event: Event) -> None:
        if event["event"] != "train":
            return
        began.append((time.perf_counter(), event["tokens"]))
        if len(began) > 2 and began[-1][0] - began[0][0] >= seconds:
            raise _Enough

    # So many updates that nothing else than training happens before it is enough.
    never: dict[str, float] = {"max_updates": 10**9, "save_every": 10**9, "average_every": 10**9}
    never |= {"minutes": 0.0, "epochs": 0, "patience": 0, "accumulate": 1, "log_every": 1}
    changed = recipe.model_copy(update={"train": recipe.train.model_copy(update=never)})
    try:
        trainer_of(changed, corpus.held, model, folder, Options(report=listen), tokens).run()
    except _Enough:
        pass
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise ModelError(
            f"a batch of {tokens:,} tokens does not fit in memory here; set data.batch_tokens lower, or 0 for as many "
            "as fit."
        ) from None
    return (began[-1][1] - began[0][1]) / (began[-1][0] - began[0][0])


@dataclass(frozen=True)
class Survey:
    """What a corpus holds; token counts are an epoch's, ends counted."""

    held: Prepared  # the store, or that of the sample
    tokens: tuple[int, int]  # of the source's and the target's vocabulary
    pairs: int
    source_tokens: int
    target_tokens: int
    bytes: int  # of the store
    exact: bool  # whether all of it was counted; else these are estimates from the sample


def _survey(recipe: Recipe, out: Path, folder: Path, progress: Progress | None) -> Survey:
    """What the corpus of a run into `out` holds; a sample, where one is needed, is prepared in `folder`."""
    check_named(recipe)
    held = _found(recipe, out)
    if held is None:
        return _of_sample(recipe, folder, progress)
    train = held.train
    return Survey(
        held,
        held.vocabularies,
        len(train),
        int(train.source.lengths.sum()) + len(train),
        int(train.target.lengths.sum()) + len(train),
        _size(train.path.parent),
        exact=True,
    )


def _of_sample(recipe: Recipe, folder: Path, progress: Progress | None) -> Survey:
    pairs, sample = _sampled(pairs_of(recipe.data), progress)
    files = [folder / "sample.source", folder / "sample.target"]
    for side, file in enumerate(files):
        write_lines(file, (pair[side] for pair in sample))
    names = {"text": str(files[1])} if recipe.data.texts else {"source": str(files[0]), "target": str(files[1])}
    none = dict.fromkeys(("valid_source", "valid_target", "valid_text", "cache"))
    sampled = recipe.corpus.model_copy(update={**names, **none, "labels": "", "valid_lines": max(1, len(sample) // 10)})
    text = recipe.spelling.model_copy(update={"shrink": True})
    held = prepare(sampled, text, folder, given=given_by(recipe), progress=progress)
    for store in (held.train, held.valid):
        check_lines(store, recipe.corpus, longest_of(recipe), valid=False)
    # What the subwords were not learnt from tells how many tokens a line has: what they were learnt from has fewer.
    unseen, share = held.valid, pairs / len(sample)
    kept = pairs * held.report.kept / held.report.read
    if not recipe.data.valid_files:
        kept -= min(recipe.data.valid_lines, pairs / 10)
    whole = recipe.text.shrink and pairs <= _SAMPLE
    kinds = recipe.text.kind, recipe.text.target_kind or recipe.text.kind
    source, target = (
        size if whole or kind in ("characters", "words") else recipe.text.size
        for size, kind in zip(held.vocabularies, kinds, strict=True)
    )
    return Survey(
        held,
        (source, target),
        round(kept),
        round(kept * (float(unseen.source.lengths.mean()) + 1)),
        round(kept * (float(unseen.target.lengths.mean()) + 1)),
        round(_size(held.train.path.parent) * share),
        exact=False,
    )


class _NotThere(Exception):  # noqa: N818  (it is no error)
    """Something would have to be prepared."""


def _found(recipe: Recipe, out: Path) -> Prepared | None:
    """What `prepare` left for exactly these files and settings, or None."""
    if not Path(recipe.data.cache or out / "prepared" / "train").is_dir():
        return None

    def stop(what: str, number: int) -> None:
        # `prepare` tells of its progress only when it makes something, and keeps nothing that is cut off.
        raise _NotThere

    try:
        return prepare_for(recipe, out, stop)
    except _NotThere:
        return None


def _sampled(pairs: Iterator[Pair], progress: Progress | None) -> tuple[int, list[Pair]]:
    """How many pairs there are, and up to `_SAMPLE` of them, each with the same chance."""
    chance = random.Random(0)
    kept: list[Pair] = []
    count = 0
    for count, pair in enumerate(pairs, start=1):
        if len(kept) < _SAMPLE:
            kept.append(pair)
        elif (index := chance.randrange(count)) < _SAMPLE:
            kept[index] = pair
        if progress is not None and count % 10_000 == 0:
            progress("pairs read", count)
    return count, kept


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
