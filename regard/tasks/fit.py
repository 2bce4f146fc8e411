"""A recipe in, a bundle out: text is prepared, a model trained, its weights bundled with everything needed to use them.

What a run leaves in its directory: `recipe.toml`, `prepared/`, `checkpoints/`, `log.jsonl`, `curves/` (TensorBoard),
`bundle/`, `hypotheses/` (what it wrote for each set that it was scored on) and `results.json`.
"""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard import bundle as bundles
from regard import recipe as recipes
from regard.bundle import Provenance
from regard.data.batches import Batches, View
from regard.data.reading import sets_of
from regard.data.views import CMLMMask, Label, Masks, SpanCorruption
from regard.disk import atomic_rename
from regard.errors import BundleError, CheckpointError, DataError, ModelError, RecipeError
from regard.metrics import bleu
from regard.models import parameter_count
from regard.models.interface import device_named
from regard.nn import stand_ins
from regard.nn.attention import kernels
from regard.nn.embedding import fold_scale, scale_rows
from regard.parsing.parse import evaluate_trees, symbols_of
from regard.parsing.trees import delinearise, words_of
from regard.recipe import Recipe
from regard.search.config import SearchConfig
from regard.text import END, Tokenizer, write_lines
from regard.train import (
    OBJECTIVES,
    Interrupted,
    Step,
    Trainer,
    importance,
    inputs,
    mixed,
    rarity,
    resolve_precision,
    token_log_probabilities,
)
from regard.train.parallel import Parallel, joined

from .costs import count_costs, fitting_tokens, free_memory
from .decode import decode, mask_of
from .engine import backend_of
from .evaluate import DEFAULT_METRICS, evaluate_lines, wanted_of
from .golden import golden
from .prepare import Prepared, given_by, prepare

__all__ = ["Interrupted", "begin_with", "fit", "is_main_process", "versions", "view_of"]

Report = Callable[[dict[str, Any]], None]

_VALID_TOKENS = 4096


def fit(recipe: Recipe, out: str | Path, *, resume: bool = False, report: Report | None = None) -> Path:
    """Train what the recipe says into the directory `out`; returns the path of the bundle.

    `report` hears every event as a dict: "prepare", "batch", "start", "train", "validate", "bundle", "score". With
    `resume` the newest checkpoint is taken up, if there is one. Raises Interrupted after Ctrl-C or SIGTERM, its
    checkpoint saved. Started by torchrun, this is one process of the run; only the first one reports.
    """
    parallel = Parallel.started(recipe.train.parallel)
    device = parallel.device(device_named(recipe.train.device))
    with joined(parallel, device) as parallel:
        tell = report if report and parallel.main else (lambda event: None)
        return _fit(recipe, Path(out), resume, tell, parallel, device)


def is_main_process() -> bool:
    """Whether this process is the one of its run that reports: the first, or the only one."""
    return Parallel.started().main


