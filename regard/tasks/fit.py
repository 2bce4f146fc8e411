"""A recipe in, a bundle out: text is prepared, a model trained, its weights bundled with everything needed to use them.

What a run leaves in its directory: `recipe.toml`, `prepared/`, `checkpoints/`, `log.jsonl`, `curves/` (TensorBoard),
`bundle/`, `hypotheses/` (what it wrote for each set that it was scored on) and `results.json`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard import bundle as bundles
from regard import recipe as recipes
from regard.data.batches import Batches
from regard.data.corpus import Texts
from regard.data.store import Stream
from regard.errors import CheckpointError, ModelError, RecipeError, TrainingError
from regard.kernels import native
from regard.machine import locked, stopping, write_atomically
from regard.models import FAMILIES
from regard.models.blocks import device_named, new_model, parameter_count, resolve_precision
from regard.nn import layers
from regard.nn.attention import multihead
from regard.recipe import Recipe
from regard.text import END
from regard.train import OBJECTIVES, OPTIMIZERS, Callback, Counts, Event, Objective, Optimizer, Options, Report, Trainer
from regard.train.checkpoint import Journal
from regard.train.parallel import Parallel, joined

from .costs import count_costs, fitting_tokens, free_memory
from .finish import finish, validate
from .prepare import Prepared, check_named, check_shortest, copies, prepare_for, with_corpus


def fit(
    recipe: Recipe | str | Path,
    out: str | Path,
    *,
    corpus: Texts | None = None,
    model: nn.Module | None = None,
    objective: str | Objective | None = None,
    optimizer: str | Optimizer | None = None,
    callbacks: Sequence[Callback | Report] = (),
    resume: bool = False,
) -> Path:
    """Train what the recipe says into the directory `out`; returns the path of the bundle.

    recipe: a value, or the path of a TOML file. corpus: what is learnt from, where the recipe names no files; anything
    that `regard.data.Corpus` takes. model: one of the recipe's sizes, with weights to begin with. objective, optimizer:
    names or entries, in place of the recipe's; an entry that no table has is added to it. callbacks: `Callback`
    objects, and functions that hear every event as a dict: "prepare", "batch", "start", "train", "validate", "bundle",
    "score" and others. resume: the newest checkpoint is taken up, if any; objects must be handed in again.

    Raises Interrupted after Ctrl-C or SIGTERM, its checkpoint saved, and a RegardError for what the user can mend.
    Started by torchrun, this is one process of the run; only the first one reports.
    """
    recipe = recipe if isinstance(recipe, Recipe) else recipes.load(recipe)
    changes = {"objective": _named(OBJECTIVES, objective), "optimizer": _named(OPTIMIZERS, optimizer)}
    named = {key: name for key, name in changes.items() if name is not None}
    recipe = recipes.changed(recipe, {"train": named}, name="the recipe")
    parallel = Parallel.started(recipe.train.parallel)
    device = parallel.device(device_named(recipe.train.device))
    listeners = [each for each in callbacks if not isinstance(each, Callback)] if parallel.main else []

    def report(event: Event) -> None:
        for listener in listeners:
            listener(event)

    run = _Run(Path(out), resume, device, report, [each for each in callbacks if isinstance(each, Callback)])
    with joined(parallel, device) as parallel, _locked(run.out, parallel):
        return _fit(run, recipe, parallel, corpus, model)


def is_main_process() -> bool:
    """Whether this process is the one of its run that reports: the first, or the only one."""
    return Parallel.started().main


def _named(table: dict[str, Any], given: Any) -> str | None:
    """The name of an entry in a table; one that the table has not is added to it."""
    if given is None or isinstance(given, str):
        return given
    name = next((name for name, entry in table.items() if entry is given), "handed-in")
    table[name] = given
    return name


@dataclass(frozen=True)
class _Run:
    """Where and how a run is made."""

    out: Path
    resume: bool
    device: torch.device
    report: Report
    callbacks: Sequence[Callback]


@contextmanager
def _locked(out: Path, parallel: Parallel) -> Iterator[None]:
    """While inside, no other run trains in the directory; raises TrainingError where one does."""
    if not parallel.main:
        yield
        return
    out.mkdir(parents=True, exist_ok=True)
    try:
        with locked(out / ".lock") as free:
            if not free:
                raise TrainingError(
                    f"{out}: another process is training in this directory; wait until it has ended or stop it, or "
                    "choose another --out."
                )
            yield
    finally:
        with suppress(OSError):  # a run that was refused leaves nothing
            out.rmdir()


def _fit(run: _Run, recipe: Recipe, parallel: Parallel, corpus: Texts | None, given: nn.Module | None) -> Path:
    if parallel.main:
        recipe, prepared = _begin(recipe, run, corpus)
    parallel.barrier()
    if not parallel.main:  # what the first process chose and made
        recipe = recipes.load(run.out / "recipe.toml")
        prepared = prepare_for(recipe, run.out)
    journal = Journal(run.out, run.report)
    options = Options(
        validate=partial(validate, prepared=prepared, recipe=recipe, device=run.device),
        report=journal if parallel.main else lambda event: None,
        callbacks=run.callbacks,
        parallel=parallel,
    )
    trainer = trainer_of(recipe, prepared, _model(recipe, prepared, run, given), run.out, options)
    taken_up = trainer.resume() if run.resume else None
    if parallel.main:
        if taken_up is None:  # what a run cut off before its first checkpoint left must not be averaged into this one's
            shutil.rmtree(run.out / "snapshots", ignore_errors=True)
            (run.out / "best.safetensors").unlink(missing_ok=True)
        journal.open(trainer.progress.update)
    _report_start(run.report, recipe, prepared, trainer, taken_up)
    try:
        with stopping(partial(_ask_to_stop, trainer)):
            trainer.run()
    except OSError as error:  # a full disk shows in the log as well as in a save
        raise CheckpointError(
            f"{error.filename or run.out}: could not be written ({error.strerror or error}), so training stopped; "
            "the checkpoints are whole. Free some space and go on with --resume"
        ) from error
    finally:
        journal.close()
    weights = trainer.final_weights()
    if parallel.main:
        finish(recipe, run.out, prepared, trainer, weights, run.report)
    parallel.barrier()
    return run.out / "bundle"


def _model(recipe: Recipe, prepared: Prepared, run: _Run, given: nn.Module | None) -> nn.Module:
    """The recipe's model with the weights to begin with; raises ModelError for a given one of other sizes."""
    torch.manual_seed(recipe.seed)
    train, here = recipe.train, run.device.type == "cpu" and recipe.train.parallel != "fsdp"
    held = 1 + sum(copies(train).values()) if here else 1
    model = new_model(recipe.model, prepared.source_tokenizer, prepared.target_tokenizer, held)
    if given is not None:
        sizes = [{name: tuple(p.shape) for name, p in each.named_parameters()} for each in (model, given)]
        if sizes[0] != sizes[1]:
            wrong = sorted(dict(sizes[0].items() ^ sizes[1].items()))
            raise ModelError(
                f"the model handed in is not of the recipe's [model]: {', '.join(wrong[:3])} differ or are missing; "
                "give [model] its family and sizes, or add its page to regard.models.FAMILIES."
            )
        model = given
    model = model.to(run.device)
    if train.start_from:
        run.report({"event": "begin", "bundle": train.start_from, "new": begin_with(model, train.start_from)})
    return model