def _fit(recipe: Recipe, out: Path, resume: bool, tell: Report, parallel: Parallel, device: torch.device) -> Path:
    if parallel.main:
        recipe, prepared = _begin(recipe, out, resume, tell, device)
    parallel.barrier()
    if not parallel.main:  # what the first process chose and made
        recipe = recipes.load(out / "recipe.toml")
        prepared = prepare(recipe.corpus, recipe.spelling, out, given=given_by(recipe))

    torch.manual_seed(recipe.seed)
    source, target = prepared.source_tokenizer, prepared.target_tokenizer
    model = bundles.new_model(recipe, source, target).to(device)
    if recipe.train.start_from:
        tell({"event": "begin", "bundle": recipe.train.start_from, "new": begin_with(model, recipe.train.start_from)})
    if recipe.train.input_damping:
        scale_rows(model, rarity(_words_read(recipe, prepared), recipe.train.input_damping).to(device))
    batches = Batches(
        prepared.train,
        batch_tokens=recipe.data.batch_tokens,
        layout=recipe.data.layout,
        seed=recipe.seed,
        pool=recipe.data.pool,
        sampling=prepared.sampling(recipe.text.sampling),
        context=recipe.data.context,
        view=view_of(recipe.objective, target),
    )
    validator = _Validator(prepared, recipe, device)
    log = _Log(out, tell)
    main = parallel.main
    trainer = Trainer(
        model,
        batches,
        recipe.train,
        out,
        seed=recipe.seed,
        width=recipe.model.width,
        validate=validator if len(prepared.valid) else None,
        report=log if main else None,
        parallel=parallel,
        objective=OBJECTIVES[recipe.objective],
        importance=_importance(recipe, prepared, device),
        price=_price(recipe, prepared, device),
    )
    validator.bfloat16 = trainer.bfloat16
    taken_up = trainer.resume() if resume else None
    if main:
        if taken_up is None:
            _forget(out)
        log.open(trainer.update)
    tell(
        {
            "event": "start",
            "parameters": parameter_count(model),
            "tokens": [len(source), len(target)],
            "pairs": len(prepared.train),
            "filters": str(prepared.report),
            "max_updates": recipe.train.max_updates,
            "minutes": recipe.train.minutes,
            "precision": "bfloat16" if trainer.bfloat16 else "float32",
            "device": str(device),
            "processes": parallel.world,
            **_paths(trainer, recipe.data.layout),
            "resumed_from": str(taken_up) if taken_up else None,
            "threads": [trainer.threads, torch.get_num_threads()],
        }
    )
    try:
        with _stopping(trainer):
            trainer.run()
    except OSError as error:  # a full disk shows in the log as well as in a save
        raise CheckpointError(
            f"{error.filename or out}: could not be written ({error.strerror or error}), so training stopped; "
            "the checkpoints are whole. Free some space and go on with --resume"
        ) from error
    finally:
        log.close()
    weights = trainer.final_weights()
    if main:
        _finish(recipe, out, prepared, trainer, model, weights, device, tell)
    parallel.barrier()
    return out / "bundle"


def _importance(recipe: Recipe, prepared: Prepared, device: torch.device) -> Tensor | None:
    """What a target of each token counts in the loss; None: all count alike."""
    if not recipe.train.damping:
        return None
    counts = torch.from_numpy(prepared.train.target.counts(len(prepared.target_tokenizer)))
    return importance(counts, recipe.train.damping).to(device)


def _price(recipe: Recipe, prepared: Prepared, device: torch.device) -> Tensor | None:
    """What a target's attention to each token costs in nats; None: nothing."""
    if not recipe.train.attention_penalty:
        return None
    return recipe.train.attention_penalty * (1.0 - rarity(_words_read(recipe, prepared), 0.01)).to(device)


def _words_read(recipe: Recipe, prepared: Prepared) -> Tensor:
    """How often each token occurs on the side that is read, (V,), ends aside, which are no words.

    To have a place to look at where no word fits, ends are neither scaled nor cost anything.
    """
    store, text = prepared.train, recipe.data.texts
    counts = (store.target if text else store.source).counts(
        len(prepared.target_tokenizer if text else prepared.source_tokenizer)
    )
    counts[END] = 0
    return torch.from_numpy(counts)


def begin_with(model: nn.Module, bundle: str | Path) -> list[str]:
    """Give a model the bundle's parameters of the same names and shapes; returns those that stay as they are.

    Raises ModelError if none fits.
    """
    held = dict(bundles.load(bundle).model().named_parameters())
    new = []
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name in held and held[name].shape == parameter.shape:
                parameter.copy_(held[name])
            else:
                new.append(name)
    if len(new) == len(list(model.parameters())):
        raise ModelError(
            f"{bundle}: no parameter of this bundle has a name and shape of the recipe's model; give [model] the sizes "
            "of the bundle's recipe, or leave train.start_from out."
        )
    return new


def _paths(trainer: Trainer, layout: str) -> dict[str, Any]:
    """Which ways of computing this run takes, and why it does not take faster ones."""
    dtype = torch.bfloat16 if trainer.bfloat16 else torch.float32
    kernel, refusals = kernels.choose(kernels.probe(trainer.device.type, dtype=dtype, packed=layout == "packed"))
    return {
        "attention": kernel.name,
        "not": {
            **refusals,
            **{f"compiled {name}": reason for name, reason in stand_ins.refusals(trainer.device.type, dtype).items()},
            **({} if trainer.bfloat16 else {"bfloat16": "the recipe or the hardware says so"}),
            **({} if trainer.constant else {"torch.compile": "it is for packs on a GPU, and train.compile"}),
        },
    }


def _begin(recipe: Recipe, out: Path, resume: bool, tell: Report, device: torch.device) -> tuple[Recipe, Prepared]:
    """The recipe as it is trained, written down, and its prepared text."""
    if resume and recipe.data.batch_tokens == 0 and (out / "recipe.toml").exists():
        recipe = _with_batches_of(recipe, recipes.load(out / "recipe.toml").data.batch_tokens)  # what fitted then
    _check_place(recipe, out, resume)
    for name, files in recipe.data.test.items():
        for file in files.files:
            if not Path(file).is_file():  # said now, not after hours of training
                raise DataError(f"{file}: no such file, but data.test.{name} names it; correct or remove it.")
    if not recipe.data.trees:
        wanted_of(recipe.data.metrics)
    out.mkdir(parents=True, exist_ok=True)
    _put(out / "recipe.toml", recipes.to_toml(recipe))
    prepared = prepare(
        recipe.corpus,
        recipe.spelling,
        out,
        given=given_by(recipe),
        progress=lambda what, count: tell({"event": "prepare", "what": what, "count": count}),
    )
    if len(prepared.train) == 0:
        raise DataError(f"no training pair is left after the filters ({prepared.report}); loosen data.filters.")
    if recipe.data.trees:
        symbols_of(prepared.target_tokenizer)  # raises ModelError now, not after hours of training
    if recipe.data.batch_tokens == 0:
        recipe = _with_batches_of(recipe, _fitting(recipe, prepared, device))
        _put(out / "recipe.toml", recipes.to_toml(recipe))
        tell({"event": "batch", "tokens": recipe.data.batch_tokens})
    return recipe, prepared


def _with_batches_of(recipe: Recipe, tokens: int) -> Recipe:
    return recipe.model_copy(update={"data": recipe.data.model_copy(update={"batch_tokens": tokens})})


def _fitting(recipe: Recipe, prepared: Prepared, device: torch.device) -> int:
    """Tokens of the largest batch that fits into the memory that is free now."""
    train, tokens = prepared.train, (len(prepared.source_tokenizer), len(prepared.target_tokenizer))
    bfloat16 = resolve_precision(recipe.train.precision, device)
    costs = count_costs(recipe.model, *tokens, bfloat16=bfloat16, objective=recipe.objective)
    longest = recipe.data.context or 1 + int(max(train.source_lengths.max(), train.target_lengths.max()))
    return fitting_tokens(costs, recipe.train, device.type, free=free_memory(device), longest=longest)


def _put(path: Path, text: str) -> None:
    """Write a text file so that a crash at any moment leaves the old one, or the new one, whole."""
    part = path.with_name(path.name + ".part")
    try:
        part.write_text(text, encoding="utf-8")
        atomic_rename(part, path)
    finally:
        part.unlink(missing_ok=True)


def _forget(out: Path) -> None:
    """Remove weights that a run cut off before its first checkpoint left, lest they be averaged into this one's."""
    shutil.rmtree(out / "snapshots", ignore_errors=True)
    (out / "best.safetensors").unlink(missing_ok=True)


def _check_place(recipe: Recipe, out: Path, resume: bool) -> None:
    """A run is never overwritten, and never continued under another recipe."""
    begun = (out / "recipe.toml").exists()
    if begun and not resume and any((out / "checkpoints").glob("update-*")):
        raise RecipeError(f"{out}: holds a run already; go on with --resume, or choose another --out.")
    if begun and resume:
        before = recipes.load(out / "recipe.toml").model_dump(mode="json")
        now = recipe.model_dump(mode="json")
        for table in ("seed", "data", "text", "model", "train"):
            if table == "train":  # how the work is shared changes no result
                before[table].pop("parallel")
                now[table].pop("parallel")
            if before[table] != now[table]:
                keys = [k for k in now[table] if before[table].get(k) != now[table][k]] if table != "seed" else []
                raise RecipeError(
                    f"{out}: was begun with another recipe ([{table}] {', '.join(keys)} differs), so it cannot go on "
                    f"exactly; resume with {out / 'recipe.toml'}, or choose another --out."
                )


@dataclass(frozen=True)
class _Judged:
    log_probability: float
    count: int
    right: int