def trainer_of(
    recipe: Recipe, prepared: Prepared, model: nn.Module, out: Path, options: Options, tokens: int = 0
) -> Trainer:
    """What trains a recipe's model into a directory, on batches of so many `tokens` if the recipe is not to say it."""
    family = FAMILIES[recipe.model.family]
    counts = counts_of(recipe, prepared, options.report) if recipe.train.regularizers else None
    options = replace(options, counts=counts, loops=family.loops, shares_parts=family.shares_parts(recipe.model))
    options = replace(options, carry=recipe.carries)
    return Trainer(
        model,
        batches_of(recipe, prepared, tokens),
        recipe.train,
        out,
        seed=recipe.seed,
        width=recipe.model.width,
        objective=OBJECTIVES[recipe.objective],
        options=options,
    )


def batches_of(recipe: Recipe, prepared: Prepared, tokens: int = 0) -> Batches:
    """The batches that the recipe trains on; `tokens` in a batch, if the recipe is not to say it."""
    return Batches(
        prepared.train,
        batch_tokens=tokens or recipe.data.batch_tokens,
        layout=recipe.data.layout,
        seed=recipe.seed,
        pool=recipe.data.pool,
        sampling=prepared.sampling(recipe.text),
        stream=Stream(recipe.data.context, recipe.carries),
        view=OBJECTIVES[recipe.objective].view(prepared.target_tokenizer),
    )