class _Validator:
    """Scores the dev set: loss and perplexity a token, and BLEU where the recipe chooses by it."""

    def __init__(self, prepared: Prepared, recipe: Recipe, device: torch.device) -> None:
        self.prepared, self.recipe, self.device = prepared, recipe, device
        self.bfloat16 = False
        self.batches = Batches(
            prepared.valid,
            batch_tokens=_VALID_TOKENS,
            layout="padded",
            context=recipe.data.context,
            view=view_of(recipe.objective, prepared.target_tokenizer),
        )

    def __call__(self, model: nn.Module) -> dict[str, float]:
        found = _log_probability(model, self.batches, self.recipe, self.device, self.bfloat16)
        loss = -found.log_probability / max(1, found.count)
        scores = {"loss": loss, "perplexity": math.exp(min(50.0, loss))}
        if self.recipe.objective == "classify":
            scores["accuracy"] = 100.0 * found.right / max(1, found.count)
        if self.recipe.train.validate_with == "bleu":
            quick = SearchConfig(beam=1, penalty="none", alpha=0.0, extra_length=self.recipe.search.extra_length)
            valid = self.prepared.valid
            hypotheses = decode(
                backend_of(
                    model,  # type: ignore[arg-type]
                    "bfloat16" if self.bfloat16 else "float32",
                    mask_of(self.recipe, self.prepared.target_tokenizer),
                ),
                [valid.source_ids(i).tolist() for i in range(len(valid))],
                quick.model_copy(update={"batch_size": 128}),
            )
            texts = [self.prepared.target_tokenizer.decode(h[0].ids) for h in hypotheses]
            references = [valid.target_text(i) for i in range(len(valid))]
            scores["bleu"] = bleu(texts, references, language=self.recipe.data.target_language, resamples=0).value
        return scores


@torch.inference_mode()
def _log_probability(model: Any, batches: Batches, recipe: Recipe, device: torch.device, bfloat16: bool) -> _Judged:
    """Of all targets of an epoch: their summed log-probability, how many they are, and how many are the likeliest."""
    total, count, right = 0.0, 0, 0
    step = Step(model, 0.0, recipe.train.chunk, objective=OBJECTIVES[recipe.objective])
    for batch in batches.one_epoch(sort=True):
        x = inputs(batch, device, places=0)
        with mixed(device, bfloat16):
            hidden, targets = step.hidden(x).flatten(0, -2), step.targets(x)
            hidden, targets = hidden[targets >= 0], targets[targets >= 0]
            total += float(token_log_probabilities(model.output, hidden, targets, recipe.train.chunk).double().sum())
            if recipe.objective == "classify":
                right += int((model.output(hidden).argmax(-1) == targets).sum())
        count += len(targets)
    return _Judged(total, count, right)


def view_of(objective: str, target: Tokenizer) -> View | None:
    """How an objective sees batches; None: as they are."""
    if objective == "classify":
        return Label()
    found = [target.id_of(symbol) for symbol in OBJECTIVES[objective].symbols]
    symbols = [symbol for symbol in found if symbol is not None]
    if objective == "mask":
        return Masks(symbols[0], len(target))
    if objective == "fill":
        return CMLMMask(symbols[0])
    return SpanCorruption(tuple(symbols)) if objective == "denoise" else None


class _Log:
    """Writes every event to `log.jsonl` and to TensorBoard's files, then passes it on."""

    def __init__(self, out: Path, tell: Report) -> None:
        self.out, self.tell = out, tell
        self.curves: Any = None

    def open(self, update: int) -> None:
        """Begin after `update`: what a run that was killed wrote beyond its checkpoint is dropped and written again."""
        path = self.out / "log.jsonl"
        kept = []
        if path.exists() and update:
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    event = json.loads(line)
                except ValueError:  # the line that was being written when the run was killed
                    continue
                if event["update"] <= update:
                    kept.append(line + "\n")
        _put(path, "".join(kept))
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            return
        self.curves = SummaryWriter(str(self.out / "curves"), purge_step=update + 1)

    def __call__(self, event: dict[str, Any]) -> None:
        with (self.out / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({k: None if v != v else v for k, v in event.items()}) + "\n")
        if self.curves is not None:
            for key, value in event.items():
                if isinstance(value, float) and value == value:
                    self.curves.add_scalar(f"{event['event']}/{key}", value, event["update"])
        self.tell(event)

    def close(self) -> None:
        if self.curves is not None:
            with suppress(OSError):  # every value is in log.jsonl too
                self.curves.close()


@contextmanager
def _stopping(trainer: Trainer) -> Iterator[None]:
    """While inside, the first Ctrl-C or SIGTERM asks the trainer to save and stop; a second one interrupts at once."""

    def ask(number: int, frame: Any) -> None:
        # torchrun passes on what a terminal has sent to every process already; and one must not leave the others.
        if trainer.stop and trainer.parallel.alone:
            raise KeyboardInterrupt
        trainer.stop = True

    before: dict[signal.Signals, Any] = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, ask)
    except ValueError:  # not the main thread: signals are the caller's business
        pass
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# -- after training ----------------------------------------------------------------------------------------------------