def counts_of(recipe: Recipe, prepared: Prepared, report: Report = lambda event: None) -> Counts:
    """How often each token is read and written; text of one side is both.

    To have a position to attend to where no word fits, ends are no words: what is read counts 0 of them.
    """
    train, sizes = prepared.train, prepared.vocabularies
    target = train.target.counts(sizes[1])
    read = target.copy() if recipe.data.texts else train.source.counts(sizes[0])
    read[END] = 0
    tensors = torch.from_numpy(read), torch.from_numpy(target)
    return Counts(*tensors, train, lambda what, count: report({"event": "prepare", "what": what, "count": count}))


def _report_start(report: Report, recipe: Recipe, prepared: Prepared, trainer: Trainer, taken_up: Path | None) -> None:
    report(
        {
            "event": "start",
            "parameters": parameter_count(trainer.model),
            "tokens": [*prepared.vocabularies],
            "pairs": len(prepared.train),
            "filters": str(prepared.report),
            "max_updates": recipe.train.max_updates,
            "minutes": recipe.train.minutes,
            "precision": "bfloat16" if trainer.bfloat16 else "float32",
            "device": str(trainer.device),
            "processes": trainer.parallel.world,
            **_paths(trainer, recipe.data.layout),
            "resumed_from": str(taken_up) if taken_up else None,
            "threads": [trainer.threads, torch.get_num_threads()],
        }
    )


def begin_with(model: nn.Module, bundle: str | Path) -> list[str]:
    """Give a model the bundle's parameters of the same names and shapes; returns those that stay as they are.

    Raises ModelError if none fits.
    """
    held, ours = (dict(each.named_parameters()) for each in (bundles.load(bundle).model(), model))
    new = [name for name, parameter in ours.items() if name not in held or held[name].shape != parameter.shape]
    with torch.no_grad():
        for name in ours.keys() - new:
            ours[name].copy_(held[name])
    if len(new) == len(ours):
        raise ModelError(
            f"{bundle}: no parameter of this bundle has a name and shape of the recipe's model; give [model] the sizes "
            "of the bundle's recipe, or leave train.start_from out."
        )
    return new


def _paths(trainer: Trainer, layout: str) -> dict[str, Any]:
    """Which ways of computing this run takes, and why it does not take faster ones."""
    device, dtype = trainer.device.type, torch.bfloat16 if trainer.bfloat16 else torch.float32
    kernel, refusals = multihead.choose(multihead.probe(device, dtype=dtype, packed=layout == "packed"))
    refused = refusals | {f"compiled {name}": why for name, why in layers.refusals(device, dtype).items()}
    if not trainer.bfloat16:
        refused["bfloat16"] = "the recipe says so, or float32 is as fast here"
    if not trainer.constant:
        refused["torch.compile"] = "it is for packs on a GPU, and train.compile"
    return {"attention": kernel.name, "not": refused}