def _finish(
    recipe: Recipe,
    out: Path,
    prepared: Prepared,
    trainer: Trainer,
    model: nn.Module,
    weights: dict[str, Tensor],
    device: torch.device,
    tell: Report,
) -> None:
    model.float()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])
    fold_scale(model)
    model.eval()
    training = {
        "updates": trainer.update,
        "epochs": trainer.batches.epoch,
        "target_tokens": trainer.tokens,
        "seconds": round(trainer.seconds, 1),
        "trained": round(trainer.trained, 1),
        "parameters": parameter_count(model),
        "precision": "bfloat16" if trainer.bfloat16 else "float32",
        "threads": torch.get_num_threads(),
        "processes": trainer.parallel.world,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "best_on_dev": trainer.best,
    }
    path = out / "bundle"
    model.to("cpu")
    provenance = Provenance(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        versions=versions(),
        machine=f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}",
        data={"sha256": prepared.data_hashes, "filters": prepared.report.to_dict()},
        training=training,
    )

    asked = prepared.valid if len(prepared.valid) else prepared.train

    def keep(scores: list[dict[str, Any]]) -> None:
        try:
            bundles.save(
                path,
                recipe=recipe,
                weights={n: p.detach() for n, p in model.named_parameters()},
                source=prepared.source_tokenizer,
                target=prepared.target_tokenizer,
                provenance=provenance.model_copy(update={"scores": scores}),
                golden=golden(model, recipe, prepared.source_tokenizer, prepared.target_tokenizer, asked),
            )
        except BundleError as error:
            raise BundleError(f"{error} Training is done and saved; --resume makes the bundle from it.") from error
        tell({"event": "bundle", "path": str(path)})

    keep([])  # first, so that nothing that happens while scoring can lose it
    scores = _score(path, recipe, prepared, tell)
    if scores:
        keep(scores)
    result = {"recipe": recipe.name, "scores": scores, "training": training, "versions": versions()}
    _put(out / "results.json", json.dumps(result, indent=1, ensure_ascii=False) + "\n")


def _score(path: Path, recipe: Recipe, prepared: Prepared, tell: Report) -> list[dict[str, Any]]:
    """The dev set and each test set of the recipe, as the bundle does on them when anybody else uses it.

    What fills masks or mends gaps is judged by its dev loss alone.
    """
    from .measure import measure
    from .open import open_bundle
    from .translate import load

    def keep(name: str, lines: Iterable[str]) -> None:
        written = path.parent / "hypotheses" / f"{name}.txt"
        written.parent.mkdir(parents=True, exist_ok=True)
        write_lines(written, lines)

    def translated(name: str, source: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, Any]:
        metrics = recipe.data.metrics or DEFAULT_METRICS
        found = evaluate_lines(translator, source, references[0], metrics=metrics, more_references=references[1:])
        keep(name, found.hypotheses)
        return found.to_dict()

    def parsed(name: str, source: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, Any]:
        gold = [delinearise(line, words_of(text)) for text, line in zip(source, references[0], strict=True)]
        found = evaluate_trees(translator, gold)
        keep(name, map(str, found.trees))
        return found.to_dict()

    def measured(name: str, source: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, Any]:
        scores = measure(opened, source, None if recipe.data.texts else references[0])
        return {"lines": len(source), "scores": {name: score.to_dict() for name, score in scores.items()}}

    if recipe.objective in ("translate", "fill"):
        translator, judge = load(path), parsed if recipe.data.trees else translated
    elif recipe.objective in ("continue", "classify"):
        opened, judge = open_bundle(path, ["language-model", "classifier"]), measured
    else:
        return []
    scores = []
    for name, source, references in sets_of(recipe.data, prepared.valid):
        began = time.perf_counter()
        scores.append(
            {"set": name, **judge(name, source, references), "seconds": round(time.perf_counter() - began, 1)}
        )
        tell({"event": "score", **scores[-1]})
    return scores


def versions() -> dict[str, str]:
    """Versions of what decides a run's result."""
    found = {"python": platform.python_version()}
    for package in ("regard", "torch", "sentencepiece", "numpy", "sacrebleu", "safetensors"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed as a package"
    return found