def _begin(recipe: Recipe, run: _Run, corpus: Texts | None) -> tuple[Recipe, Prepared]:
    """The recipe as it is trained, written down, and its prepared text."""
    out, before = run.out, run.out / "recipe.toml"
    if corpus is not None:
        recipe = with_corpus(recipe, corpus, out, resume=run.resume)
    if run.resume and before.exists():  # what fitted and was quickest then
        begun = recipes.load(before)
        if recipe.data.batch_tokens == 0:
            recipe = _with(recipe, "data", batch_tokens=begun.data.batch_tokens)
        if recipe.train.precision == "auto":
            recipe = _with(recipe, "train", precision=begun.train.precision)
    _check_directory(recipe, out, run.resume)
    check_named(recipe)
    if recipe.train.precision == "auto":
        width, cpu = recipe.model.width, run.device.type == "cpu"
        chosen = "bfloat16" if resolve_precision("auto", run.device, width) else "float32"
        recipe = _with(recipe, "train", precision=chosen)
        because = native.map_seconds_said(width) if cpu else "of the GPU"
        run.report({"event": "precision", "chosen": chosen, "because": because})
    write_atomically(before, recipes.to_toml(recipe))
    prepared = prepare_for(recipe, out, lambda what, n: run.report({"event": "prepare", "what": what, "count": n}))
    check_shortest(recipe, prepared.valid)
    if page := recipe.data.target_kind.page:
        import_module(page).check(prepared.target_tokenizer)  # raises ModelError now, not after hours of training
    if recipe.data.batch_tokens == 0:
        recipe = _with(recipe, "data", batch_tokens=_fitting(recipe, prepared, run.device))
        write_atomically(before, recipes.to_toml(recipe))
        run.report({"event": "batch", "tokens": recipe.data.batch_tokens})
    return recipe, prepared


def _with(recipe: Recipe, table: str, **chosen: object) -> Recipe:
    """A recipe with what a run chose where one of its tables leaves the choice."""
    return recipe.model_copy(update={table: getattr(recipe, table).model_copy(update=chosen)})


def _fitting(recipe: Recipe, prepared: Prepared, device: torch.device) -> int:
    """Tokens of the largest batch that fits into the memory that is free now."""
    tokens = prepared.vocabularies
    bfloat16 = recipe.train.precision == "bfloat16"
    again = recipe.train.checkpoint_activations
    costs = count_costs(recipe.model, *tokens, bfloat16=bfloat16, objective=recipe.objective, again=again)
    longest = recipe.data.context or prepared.train.longest
    return fitting_tokens(costs, recipe.train, device.type, free=free_memory(device), longest=longest)


def _check_directory(recipe: Recipe, out: Path, resume: bool) -> None:
    """A run is never overwritten, and never continued under another recipe."""
    begun = (out / "recipe.toml").exists()
    if begun and not resume and any((out / "checkpoints").glob("update-*")):
        raise RecipeError(f"{out}: holds a run already; go on with --resume, or choose another --out.")
    if begun and resume:
        before, now = (each.model_dump(mode="json") for each in (recipes.load(out / "recipe.toml"), recipe))
        before["train"]["parallel"] = now["train"]["parallel"]  # how the work is shared changes no result
        for table in ("seed", "data", "text", "model", "train"):
            if before[table] != now[table]:
                keys = [k for k in now[table] if before[table].get(k) != now[table][k]] if table != "seed" else []
                raise RecipeError(
                    f"{out}: was begun with another recipe ([{table}] {', '.join(keys)} differs), so it cannot go on "
                    f"exactly; resume with {out / 'recipe.toml'}, or choose another --out."
                )


def _ask_to_stop(trainer: Trainer) -> None:
    """The first Ctrl-C or SIGTERM asks the trainer to save and stop; a second one interrupts at once."""
    # torchrun passes on what a terminal has sent to every process already; and one must not leave the others.
    if trainer.stop and trainer.parallel.alone:
        raise KeyboardInterrupt
    trainer.stop = True
